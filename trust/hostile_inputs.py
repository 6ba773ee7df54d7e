"""Hostile inputs to Python: a typed error or a correct, finite answer at every public entry point.

A case picks an entry point by its number, replaces one or two of its arguments by hostile values and calls it. What
comes back is used as well: a policy gives probabilities, a posterior a value, an estimator an estimate. Warnings of
NumPy are errors. Arguments must be unchanged afterwards.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import shutil
import signal
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import GeneratorType
from typing import Any

import numpy as np
from scipy import sparse

import manyarms as ma
from manyarms.engines import Engine
from manyarms.errors import ManyarmsError
from trust.check import Check, Outcome, Row
from trust.hostile_call import Arguments, HostileCall
from trust.hostile_calls import every_call
from trust.hostile_names import uncovered_names
from trust.hostile_values import CORRUPTIONS, Corruption, Expectation, NoSets
from trust.hostile_world import HostileWorld, hostile_world

SEED = 16_102
SECONDS_PER_CASE = 20
"""A case that takes more of a processor's time counts as a hang."""
WAITING = 15
"""How many times that a case may last, so that a busy machine does not make it look like a hang."""


@dataclass(frozen=True)
class Response:
    """What a call did.

    Args:
        kind: `answer`, `refused` for a typed error, or `defect`.
        text: The class and message of an error, or what is wrong with the answer.
        numbers: The numbers of an answer.
    """

    kind: str
    text: str
    numbers: np.ndarray


@cache
def calls() -> tuple[HostileCall, ...]:
    """All entry points."""
    return every_call()


