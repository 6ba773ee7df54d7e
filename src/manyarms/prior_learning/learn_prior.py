"""Empirical Bayes: the prior that makes the logs most likely."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from manyarms._base.checks import Array, as_count, as_flag, as_instance
from manyarms._base.job_options import PriorChoice
from manyarms._base.progress import Progress, reporter
from manyarms.core import HierarchicalGaussian, LoggedData, Logs, Statistics
from manyarms.core.logged_data import as_logs
from manyarms.engines import Engine, as_engine
from manyarms.errors import DataTypeError, InputError, NumericalError
from manyarms.gpu.device import CPU, as_device
from manyarms.inference.condition import check_sizes, conditioning
from manyarms.likelihoods import Bernoulli, Hurdle, Likelihood, Poisson
from manyarms.likelihoods.device_sites import check_loop
from manyarms.likelihoods.likelihood import as_likelihood
from manyarms.logs.log_stream import LogStream
from manyarms.posterior import RewardPosterior
from manyarms.posterior.training_files import in_memory_if_small, remember_files
from manyarms.prior_learning.evidence import ApproximateEvidence, Evidence, ExactEvidence, evidence_of
from manyarms.prior_learning.hyperparameters import Choice, Hyperparameters, Means, Vector
from manyarms.prior_learning.learnable_parts import around_average
from manyarms.prior_learning.learned_prior import LearnedPrior
from manyarms.prior_learning.newton_search import FEW, newton_search
from manyarms.prior_learning.prior_warnings import (
    certain_mean_warnings,
    few_data_warnings,
    fractional_weights_warnings,
    uneven_columns_notes,
)

MAX_ITERATIONS = 500
_AROUND_AVERAGE = (
    "contexts are far from zero on average, so actions are taken to be alike at the average context rather than at zero"
)
LONGEST = 2.0
"""The longest move of a logarithm before the search starts anew."""


def learn_prior(
    logs: Logs | Statistics,
    prior: HierarchicalGaussian | PriorChoice,
    likelihood: Likelihood | None = None,
    *,
    effect_cov: Choice | Mapping[str, Choice] = "scale",
    action_cov: Choice = "scale",
    means: Means = "integrated",
    learn_noise: bool = True,
    avoid_boundary: bool = True,
    max_iterations: int = MAX_ITERATIONS,
    progress: Progress = False,
    engine: Engine | str | None = None,
    device: str = CPU,
) -> LearnedPrior:
    """Learn noise, standard deviations and means of a prior from the logs by type-II maximum likelihood.

    The log evidence and its exact gradient (posterior moments of seen actions, `inference.evidence_gradient`) come from
    `Statistics` alone, so after one pass over the logs a step costs one solve, whatever the number of rounds. The
    search is Newton's method on log standard deviations, or L-BFGS where these are many; no accepted step lowers the
    objective.

    Where neither rewards nor their logarithms are Gaussian, a step runs the loop of `fit` to its end: on a `LogStream`
    about a hundred passes in all, up to three hundred, and as many again if standard errors are requested.
    A stream of at most half a gigabyte is read once and kept in memory. For a longer one, learn from a sample and
    `fit` on all rounds.

    Where the columns of the contexts are far from zero on average and one of them is constant, a prior that treats all
    coordinates alike is learned twice: as given, and with standard deviations that hold at the average context, for
    which it does not matter where a column has its zero (`prior_learning.learnable_parts.around_average`). The one that
    makes the logs more likely is kept. `Statistics` do not tell the average, and leave the prior as it is.

    Where rounds count less with age, the prior is learned from the same rounds at full weight, and the posterior uses
    them with their weights. It remembers the files of a stream, so that none is counted twice.

    With `avoid_boundary` every standard deviation has a very wide half-normal prior and its mode is taken on the log
    scale, which keeps it off zero (Chung et al., 2013). Without it, a standard deviation that the data put at
    zero is set to exactly zero and reported by `boundary=True`.

    Args:
        logs: Logged rounds, in memory or a `LogStream`; for Gaussian rewards also their `Statistics`.
        prior: Its structure is kept; learning starts from its scales and means. A standard deviation of exactly 0
            stays 0. Or the name of a kind of prior, built from the catalog of the logs; or "auto" to compare all kinds
            that the catalog allows on held-out rounds of a sample, and take the simplest one within one standard error
            of the best (`LearnedPrior.comparison`).
        likelihood: Learning starts from its noise; by default `Gaussian(1.0)`.
        effect_cov: The part of the covariance of effects that is learned: one "scale" per group, a "diagonal" or "full"
            matrix that the effects of a group share, or nothing ("fixed"); or a mapping from the name of a group to one
            of these words.
        action_cov: The part of Σ_a that is learned, as for `effect_cov`.
        means: How the means of groups of effects, or of all actions, are learned where the logs can tell them apart:
            "integrated" out under a flat prior while covariances are learned (restricted likelihood, less biased when
            effects are few) and then set to their posterior expectation; "maximised" with the rest (plain type-II
            maximum likelihood); or "fixed". A single effect that all actions share keeps its mean, except for clicks
            and counts: there its mean in the constant column of the contexts is learned too, the rate of events.
        learn_noise: True learns the noise too.
        avoid_boundary: True keeps standard deviations off zero by a weak prior.
        max_iterations: The most iterations of the search.
        progress: True shows a bar; a function is called as progress(iteration, max_iterations).
        engine: The engine that reads a `LogStream`, as in `fit`.
        device: "cuda" learns from clicks on a GPU, with the same result within the tolerance of the search
            (docs/gpu.md).

    Returns:
        A `LearnedPrior`: prior, likelihood and posterior, the learned numbers with standard errors, and notes.
    """
    learn_noise, avoid_boundary = as_flag("learn_noise", learn_noise), as_flag("avoid_boundary", avoid_boundary)
    device = as_device(device)
    if isinstance(prior, str):
        from manyarms.prior_learning.choose_prior import learn_named_prior  # noqa: PLC0415  it uses this function

        return learn_named_prior(
            logs, prior, likelihood,
            effect_cov=effect_cov, action_cov=action_cov, means=means, learn_noise=learn_noise,
            avoid_boundary=avoid_boundary, max_iterations=max_iterations, progress=progress, engine=engine,
            device=device,
        )  # fmt: skip
    prior = as_instance("prior", prior, HierarchicalGaussian, "a HierarchicalGaussian or the name of a kind of prior")
    if prior.observed.groups:
        raise InputError(
            "is a posterior, which cannot be learned.",
            "Pass the prior that it came from, and all logs.",
            argument="prior",
        )
    likelihood = one_likelihood(likelihood)
    if isinstance(logs, Statistics):
        check_sizes(prior, logs)
    else:
        as_logs(logs, prior)
    # A round of weight 1/3 is not noisier than others, but would be taken for it, and actions would seem to differ by
    # noise alone. So where rounds count less with age, the prior is learned from the same rounds at full weight.
    full_weight = logs.ageless() if isinstance(logs, LogStream) else logs
    evidence = _evidence(full_weight, likelihood, prior, engine, device, avoid_boundary)
    _check_rewards(evidence, likelihood)
    if not evidence.total_weight > 0:
        raise InputError(
            "there are no rounds to learn a prior from.",
            "Use fit(), which returns the prior as it is.",
            flag_remedy="See how many rounds --maturity, --missing and --unknown leave out.",
        )
    if not evidence.scale.reward > 0:
        raise InputError("all rewards, or all contexts, are 0, so no prior can be learned.", "Check the columns.")
    one_scale = all(isinstance(choice, str) and choice == "scale" for choice in (effect_cov, action_cov))
    max_iterations = as_count("max_iterations", max_iterations)
    given, centred = prior, around_average(prior, evidence.centre if one_scale else None)
    searches = list[_Search]()
    for start in [given] if centred is given else [given, centred]:
        hyper = Hyperparameters(
            start, likelihood.dispersion, evidence.seen, evidence.scale,
            effect_cov=effect_cov, action_cov=action_cov, means=means, learn_noise=learn_noise,
            constant=evidence.constant,
        )  # fmt: skip
        if hyper.size == 0:
            raise InputError("nothing is left to learn: every part of the prior and the noise is fixed.")
        searches.append(_Search(start, hyper, *_search(evidence, hyper, avoid_boundary, max_iterations, progress)))
    prior, hyper, eta, value, trace, converged = max(searches, key=lambda search: search.value)
    zeroed = list[str]()
    if not avoid_boundary:
        hyper, eta, zeroed = _zero(evidence, hyper, eta, value, max_iterations)
    learned = _result(evidence, hyper, eta, avoid_boundary, zeroed, trace, converged)
    if prior is not given:
        learned = replace(learned, notes=(*learned.notes, _AROUND_AVERAGE))
    if full_weight is not logs:
        # The posterior under the learned prior is of the rounds as they count.
        aged = _evidence(logs, likelihood, prior, engine, device, avoid_boundary)
        posterior = aged.fit(learned.prior, learned.likelihood.dispersion)
        warnings = tuple(dict.fromkeys((*posterior.fit_warnings, *learned.posterior.fit_warnings)))
        learned = replace(learned, posterior=replace(posterior, fit_warnings=warnings, prior_learned=True), aged=aged)
    _release(evidence, learned.aged)
    return (
        learned if isinstance(logs, Statistics) else replace(learned, posterior=remember_files(learned.posterior, logs))
    )


class _Search(NamedTuple):
    """The end of a search: the prior it started from, and the values that make the logs most likely."""

    prior: HierarchicalGaussian
    hyper: Hyperparameters
    eta: Vector
    value: float
    trace: list[float]
    converged: bool


def _evidence(
    logs: Logs | Statistics,
    likelihood: Likelihood,
    prior: HierarchicalGaussian,
    engine: Engine | str | None,
    device: str,
    avoid_boundary: bool,
) -> Evidence:
    rounds = logs if isinstance(logs, Statistics) else in_memory_if_small(logs, likelihood, engine)
    if device != CPU:
        check_loop(prior, rounds, likelihood)
        if not avoid_boundary:
            problem = "a GPU learns standard deviations above zero, and without avoid_boundary one may be zero."
            raise InputError(problem, 'Use device="cpu".', argument="device")
    return evidence_of(rounds, likelihood, prior.n_actions, as_engine(engine), device)


def _release(*used: Evidence | None) -> None:
    """Give back the memory of a GPU."""
    for evidence in used:
        if isinstance(evidence, ApproximateEvidence):
            evidence.release()


def relearn(learned: LearnedPrior, logs: LoggedData | Statistics) -> RewardPosterior:
    """Repeat `learn_prior` on other rounds, starting at the learned values, and return the posterior from them."""
    evidence = evidence_of(logs, learned.likelihood, learned.prior.n_actions)
    hyper, eta = learned.hyper, learned.eta
    if hyper.size:
        eta, _ = _climb(evidence, hyper, eta, learned.avoid_boundary, MAX_ITERATIONS, lambda value: None)
    _, flexible = evidence.posterior(hyper, eta, avoid_boundary=False)
    return evidence.fit(hyper.plugged(eta, flexible), hyper.build(eta)[1])


def _result(
    evidence: Evidence,
    hyper: Hyperparameters,
    eta: Vector,
    avoid_boundary: bool,
    zeroed: list[str],
    trace: list[float],
    converged: bool,
) -> LearnedPrior:
    _, flexible = evidence.posterior(hyper, eta, avoid_boundary=False)
    _, noise_std = hyper.build(eta)
    few = [*few_data_warnings(hyper, evidence), *fractional_weights_warnings(evidence)]
    posterior = evidence.fit(hyper.plugged(eta, flexible), noise_std)
    sure = certain_mean_warnings(hyper, evidence, posterior.weights, flexible)
    if (
        hyper.learn_noise
        and noise_std is not None
        and noise_std < 1e-5 * evidence.scale.reward * evidence.scale.fineness
    ):
        zeroed.append("noise")
    if not avoid_boundary:
        zeroed += [form.name for form, part in hyper.free_forms if form.is_degenerate(eta[part])]
    zeroed = list(dict.fromkeys(zeroed))
    notes = [*hyper.notes, *uneven_columns_notes(evidence), *few, *sure]
    notes += [f"{name}: the data put a standard deviation at zero" for name in zeroed]
    if not converged:
        notes.append(f"the search had not converged after {len(trace)} iterations; allow more")
    return LearnedPrior(
        replace(posterior, fit_warnings=(*posterior.fit_warnings, *few, *sure), prior_learned=True),
        flexible, evidence, hyper, eta, avoid_boundary, tuple(zeroed), converged, tuple(trace), tuple(notes), sure,
    )  # fmt: skip


def one_likelihood(likelihood: Any) -> Likelihood:
    """The likelihood to learn a prior with, `Gaussian(1.0)` for None; a hurdle is refused, as it is two likelihoods."""
    if isinstance(likelihood, Hurdle):
        raise DataTypeError(
            "is a Hurdle: two likelihoods, each with a prior of its own.",
            "Learn or compare them separately. Whether there is a reward: ma.Bernoulli() on "
            "logs.with_rewards((logs.rewards != 0).astype(float)). How much: ma.LogNormal() on "
            "logs.take(np.flatnonzero(logs.rewards)). Then pass both to "
            "ma.fit(logs, (first.prior, second.prior), ma.Hurdle(first.likelihood, second.likelihood)).",
            argument="likelihood",
        )
    return as_likelihood(likelihood)


def _check_rewards(evidence: Evidence, likelihood: Likelihood) -> None:
    """Refuse rewards that are all the same."""
    summary = evidence.summary
    if summary is None or summary.smallest != summary.largest:
        return
    if summary.largest == 0 and isinstance(likelihood, Bernoulli | Poisson):
        event = "click" if isinstance(likelihood, Bernoulli) else "event"
        raise InputError(
            f"there was no {event} yet in {summary.n_rounds:,} rounds, so how far actions spread cannot be learned.",
            "Set the mean of the prior by hand, as in prior + ma.priors.independent(n_actions, mean=[-4.6, 0.0], "
            f"cov=0.0) for {'1 % clicks' if event == 'click' else 'one event in 100 rounds'} at a column of ones, and "
            "use ma.fit.",
            flag_remedy="Wait for some, or pass --no-learn-prior.",
        )
    raise InputError(
        f"all rewards are equal ({summary.largest:g}), so neither noise nor spread can be learned.", "Check the column."
    )


def _search(
    evidence: Evidence, hyper: Hyperparameters, avoid_boundary: bool, max_iterations: int, progress: Progress
) -> tuple[Vector, float, list[float], bool]:
    """Climb from the given start, after all scales were multiplied by the one number that suits the data best."""
    eta, value = evidence.approach(hyper, hyper.start(), avoid_boundary=avoid_boundary)
    trace = [value]
    if hyper.learn_noise and isinstance(evidence, ExactEvidence):
        # All learned scales times c. The best c has a closed form when no scale is fixed: c² = misfit / rounds.
        scales = hyper.log_scales()
        excess = float(evidence.log_evidence(hyper, eta)[1] @ scales)
        c = np.sqrt(max(1.0 + excess / evidence.total_weight, 1e-12))
        rescaled = np.clip(eta + np.log(c) * scales, *hyper.bounds())
        better = evidence.value(hyper, rescaled, avoid_boundary=avoid_boundary)
        eta = rescaled if better > value else eta
    eta = np.clip(eta, *hyper.bounds())
    with reporter(progress, max_iterations, "learning the prior") as report:

        def accepted(value: float) -> None:
            trace.append(value)
            report(len(trace) - 1, max_iterations)

        eta, iterations = _climb(evidence, hyper, eta, avoid_boundary, max_iterations, accepted)
    value = evidence.value(hyper, eta, avoid_boundary=avoid_boundary)
    if value > trace[-1]:
        # The search began where it ended: the way to its start counts as a step.
        trace.append(value)
    return eta, value, trace, iterations < max_iterations


def _climb(
    evidence: Evidence,
    hyper: Hyperparameters,
    eta: Vector,
    avoid_boundary: bool,
    max_iterations: int,
    accepted: Callable[[float], None],
) -> tuple[Vector, int]:
    """The maximum from η upwards, by Newton's steps where there are few numbers, else or if these fail by L-BFGS."""
    (low, high), reach = hyper.bounds(), np.where(hyper.log_scales() > 0, LONGEST, np.inf)
    steps = 0
    if hyper.size <= FEW:
        result = newton_search(
            lambda x: evidence.at(hyper, x, avoid_boundary=avoid_boundary),
            eta, (low, high), reach, evidence.negligible, max_iterations, accepted,
        )  # fmt: skip
        if result.finished or result.iterations >= max_iterations:
            return result.eta, result.iterations
        eta, steps = result.eta, result.iterations
    return _climb_lbfgs(evidence, hyper, eta, avoid_boundary, max_iterations, steps, accepted)


