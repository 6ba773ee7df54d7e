"""Empirical Bayes: the prior that makes the logs most likely."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from manyarms._base.checks import Array, as_count, as_instance
from manyarms._base.progress import Progress, reporter
from manyarms.core.hierarchical_gaussian import HierarchicalGaussian
from manyarms.core.logged_data import LoggedData, Logs
from manyarms.core.statistics import Statistics
from manyarms.engines import Engine, as_engine
from manyarms.errors import DataTypeError, InputError, NumericalError
from manyarms.inference.condition import check_sizes
from manyarms.likelihoods import Bernoulli, Gaussian, Hurdle, Likelihood, Poisson
from manyarms.logs.log_stream import LogStream
from manyarms.posterior import RewardPosterior
from manyarms.posterior.reward_posterior import as_logs
from manyarms.posterior.seen_files import in_memory_if_small, remember_files
from manyarms.prior_learning.evidence import NOTHING, Evidence, ExactEvidence, evidence_of
from manyarms.prior_learning.hyperparameters import Choice, Hyperparameters, Means
from manyarms.prior_learning.learned_prior import LearnedPrior

MAX_ITERATIONS = 500
FEW = 20
SURE = 1.1
"""How much wider an honest interval is when a warning comes: 95 % intervals then hold the truth 92.5 % of the time."""
"""Fewer numbers than this (actions or effects, times d) hardly say how far they spread."""
LONGEST = 2.0
"""How far a logarithm may move before the search takes a new look."""
UNEVEN = 30.0
"""Columns whose sizes differ by more than this are noted."""


@dataclass(frozen=True)
class _Found:
    """Where the search has come to."""

    hyper: Hyperparameters
    eta: Float[Array, " s"]
    value: float


def learn_prior(
    logs: Logs | Statistics,
    prior: HierarchicalGaussian,
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
) -> LearnedPrior:
    """Noise, spreads and means of a prior by type-II maximum likelihood: those under which the logs are most likely.

    The log evidence and its exact gradient (posterior moments of seen actions, `inference.evidence_gradient`) come from
    Statistics alone, so after one pass over the logs a step costs a solve, whatever the number of rounds. L-BFGS on log
    standard deviations; an accepted step never lowers the objective.

    Where neither rewards nor their logarithms are Gaussian, a step runs the loop of `fit` to its end: on a `LogStream`
    about a hundred passes in all, up to three hundred, and as many again for standard errors, when they are asked for.
    A stream of at most half a gigabyte is read once and held; of a longer one, learn from a sample and `fit` on all.

    Where rounds count less with age, the prior is learned from the same rounds at full weight, and the posterior is
    that of the rounds as they count. It remembers the files of a stream, so that none is counted twice.

    With `avoid_boundary` every standard deviation has a very wide half-normal prior and its mode is taken on the log
    scale, which keeps it off zero (Chung et al., 2013). Without, a spread that the data put at zero is reported by
    `boundary=True` and set to exactly zero.

    Args:
        logs: Logged rounds, in memory or a `LogStream`; for Gaussian rewards also their `Statistics`.
        prior: Its structure is kept; its scales and means are where learning starts. A spread of exactly 0 stays 0.
        likelihood: Its noise is where learning starts; by default `Gaussian(1.0)`.
        effect_cov: What is learned of the covariance of effects: one "scale" a group, a "diagonal" or "full" matrix
            that the effects of a group share, or nothing ("fixed"); or a mapping from the name of a group to one of
            these.
        action_cov: The same for Σ_a.
        means: Of the effects of a group, or of all actions, where they can be told apart: "integrated" out under a flat
            prior while spreads are learned (restricted likelihood, less biased when effects are few) and then set to
            what the data expect; "maximised" with the rest (plain type-II maximum likelihood); or "fixed".
        learn_noise: Also the noise.
        avoid_boundary: Keep standard deviations off zero by a weak prior.
        max_iterations: Of the search.
        progress: True shows how far it is; a function is called as progress(iteration, max_iterations).
        engine: Where a `LogStream` is gone through, as in `fit`.

    Returns:
        A `LearnedPrior`: prior, likelihood and posterior, what was learned with its standard errors, and notes.
    """
    prior = as_instance("prior", prior, HierarchicalGaussian, "a HierarchicalGaussian")
    if prior.observed.groups:
        raise InputError("a posterior cannot be learned as a prior: pass the prior that it came from, and all logs.")
    likelihood = one_likelihood(likelihood)
    if isinstance(logs, Statistics):
        check_sizes(prior, logs)
    else:
        as_logs(logs, prior)
    # A round of weight 1/3 is not noisier than others but would pass for it, so that actions would seem to differ by
    # noise alone: where rounds count less with age, spreads are learned from the same rounds at full weight.
    full_weight = logs.ageless() if isinstance(logs, LogStream) else logs
    evidence = _evidence(full_weight, likelihood, prior.n_actions, engine)
    _check_rewards(evidence, likelihood)
    if not evidence.total_weight > 0:
        raise InputError("no rounds to learn a prior from; use fit(), which gives the prior back.")
    if not evidence.scale.reward > 0:
        raise InputError("all rewards, or all contexts, are 0: they say nothing of a prior.")
    hyper = Hyperparameters(
        prior, likelihood.dispersion, evidence.seen, evidence.scale,
        effect_cov=effect_cov, action_cov=action_cov, means=means, learn_noise=learn_noise,
    )  # fmt: skip
    max_iterations = as_count("max_iterations", max_iterations)
    if hyper.size == 0:
        raise InputError("nothing is left to learn: every part of the prior and the noise is fixed.")
    found, trace, converged = _search(evidence, hyper, avoid_boundary, max_iterations, progress)
    zeroed = list[str]()
    if not avoid_boundary:
        found, zeroed = _zero(evidence, found, max_iterations)
    learned = _result(evidence, found, avoid_boundary, zeroed, trace, converged)
    if full_weight is not logs:
        learned = _with_weights_of(learned, _evidence(logs, likelihood, prior.n_actions, engine))
    return (
        learned if isinstance(logs, Statistics) else replace(learned, posterior=remember_files(learned.posterior, logs))
    )


def _evidence(logs: Logs | Statistics, likelihood: Likelihood, n_actions: int, engine: Engine | str | None) -> Evidence:
    rounds = logs if isinstance(logs, Statistics) else in_memory_if_small(logs, likelihood, engine)
    return evidence_of(rounds, likelihood, n_actions, as_engine(engine))


def _with_weights_of(learned: LearnedPrior, aged: Evidence) -> LearnedPrior:
    """The prior as it was learned, and the posterior under it of rounds that count less with age."""
    posterior = aged.fit(learned.prior, learned.likelihood.dispersion)
    warnings = dict.fromkeys((*posterior.fit_warnings, *learned.posterior.fit_warnings))
    return replace(learned, posterior=replace(posterior, fit_warnings=tuple(warnings)), aged=aged)


def relearn(learned: LearnedPrior, logs: LoggedData | Statistics) -> RewardPosterior:
    """The posterior from other rounds after the same numbers were learned from them, starting from those found."""
    evidence = evidence_of(logs, learned.likelihood, learned.prior.n_actions)
    hyper, eta = learned.hyper, learned.eta
    if hyper.size:
        eta, _ = _climb(evidence, hyper, eta, learned.avoid_boundary, MAX_ITERATIONS, lambda value: None)
    _, flexible = evidence.posterior(hyper, eta, avoid_boundary=False)
    return evidence.fit(hyper.plugged(eta, flexible), hyper.build(eta)[1])


def _result(
    evidence: Evidence, found: _Found, avoid_boundary: bool, zeroed: list[str], trace: list[float], converged: bool
) -> LearnedPrior:
    hyper, eta = found.hyper, found.eta
    _, flexible = evidence.posterior(hyper, eta, avoid_boundary=False)
    _, noise_std = hyper.build(eta)
    few = _few(hyper, evidence)
    posterior = evidence.fit(hyper.plugged(eta, flexible), noise_std)
    sure = _too_sure(hyper, evidence, posterior.weights, flexible)
    if hyper.learn_noise and noise_std is not None and noise_std < 1e-5 * evidence.scale.reward:
        zeroed.append("noise")
    if not avoid_boundary:
        spreads = zip(hyper.spreads, hyper.spread_parts, strict=True)
        zeroed += [spread.name for spread, part in spreads if spread is not None and spread.is_degenerate(eta[part])]
    zeroed = list(dict.fromkeys(zeroed))
    few = [*few, *_fractional(evidence)]
    notes = [*hyper.notes, *_uneven(evidence), *few, *sure]
    notes += [f"{name}: the data put a standard deviation at zero" for name in zeroed]
    if not converged:
        notes.append(f"the search had not converged after {len(trace)} iterations; raise max_iterations")
    return LearnedPrior(
        replace(posterior, fit_warnings=(*posterior.fit_warnings, *few, *sure)), flexible, evidence, hyper, eta,
        avoid_boundary, tuple(zeroed), converged, tuple(trace), tuple(notes), sure,
    )  # fmt: skip


def _fractional(evidence: Evidence) -> list[str]:
    """Weights below one make a round look noisier than it is, and what actions differ by look like noise."""
    seen = evidence.surveyed
    if seen is None or evidence.total_weight >= 0.9 * seen.n_rounds:
        return []
    return [
        "spreads were learned from rounds whose weights are no counts: they come out too small where weights are below "
        "one. Learn the prior without weights, then fit with them"
    ]


def one_likelihood(likelihood: Any) -> Likelihood:
    """What was passed as a likelihood, `Gaussian(1.0)` for None; a hurdle is two."""
    if isinstance(likelihood, Hurdle):
        raise DataTypeError(
            "a Hurdle is two likelihoods, each with a prior of its own: learn or compare them apart. Whether there is "
            "a reward: ma.Bernoulli() on logs.with_rewards((logs.rewards != 0).astype(float)). How much: "
            "ma.LogNormal() on logs.take(np.flatnonzero(logs.rewards)). Then pass both to "
            "ma.fit(logs, (first.prior, second.prior), ma.Hurdle(first.likelihood, second.likelihood))."
        )
    likelihood = Gaussian() if likelihood is None else likelihood
    return as_instance("likelihood", likelihood, Likelihood, "a likelihood, as in ma.Gaussian(1.0)")


def _check_rewards(evidence: Evidence, likelihood: Likelihood) -> None:
    """Refuse rewards that are all the same."""
    seen = evidence.surveyed
    if seen is None or seen.smallest != seen.largest:
        return
    if seen.largest == 0 and isinstance(likelihood, Bernoulli | Poisson):
        event = "click" if isinstance(likelihood, Bernoulli) else "event"
        raise InputError(
            f"there was no {event} yet in {seen.n_rounds:,} rounds: how far actions spread cannot be learned. Set the "
            "mean of the prior by hand, as in prior + ma.priors.independent(n_actions, mean=[-4.6, 0.0], cov=0.0) for "
            f"{'1 % clicks' if event == 'click' else 'one event in 100 rounds'} at a column of ones, and use ma.fit."
        )
    raise InputError(
        f"all rewards are equal ({seen.largest:g}): they say nothing of noise or spread. Check the column."
    )


def _search(
    evidence: Evidence, hyper: Hyperparameters, avoid_boundary: bool, max_iterations: int, progress: Progress
) -> tuple[_Found, list[float], bool]:
    """L-BFGS from the start given, after all scales were multiplied by the one number that suits the data best."""
    eta = hyper.start()
    value, _ = evidence.posterior(hyper, eta, avoid_boundary=avoid_boundary)
    trace = [value]
    if hyper.learn_noise and isinstance(evidence, ExactEvidence):
        rescaled = _within(_rescaled(evidence, hyper, eta), hyper.bounds())
        better, _ = evidence.posterior(hyper, rescaled, avoid_boundary=avoid_boundary)
        eta = rescaled if better > value else eta
    eta = _within(eta, hyper.bounds())
    with reporter(progress, max_iterations, "learning the prior") as report:

        def accepted(value: float) -> None:
            trace.append(value)
            report(len(trace) - 1, max_iterations)

        eta, iterations = _climb(evidence, hyper, eta, avoid_boundary, max_iterations, accepted)
    value, _ = evidence.posterior(hyper, eta, avoid_boundary=avoid_boundary)
    return _Found(hyper, eta, value), trace, iterations < max_iterations


def _climb(
    evidence: Evidence,
    hyper: Hyperparameters,
    eta: Float[Array, " s"],
    avoid_boundary: bool,
    max_iterations: int,
    accepted: Callable[[float], None],
) -> tuple[Float[Array, " s"], int]:
    from scipy.optimize import minimize  # noqa: PLC0415  slow to import

    values = dict[bytes, float]()

    def negative(x: Float[Array, " s"]) -> tuple[float, Float[Array, " s"]]:
        try:
            value, slope = evidence.at(hyper, x, avoid_boundary=avoid_boundary)
        except NumericalError:
            # Too far out for the arithmetic: a steep wall sends the line search back.
            away = x - centre
            return worst + 1e6 * float(1.0 + away @ away), 2e6 * away
        values[x.tobytes()] = value
        return -value, -slope

    def after(x: Float[Array, " s"]) -> None:
        if x.tobytes() in values:
            accepted(values[x.tobytes()])

    centre, worst = eta, np.inf
    options: dict[str, Any] = {"maxcor": 30, "gtol": 1e-7, "maxfun": 20 * max_iterations}
    before, value, iterations = -np.inf, -negative(eta)[0], 0
    # A search is begun anew where it stops, without its memory of the curvature, until that finds nothing either. Each
    # stays in a box, as the first step of L-BFGS may be as long as its bounds allow.
    while value > before + evidence.negligible and iterations < max_iterations:
        centre, worst = eta, -value
        options |= {"maxiter": max_iterations - iterations, "ftol": 0.1 * evidence.negligible / max(1.0, abs(value))}
        result = minimize(
            negative, eta, jac=True, method="L-BFGS-B", bounds=_box(hyper, eta), callback=after, options=options
        )
        if -float(result.fun) < value:
            break
        before, value = value, -float(result.fun)
        eta, iterations = np.asarray(result.x), iterations + int(result.nit)
    return eta, iterations


def _box(hyper: Hyperparameters, eta: Float[Array, " s"]) -> list[tuple[float | None, float | None]]:
    """The bounds of η, and for logarithms no further than LONGEST from here."""
    near: list[tuple[float | None, float | None]] = []
    for (low, high), x, is_log in zip(hyper.bounds(), eta, hyper.log_scales(), strict=True):
        if is_log and low is not None and high is not None:
            near.append((max(low, x - LONGEST), min(high, x + LONGEST)))
        else:
            near.append((low, high))
    return near


def _rescaled(evidence: Evidence, hyper: Hyperparameters, eta: Float[Array, " s"]) -> Float[Array, " s"]:
    """All learned scales times c, the best such c in closed form when no scale is fixed: c² = misfit / rounds."""
    _, slope = evidence.at(hyper, eta, avoid_boundary=False)
    excess = float(slope @ hyper.log_scales())
    c = np.sqrt(max(1.0 + excess / evidence.total_weight, 1e-12))
    return eta + np.log(c) * hyper.log_scales()


def _zero(evidence: Evidence, found: _Found, max_iterations: int) -> tuple[_Found, list[str]]:
    """Scales that could as well be zero are set to zero, one after the other; the rest is found again."""
    zeroed = list[str]()
    while True:
        place = _removable(evidence, found)
        if place is None:
            return found, zeroed
        reduced = found.hyper.without(place)
        assert reduced is not None
        hyper, kept = reduced
        name = next(
            s.name for s, part in zip(found.hyper.spreads, found.hyper.spread_parts, strict=True)
            if s is not None and part.start <= place < part.stop
        )  # fmt: skip
        zeroed.append(name)
        found = _polished(evidence, hyper, found.eta[kept], max_iterations)


def _polished(evidence: Evidence, hyper: Hyperparameters, eta: Float[Array, " s"], max_iterations: int) -> _Found:
    if hyper.size:
        eta, _ = _climb(evidence, hyper, eta, False, max_iterations, lambda value: None)
    value, _ = evidence.posterior(hyper, eta, avoid_boundary=False)
    return _Found(hyper, eta, value)


def _removable(evidence: Evidence, found: _Found) -> int | None:
    """The place in η of a standard deviation that might as well be zero: the evidence is no lower without it."""
    noise = int(found.hyper.learn_noise)
    candidates = np.flatnonzero(found.hyper.log_scales())
    for place in candidates[candidates >= noise][np.argsort(found.eta[candidates[candidates >= noise]])]:
        reduced = found.hyper.without(int(place))
        if reduced is None:
            continue
        hyper, kept = reduced
        value, _ = evidence.posterior(hyper, found.eta[kept], avoid_boundary=False)
        if value >= found.value - 1e-6:
            return int(place)
    return None


def _within(eta: Float[Array, " s"], bounds: list[tuple[float | None, float | None]]) -> Float[Array, " s"]:
    low = np.array([-np.inf if b[0] is None else b[0] for b in bounds])
    high = np.array([np.inf if b[1] is None else b[1] for b in bounds])
    return np.clip(eta, low, high)


def _few(hyper: Hyperparameters, evidence: Evidence) -> tuple[str, ...]:
    """What the data hardly determine."""
    # Columns of the contexts add nothing to what so few actions say: one may repeat another.
    seen, notes = len(evidence.seen), list[str]()
    if hyper.spreads[0] is not None and seen < FEW:
        notes.append(f"only {seen} actions were seen: how far actions spread is hardly known; use averaged()")
    for group, spread in zip(hyper.groups, hyper.spreads[1:], strict=True):
        # What all actions share is told by every round, so that little hangs on how far it might have spread.
        if spread is not None and group.name != "shared" and group.count * group.part_dim < FEW:
            effects = (
                "1 effect hardly says how far it spreads"
                if group.count == 1
                else (f"{group.count} effects hardly say how far they spread")
            )
            notes.append(f"{group.name}: {effects}; use averaged()")
    if hyper.learn_noise and evidence.residual_degrees < 1:
        notes.append("no action has more rounds than weights: noise can hardly be told from how far actions spread")
    return tuple(notes)


def _too_sure(
    hyper: Hyperparameters, evidence: Evidence, plugged: HierarchicalGaussian, flexible: HierarchicalGaussian
) -> tuple[str, ...]:
    """Whether intervals of a value miss what is not known of a learned mean.

    The value of choosing seen actions evenly, in a context of ordinary size, leans on the mean as much as any: its
    standard deviation with the mean set to what was found, beside the one with the mean integrated out. Means that
    were maximised have no such posterior, and nothing is said of them.
    """
    if not (hyper.integrated and hyper.means):
        return ()
    size = evidence.feature_sizes / np.linalg.norm(evidence.feature_sizes)
    even = np.tile(size / len(evidence.seen), (len(evidence.seen), 1))
    without, whole = (np.sqrt(weights.variance_of(even, evidence.seen)) for weights in (plugged, flexible))
    if not whole > SURE * without:
        return ()
    names = " and ".join(mean.name for mean in hyper.means)
    return (
        f"the learned mean of {names} is taken for certain, and actions are so alike that all lean on it: the interval "
        f"of a value may be {100 * (1 - without / whole):.0f}% too narrow, that of a gain is hardly touched; build the "
        "prior with shared_std=1.0, or use averaged()",
    )


def _uneven(evidence: Evidence) -> list[str]:
    """One spread for all coordinates of θ means little when features have very different sizes."""
    sizes = evidence.feature_sizes
    used = np.flatnonzero(sizes > NOTHING * sizes.max(initial=0.0))
    if len(used) < 2 or sizes[used].max() < UNEVEN * sizes[used].min():
        return []
    large, small = used[np.argmax(sizes[used])], used[np.argmin(sizes[used])]
    return [
        f"context column {large} is {sizes[large] / sizes[small]:.0f} times as large as column {small}, and their "
        'weights share one spread: rescale the columns, or learn effect_cov="diagonal" and action_cov="diagonal"'
    ]