def measure_case(case: int) -> Row:
    """Run a hostile case; `defect` is empty when the library behaved."""
    world, rng = hostile_world(), np.random.default_rng([SEED, case])
    number = case % len(calls())
    call = calls()[number]
    # Written before the call: what a call leaves behind is removed.
    _ = world.log_file, world.sharded
    arguments = call.arguments(world)
    chosen = _chosen_corruptions(call, arguments, rng)
    hostile = dict(arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for argument, corruption in chosen.items():
            hostile[argument] = _corrupted(corruption, arguments[argument], rng)
    response, changed = _respond(world, call, hostile)
    expectation = _joint_expectation([_expectation(corruption, hostile[name]) for name, corruption in chosen.items()])
    defect = changed or _defect(response, expectation, number)
    what = ", ".join(f"{argument}: {corruption.name}" for argument, corruption in chosen.items())
    return {"call": call.name, "what": what, "expected": expectation, "response": response.kind, "defect": defect}


def _chosen_corruptions(call: HostileCall, arguments: Arguments, rng: np.random.Generator) -> dict[str, Corruption]:
    names = list(arguments)
    if not names:
        return {}
    count = 2 if len(names) > 1 and rng.random() < 0.15 else 1
    chosen = dict[str, Corruption]()
    for name in rng.choice(names, size=count, replace=False).tolist():
        corruptions = CORRUPTIONS[call.kind_of(name, arguments[name])]
        chosen[name] = corruptions[int(rng.integers(len(corruptions)))]
    return chosen


def _expectation(corruption: Corruption, value: Any) -> Expectation:
    """What must follow a corruption; a function that no row asked for cannot be refused."""
    return "either" if isinstance(value, NoSets) and value.n_calls == 0 else corruption.expectation


def _joint_expectation(expectations: Sequence[Expectation]) -> Expectation:
    """What must follow when several arguments are corrupted at once."""
    if "refused" in expectations:
        return "refused"
    return "either" if "either" in expectations else "same"


def _corrupted(corruption: Corruption, value: Any, rng: np.random.Generator) -> Any:
    try:
        return corruption.change(value, rng)
    except (TypeError, ValueError, OverflowError, IndexError, AttributeError):
        # The corruption does not apply to this value, such as the transpose of a list.
        return object() if corruption.expectation == "refused" else value


def _respond(world: HostileWorld, call: HostileCall, arguments: Arguments) -> tuple[Response, str]:
    """What a call does, and a complaint if it changed its arguments or files."""
    before, files = _fingerprints(arguments), _files(world.folder)
    response = _call_in_time(world, call, arguments)
    changed = [name for name, mark in _fingerprints(arguments).items() if before[name] != mark]
    complaint = f"changed its argument {changed[0]}" if changed else ""
    after = _files(world.folder)
    lost = [name for name, mark in files.items() if after.get(name) != mark]
    if lost:
        complaint = f"changed or removed the file {lost[0]}"
    for name in after.keys() - files.keys():
        (world.folder / name).unlink(missing_ok=True)
    for folder in ("fresh", "store"):
        shutil.rmtree(world.folder / folder, ignore_errors=True)
    return response, complaint


def _call_in_time(world: HostileWorld, call: HostileCall, arguments: Arguments) -> Response:
    empty = np.zeros(0)
    try:
        with warnings.catch_warnings(), _time_limit(SECONDS_PER_CASE), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("error")
            answer = call.function(world)(**arguments)
            numbers = np.array(list(_numbers(_used(answer, world))), dtype=float)
    except ManyarmsError as error:
        text = f"{type(error).__name__}: {error}"
        complete = bool(error.problem) and "\n" not in str(error)[:2000]
        return Response("refused" if complete else "defect", text, empty)
    except _TooSlow:
        return Response("defect", f"took more than {SECONDS_PER_CASE} seconds", empty)
    except Exception as error:
        if _is_sklearn(call) and isinstance(error, ValueError | TypeError | RuntimeWarning):
            return Response("refused", str(error), empty)
        return Response("defect", f"{type(error).__name__}: {error}"[:300], empty)
    if not np.isfinite(numbers).all():
        return Response("defect", "an answer with NaN or infinity", empty)
    return Response("answer", "", numbers)


def _is_sklearn(call: HostileCall) -> bool:
    """True for the bridge to scikit-learn, which checks X and y itself: its errors and its tolerance are allowed."""
    return call.name.startswith("sklearn.")


def _defect(response: Response, expectation: Expectation, number: int) -> str:
    """What is wrong with a response; empty when nothing is."""
    if response.kind == "defect":
        return response.text
    if expectation == "refused" and response.kind == "answer" and not _is_sklearn(calls()[number]):
        return "accepted"
    if expectation == "same":
        clean = _clean_response(number)
        if response.kind != clean.kind:
            return f"was {response.kind} and should be {clean.kind}: {response.text}"
        if response.kind == "answer" and not _agree(response.numbers, clean.numbers):
            return "another answer for the same values in another form"
    return ""


def _agree(left: np.ndarray, right: np.ndarray) -> bool:
    return left.shape == right.shape and bool(np.allclose(left, right, rtol=1e-6, atol=1e-9))


@cache
def _clean_response(number: int) -> Response:
    """The response to the valid call of an entry point."""
    world, call = hostile_world(), calls()[number]
    return _respond(world, call, call.arguments(world))[0]


class _TooSlow(Exception):
    """A case took too long."""


@contextlib.contextmanager
def _time_limit(seconds: int) -> Generator[None]:
    def stop(*_: object) -> None:
        raise _TooSlow

    limits = {
        signal.SIGPROF: (signal.ITIMER_PROF, seconds),
        signal.SIGALRM: (signal.ITIMER_REAL, WAITING * seconds),
    }
    previous = {number: signal.signal(number, stop) for number in limits}
    for timer, limit in limits.values():
        signal.setitimer(timer, limit)
    try:
        yield
    finally:
        for timer, _ in limits.values():
            signal.setitimer(timer, 0)
        for number, handler in previous.items():
            signal.signal(number, handler)


def _used(answer: Any, world: HostileWorld) -> Any:
    """What an answer is good for: objects are asked a question, all else is the answer itself."""
    if isinstance(answer, GeneratorType):
        return list(answer)
    return next((ask(answer, world) for kind, ask in _QUESTIONS if isinstance(answer, kind)), answer)


def _asked_posterior(posterior: ma.Posterior, world: HostileWorld) -> Any:
    return posterior.value(ma.Uniform(posterior.n_actions), world.few) if posterior.dim == 3 else str(posterior)


def _asked_prior(prior: ma.HierarchicalGaussian, world: HostileWorld) -> Any:
    actions = np.arange(min(prior.n_actions, 3))
    return [prior.action_mean(actions), prior.action_cov(actions)]


def _asked_estimator(estimator: ma.Estimator, world: HostileWorld) -> Any:
    return estimator.estimate(world.greedy if isinstance(estimator, ma.Replay) else world.softmax, world.clicked)


def _asked_likelihood(likelihood: ma.Likelihood, world: HostileWorld) -> Any:
    # A log-normal reward is above zero, and clicks are not.
    if isinstance(likelihood, ma.LogNormal):
        return likelihood.noise_std
    return ma.fit(world.clicked, world.prior, likelihood).value(world.uniform, world.few)


def _asked_shop(shop: Any, world: HostileWorld) -> Any:
    return shop.draw(world.rng()).logs.rewards if max(shop.n_items, shop.n_rounds) < 10**5 else shop.n_items


def _asked_policy(policy: ma.Policy, world: HostileWorld) -> Any:
    if policy.n_actions > 10**4 or getattr(policy, "dim", 3) not in (None, 3):
        return policy.n_actions
    contexts = world.contexts if isinstance(policy, ma.Logged) else world.few
    if policy.n_rows is not None and policy.n_rows != len(contexts):
        return policy.n_rows
    return policy.probabilities(contexts)


_QUESTIONS: tuple[tuple[type, Callable[[Any, HostileWorld], Any]], ...] = (
    (ma.Policy, _asked_policy),
    (ma.Posterior, _asked_posterior),
    (ma.HierarchicalGaussian, _asked_prior),
    (ma.Estimator, _asked_estimator),
    (ma.Likelihood, _asked_likelihood),
    (ma.learners.Learner, lambda learner, world: _asked_policy(learner.learn(world.clicked), world)),
    (ma.Training, lambda training, world: _used(ma.IPSLearner(training=training), world)),
    (ma.datasets.SyntheticProblem, lambda problem, world: problem.draw_prior(world.rng()).latent_mean),
    (ma.datasets.Shop, _asked_shop),
    # Infinity switches a warning off, and the estimate stays finite.
    (ma.Thresholds, lambda thresholds, world: _asked_estimator(ma.IPS(thresholds=thresholds), world)),
)
"""The question that an object of each kind is asked."""


def _numbers(answer: Any, depth: int = 0) -> Iterable[float]:
    """All numbers of an answer, in order; texts and unknown objects have none."""
    if isinstance(answer, bool | np.bool_ | str | bytes) or answer is None or depth > 4:
        return
    if isinstance(answer, int | float | np.number):
        yield float(answer) if abs(answer) <= sys.float_info.max else np.inf
    elif isinstance(answer, np.ndarray):
        if answer.dtype.kind in "iuf":
            yield from answer.reshape(-1).astype(float).tolist()
    elif sparse.issparse(answer):
        yield from _numbers(answer.toarray() if np.prod(answer.shape) < 10**5 else answer.data)
    elif isinstance(answer, ma.Estimate | ma.experiments.Outcome):
        # The other numbers of an outcome are seconds and bytes.
        yield from (answer.value, answer.std if isinstance(answer, ma.Estimate) else answer.truth)
    elif isinstance(answer, Mapping):
        # The label of a category may be any number.
        yield from _numbers([value for key, value in answer.items() if key not in ("category", "group")], depth + 1)
    elif isinstance(answer, list | tuple):
        for value in answer:
            yield from _numbers(value, depth + 1)
    elif isinstance(answer, ma.LoggedData):
        yield from _numbers([answer.contexts, answer.actions, answer.rewards, answer.propensities, answer.weights])
    elif is_dataclass(answer) and not isinstance(answer, type | Engine):
        for name in (field.name for field in fields(answer) if field.name != "category"):
            yield from _numbers(getattr(answer, name), depth + 1)


def _fingerprints(arguments: Arguments) -> dict[str, str]:
    """A hash of every array and list among the arguments."""
    return {name: _hash(value) for name, value in arguments.items()}


def _hash(value: Any) -> str:
    if isinstance(value, np.ndarray) and value.dtype != object:
        return hashlib.sha256(np.asarray(value).tobytes() + repr((value.shape, value.dtype)).encode()).hexdigest()
    if isinstance(value, list | tuple | dict | np.ndarray) and not isinstance(value, GeneratorType):
        return repr(value)
    return ""


def _files(folder: Path) -> dict[str, str]:
    """A hash of every file of the world."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def summarise_cases(rows: Sequence[Row]) -> Outcome:
    """No case may be a defect."""
    defects = [(number, row) for number, row in enumerate(rows) if row["defect"]]
    kinds = Counter(row["response"] for row in rows)
    measured = f"{len(defects):,} defects in {len(rows):,} calls: {kinds['refused']:,} typed errors, "
    measured += f"{kinds['answer']:,} finite answers"
    notes = [f"Case {number}: `{row['call']}`, {row['what']}: {row['defect']}" for number, row in defects[:20]]
    return Outcome(measured, not defects, tuple(notes))


def measure_names(case: int) -> Row:
    """The public names that have neither a hostile call nor a reason for having none."""
    return {"uncovered": uncovered_names(call.name for call in calls()), "calls": len({call.name for call in calls()})}


def summarise_names(rows: Sequence[Row]) -> Outcome:
    """Every public name is covered."""
    uncovered = rows[0]["uncovered"]
    measured = f"{len(uncovered)} names without hostile calls; {rows[0]['calls']} entry points have them"
    return Outcome(measured, not uncovered, tuple(f"`{name}` has no hostile call." for name in uncovered[:20]))


CHECKS = (
    Check(
        "hostile-names", "Hostile input", "Every public name and method that takes arguments is in the list of calls.",
        "none missing", 1, measure_names, summarise_names,
    ),
    Check(
        "hostile-inputs", "Hostile input",
        "A hostile argument gives a typed error or a correct, finite answer, and leaves arguments and files unchanged.",
        "0 defects", 8500, measure_case, summarise_cases, batch=50,
    ),
)  # fmt: skip
