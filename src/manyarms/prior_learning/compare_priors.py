"""Comparison of several priors on the same logs: how likely each makes them, and how well each predicts."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int

from manyarms._base.checks import Array, as_count, as_flag, as_instance, check_overflow
from manyarms._base.progress import Progress, reporter
from manyarms._base.rng import as_generator
from manyarms.core import HierarchicalGaussian, LoggedData, Statistics, Tabular, any_shared
from manyarms.core.logged_data import check_logs
from manyarms.core.result_tables import shorten
from manyarms.errors import DataTypeError, InputError, ManyarmsError
from manyarms.likelihoods import Likelihood
from manyarms.posterior import RewardPosterior, fit
from manyarms.posterior.policy_profile import mean_variance
from manyarms.prior_learning.learn_prior import learn_prior, one_likelihood, relearn
from manyarms.prior_learning.learned_prior import LearnedPrior

Verdict = Literal["best", "undecided", "worse"]


@dataclass(frozen=True)
class PriorScore:
    """The scores of one prior.

    Attributes:
        name: The name, as given.
        log_evidence: log p(rewards) of all rounds; at its maximum where something was learned. None for the treatment
            "paper", which has none.
        evidence_difference: `log_evidence` less the best of all.
        held_out: The held-out log score: the mean log density of a reward, given the other folds.
        difference: `held_out` less the best of all, paired by round.
        error: The standard error of the difference; None if there is only one round or group.
        verdict: "best" by held-out score; "undecided" within two standard errors of the best; else "worse".
        n_learned: The number of quantities learned from the logs, in every fold anew.
        noise_std: σ, as given or as learned from all rounds; None if there is none.
    """

    name: str
    log_evidence: float | None
    evidence_difference: float | None
    held_out: float
    difference: float
    error: float | None
    verdict: Verdict
    n_learned: int
    noise_std: float | None


@dataclass(frozen=True, repr=False)
class PriorComparison(Tabular):
    """The result of `compare_priors`: a table, the best prior by held-out score first.

    Attributes:
        rows: One row per prior.
        n_rounds: The number of scored rounds, by their weights.
        n_folds: The folds of the cross-validation.
        notes: Cautions for reading the table.
    """

    rows: tuple[PriorScore, ...]
    n_rounds: float
    n_folds: int
    notes: tuple[str, ...] = ()

    @property
    def best(self) -> str:
        """The name of the prior that predicts held-out rounds best."""
        return self.rows[0].name

    @property
    def undecided(self) -> tuple[str, ...]:
        """The names of the priors that cannot be distinguished from the best."""
        return tuple(row.name for row in self.rows if row.verdict == "undecided")

    def records(self) -> list[dict[str, Any]]:
        """One plain record per prior."""
        return [dict(vars(row)) for row in self.rows]

    def __iter__(self) -> Iterator[PriorScore]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        wide = max(5, *(min(len(row.name), 22) for row in self.rows))
        lines = [
            f"{'prior':<{wide}}  {'learned':>7}  {'log evidence':>12}  {'minus best':>10}  {'held-out':>9}  "
            f"{'minus best ± s.e.':>19}  verdict"
        ]
        for row in self.rows:
            apart = "-" if row.verdict == "best" else f"{row.difference:.3g} ± {_number(row.error, '.2g')}"
            lines.append(
                f"{shorten(row.name, wide):<{wide}}  {row.n_learned:>7}  "
                f"{_number(row.log_evidence, '.6g'):>12}  {_number(row.evidence_difference, '.4g'):>10}  "
                f"{row.held_out:>9.5g}  {apart:>19}  {row.verdict}"
            )
        lines.append(f"held-out: mean log score per round, {self.n_folds} folds, {self.n_rounds:,.10g} rounds")
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


def compare_priors(
    logs: LoggedData,
    priors: Mapping[str, HierarchicalGaussian | LearnedPrior] | Sequence[HierarchicalGaussian | LearnedPrior],
    likelihood: Likelihood | None = None,
    *,
    learn: bool = False,
    n_folds: int = 5,
    rng: np.random.Generator | None = None,
    progress: Progress = False,
) -> PriorComparison:
    """Rank priors by how well they predict held-out rounds, with the log evidence of all rounds beside it.

    The held-out log score of a round is log p(r | other folds): log N(r; φᵀθ̂_a, φᵀCov θ_a φ + σ²) for Gaussian rewards.
    Two priors are compared on the same rounds, and the standard error is that of the paired difference (over groups,
    where the logs have them). Folds share most of their training rounds, which this error does not count: take it as a
    lower bound.

    The logs are read once; each fold and prior costs one fit from sums. Folds are drawn by round, or by group where the
    logs have groups, so that no user is in two folds. They test predictions for actions that have mostly been seen. To
    test predictions for new actions, pass logs whose `groups` are their actions.

    Learned numbers are learned anew in every fold, so the held-out score pays for them. The evidence does not, as it is
    at its maximum: with many learned numbers, trust the score.

    Args:
        logs: The logged rounds.
        priors: Priors by name; a plain list is numbered. A `LearnedPrior` brings its own noise. Unless it was learned
            from other rounds, it is learned anew in every fold; pass its `.prior` to hold it fixed.
        likelihood: The likelihood for the other priors; by default `Gaussian(1.0)`.
        learn: True learns all priors from the logs, as `learn_prior` does, and compares the learned ones.
        n_folds: The folds of the cross-validation, at least 2.
        rng: Draws the folds; by default they are the same at every call.
        progress: True shows a bar; a function is called as progress(done, total) after each fit.

    Raises:
        InputError: For a prior that does not fit the logs; the message names it.

    Examples:
        >>> import numpy as np
        >>> import manyarms as ma
        >>> from manyarms.prior_learning.compare_priors import compare_priors
        >>> rng = np.random.default_rng(0)
        >>> category = np.repeat(np.arange(5), 20)
        >>> theta = rng.normal(size=5)[category] + 0.1 * rng.normal(size=100)
        >>> actions = rng.integers(100, size=400)
        >>> logs = ma.LoggedData(np.ones((400, 1)), actions, theta[actions] + rng.normal(size=400), n_actions=100)
        >>> alike = ma.priors.from_categories(category, dim=1, action_std=0.1)
        >>> compare_priors(logs, {"by category": alike, "independent": ma.priors.independent(100, dim=1)}).best
        'by category'
    """
    logs = as_instance("logs", logs, LoggedData, "a LoggedData; collect() a stream first")
    likelihood = one_likelihood(likelihood)
    named = _named(priors)
    for name, prior in named.items():
        with _errors_name(name):
            check_logs(logs, prior.prior if isinstance(prior, LearnedPrior) else prior)
    if logs.weights is not None and not logs.weights.all():
        logs = logs.take(np.flatnonzero(logs.weights))
    folds = _folds(logs, as_count("n_folds", n_folds, minimum=2), rng)
    rounds = _Rounds(logs, folds)
    scores = np.empty((len(named), len(logs)))
    total = len(named) * (len(folds) + 1)
    done = count(1)
    with reporter(progress, total, "comparing priors") as report:

        def tick() -> None:
            report(next(done), total)

        candidates = [
            _candidate(rounds, name, p, likelihood, as_flag("learn", learn), tick) for name, p in named.items()
        ]
        for fold, rows in enumerate(folds):
            held_out = logs.take(rows)
            for i, candidate in enumerate(candidates):
                with _errors_name(candidate.name):
                    others = rounds.without(fold, candidate.prior, candidate.likelihood)
                    fitted = candidate.fit(others)
                    with np.errstate(over="ignore", invalid="ignore"):
                        predicted = fitted.predictor.pairs(held_out.contexts, held_out.actions)
                        score = fitted.likelihood.log_predictive(held_out.rewards, *predicted)
                    scores[i, rows] = check_overflow("the log scores", score)
                tick()
    return _compared(logs, candidates, scores, len(folds))


def _named(priors: Any) -> dict[str, HierarchicalGaussian | LearnedPrior]:
    if not isinstance(priors, Mapping | Sequence):
        raise DataTypeError(
            f"must be a list, or a mapping from names to priors; got {type(priors).__name__}.", argument="priors"
        )
    if not isinstance(priors, Mapping):
        plain = [prior.prior if isinstance(prior, LearnedPrior) else prior for prior in priors]
        groups = [prior.effects if isinstance(prior, HierarchicalGaussian) else () for prior in plain]
        names = [" + ".join(group.name for group in effects) or "independent" for effects in groups]
        priors = {f"{i}: {names[i]}": prior for i, prior in enumerate(priors)}
    if not priors:
        raise InputError("must hold at least one prior.", argument="priors")
    for name, prior in priors.items():
        if not isinstance(name, str):
            raise DataTypeError(f"must have strings as names; got {name!r}.", argument="priors")
        if isinstance(prior, HierarchicalGaussian) and prior.observed.groups:
            raise InputError(f"prior {name!r} is a posterior: it may have seen the very rounds that it would predict.")
        if not isinstance(prior, HierarchicalGaussian | LearnedPrior):
            raise DataTypeError(
                f"prior {name!r} must be a HierarchicalGaussian or a LearnedPrior; got {type(prior).__name__}."
            )
    return dict(priors)


@contextmanager
def _errors_name(name: str) -> Generator[None]:
    """Add the name of the prior to errors raised inside."""
    try:
        yield
    except ManyarmsError as cause:
        problem = f"{cause.argument} {cause.problem}" if cause.argument else cause.problem
        fields = {"flag_remedy": cause.flag_remedy}
        raise type(cause)(f"prior {name!r}: {problem}", cause.remedy, **fields) from cause


def _folds(logs: LoggedData, n_folds: int, rng: np.random.Generator | None) -> list[Int[Array, " m"]]:
    """The rows of each fold: an equal number of rounds, or of groups, in each."""
    # A fixed shuffle rather than every k-th row: logs often repeat with a period, such as the positions on a page.
    rng = np.random.default_rng(0) if rng is None else as_generator(rng)
    keys = np.arange(len(logs)) if logs.groups is None else np.unique(logs.groups, return_inverse=True)[1]
    n_units = int(keys.max(initial=-1)) + 1
    if n_units < n_folds:
        units = "rounds" if logs.groups is None else "groups of rounds"
        raise InputError(
            f"must be at most the number of {units} of positive weight; got {n_folds}, and the logs have {n_units}.",
            argument="n_folds",
        )
    fold = (rng.permutation(n_units) % n_folds)[keys]
    return [np.flatnonzero(fold == i) for i in range(n_folds)]


@dataclass(frozen=True)
class _Candidate:
    """A prior to be compared; `learned` is set where it is learned anew in every fold."""

    name: str
    prior: HierarchicalGaussian
    likelihood: Likelihood
    learned: LearnedPrior | None
    log_evidence: float | None

    @property
    def n_learned(self) -> int:
        """The number of learned quantities, including means that are integrated out."""
        if self.learned is None:
            return 0
        hyper = self.learned.hyper
        return hyper.size + (len(hyper.means) * self.prior.dim if hyper.integrated else 0)

    def fit(self, rounds: LoggedData | Statistics) -> RewardPosterior:
        """The posterior from some of the rounds, after learning from them."""
        return fit(rounds, self.prior, self.likelihood) if self.learned is None else relearn(self.learned, rounds)


class _Rounds:
    """The rounds by fold: as sums, collected once, for exact likelihoods; else the rounds themselves."""

    def __init__(self, logs: LoggedData, folds: list[Int[Array, " m"]]):
        self.logs, self._folds = logs, folds
        self._sums = dict[str, list[Statistics]]()

    def without(self, fold: int | None, prior: HierarchicalGaussian, likelihood: Likelihood) -> LoggedData | Statistics:
        """All rounds except those of a fold; None for all rounds."""
        kept = [i for i in range(len(self._folds)) if i != fold]
        if likelihood.treatment != "exact":
            return self.logs.take(np.sort(np.concatenate([self._folds[i] for i in kept])))
        # Statistics hold responses, not noise: one kind of likelihood, one set of sums.
        kind = type(likelihood).__name__
        if kind not in self._sums:
            parts = [self.logs.take(rows) for rows in self._folds]
            self._sums[kind] = [likelihood.statistics(part, self.logs.n_actions) for part in parts]
        none = Statistics.empty(self.logs.n_actions, self.logs.dim)
        return sum((self._sums[kind][i] for i in kept), none).with_actions(prior.n_actions)


def _candidate(
    rounds: _Rounds,
    name: str,
    prior: HierarchicalGaussian | LearnedPrior,
    likelihood: Likelihood,
    learn: bool,
    tick: Callable[[], None],
) -> _Candidate:
    with _errors_name(name):
        learned = None
        if isinstance(prior, LearnedPrior):
            source, likelihood = prior.posterior.learned_from, prior.likelihood
            # Rounds that came as bare sums cannot be traced: they may be these.
            elsewhere = bool(source) and not any_shared(source, (rounds.logs.fingerprint,))
            learned, prior = None if elsewhere and not learn else prior, prior.prior
        every = rounds.without(None, prior, likelihood)
        if learn and learned is None:
            learned = learn_prior(every, prior, likelihood)
            fitted = learned.posterior
        else:
            fitted = fit(every, prior, likelihood) if learned is None else relearn(learned, every)
    tick()
    logs, fitted_likelihood = rounds.logs, fitted.likelihood
    # Sums of transformed rewards do not include the Jacobian of the transform.
    offset = 0.0 if fitted.evidence_offset else fitted_likelihood.log_jacobian(logs.rewards, logs.weights)
    # The evidence of pseudo-rewards says nothing about the rewards.
    evidence = None if fitted_likelihood.treatment == "paper" else fitted.log_evidence + offset
    return _Candidate(name, fitted.prior, fitted_likelihood, learned, evidence)


def _compared(
    logs: LoggedData, candidates: list[_Candidate], scores: Float[Array, "p n"], n_folds: int
) -> PriorComparison:
    counts = np.ones(len(logs)) if logs.weights is None else logs.weights
    held_out = np.average(scores, axis=1, weights=counts)
    best = int(np.argmax(held_out))
    highest = max((c.log_evidence for c in candidates if c.log_evidence is not None), default=0.0)
    rows = list[PriorScore]()
    for i in np.argsort(-held_out, kind="stable"):
        candidate, paired = candidates[i], scores[i] - scores[best]
        difference = float(np.average(paired, weights=counts))
        variance = mean_variance(paired, counts, logs.groups)
        error = None if variance is None else float(np.sqrt(variance))
        apart = error is not None and -difference > 2 * error
        rows.append(
            PriorScore(
                candidate.name,
                candidate.log_evidence,
                None if candidate.log_evidence is None else candidate.log_evidence - highest,
                float(held_out[i]),
                difference,
                error,
                "best" if i == best else "worse" if apart else "undecided",
                candidate.n_learned,
                candidate.likelihood.dispersion,
            )
        )
    notes = [_MAXIMISED] if any(row.n_learned for row in rows) else []
    notes += [_NO_EVIDENCE] if any(row.log_evidence is None for row in rows) else []
    return PriorComparison(tuple(rows), float(counts.sum()), n_folds, tuple(notes))


def _number(number: float | None, form: str) -> str:
    return "?" if number is None else f"{number:{form}}"


_MAXIMISED = "log evidence: priors learned from all rounds; held-out score: priors learned in every fold"
_NO_EVIDENCE = 'treatment "paper" has no evidence, so its priors are compared by held-out score alone'
