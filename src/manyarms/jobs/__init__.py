"""What a nightly job does with models, logs and files: judge policies side by side, score contexts."""

from manyarms.jobs.by_name import estimator_named, policy_named
from manyarms.jobs.evaluate import Evaluation, Judged, evaluate
from manyarms.jobs.fit_stream import aged, fit_stream, remember, rewards_are_binary, update_stream
from manyarms.jobs.sample_rounds import Sample, StackedMap, sample_rounds
from manyarms.jobs.score import Scored, score
from manyarms.jobs.unseen_files import Unseen, unseen

__all__ = [
    "Evaluation",
    "Judged",
    "Sample",
    "Scored",
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