def _climb_lbfgs(
    evidence: Evidence,
    hyper: Hyperparameters,
    eta: Vector,
    avoid_boundary: bool,
    max_iterations: int,
    iterations: int,
    accepted: Callable[[float], None],
) -> tuple[Vector, int]:
    from scipy.optimize import minimize  # noqa: PLC0415  slow to import

    values = dict[bytes, float]()

    def negative(x: Vector) -> tuple[float, Vector]:
        try:
            value, slope = evidence.at(hyper, x, avoid_boundary=avoid_boundary)
        except NumericalError:
            # Too far out for the arithmetic: a steep wall sends the line search back.
            away = x - centre
            return worst + 1e6 * float(1.0 + away @ away), 2e6 * away
        values[x.tobytes()] = value
        return -value, -slope

    def after(x: Vector) -> None:
        if x.tobytes() in values:
            accepted(values[x.tobytes()])

    centre, worst = eta, np.inf
    options: dict[str, Any] = {"maxcor": 30, "gtol": 1e-7, "maxfun": 20 * max_iterations}
    # Without a wall: where the arithmetic fails at the start already, there is nothing to return to.
    before, value = -np.inf, evidence.at(hyper, eta, avoid_boundary=avoid_boundary)[0]
    (low, high), reach = hyper.bounds(), np.where(hyper.log_scales() > 0, LONGEST, np.inf)
    # Where a search stops, another begins without its memory of the curvature, until that gains nothing either. Each
    # stays in a box, as the first step of L-BFGS may be as long as its bounds allow.
    while value > before + evidence.negligible and iterations < max_iterations:
        centre, worst = eta, -value
        options |= {"maxiter": max_iterations - iterations, "ftol": 0.1 * evidence.negligible / max(1.0, abs(value))}
        box = list(zip(np.maximum(low, eta - reach), np.minimum(high, eta + reach), strict=True))
        # The small matrices of L-BFGS itself must not be split among threads either: their rounding would differ.
        with conditioning(hyper.build(eta)[0]):
            result = minimize(negative, eta, jac=True, method="L-BFGS-B", bounds=box, callback=after, options=options)
        if -float(result.fun) < value:
            break
        before, value = value, -float(result.fun)
        eta, iterations = np.asarray(result.x), iterations + int(result.nit)
    return eta, iterations


