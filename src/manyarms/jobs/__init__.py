"""What a nightly job does with models, logs and files: judge policies side by side, score contexts."""

from manyarms.jobs.evaluate import Evaluation, PolicyResult, evaluate
from manyarms.jobs.fit_stream import aged, fit_stream, remember, rewards_are_binary, update_stream
from manyarms.jobs.parse_names import estimator_named, policy_named
from manyarms.jobs.sample_rounds import RoundSample, StackedMap, sample_rounds
from manyarms.jobs.score import ScoreResult, score
from manyarms.jobs.unseen_files import Unseen, unseen

__all__ = [
    "Evaluation",
    "PolicyResult",
    "RoundSample",
    "ScoreResult",
    "StackedMap",
    "Unseen",
    "aged",
    "estimator_named",
    "evaluate",
    "fit_stream",
    "policy_named",
    "remember",
    "rewards_are_binary",
    "sample_rounds",
    "score",
    "unseen",
    "update_stream",
]