def _zero(
    evidence: Evidence, hyper: Hyperparameters, eta: Vector, value: float, max_iterations: int
) -> tuple[Hyperparameters, Array, list[str]]:
    """Set scales that could as well be zero to zero, one after the other, and search again for the rest."""
    zeroed = list[str]()
    while (reduced := _reduced(evidence, hyper, eta, value)) is not None:
        name, hyper, eta = reduced
        zeroed.append(name)
        if hyper.size:
            eta, _ = _climb(evidence, hyper, eta, False, max_iterations, lambda value: None)
        value = evidence.value(hyper, eta, avoid_boundary=False)
    return hyper, eta, zeroed


def _reduced(
    evidence: Evidence, hyper: Hyperparameters, eta: Vector, value: float
) -> tuple[str, Hyperparameters, Array] | None:
    """The name of a scale without which the evidence is no lower, and the problem without it; None if there is none."""
    scales = np.flatnonzero(hyper.log_scales())
    scales = scales[scales >= int(hyper.learn_noise)]
    for place in scales[np.argsort(eta[scales])].tolist():
        reduced, rest = hyper.without(place), np.delete(eta, place)
        if reduced is not None and evidence.value(reduced, rest, avoid_boundary=False) >= value - 1e-6:
            name = next(form.name for form, part in hyper.free_forms if part.start <= place < part.stop)
            return name, reduced, rest
    return None
