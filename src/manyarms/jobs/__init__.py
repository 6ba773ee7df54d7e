"""What a nightly job does with models, logs and files: judge policies side by side, score contexts."""

from manyarms.jobs.evaluating import Evaluation, Judged, evaluate
from manyarms.jobs.fitting import aged, fit_stream, remember, rewards_are_binary, update_stream
from manyarms.jobs.named import estimator_named, policy_named
from manyarms.jobs.sampling import Sample, StackedMap, sample_rounds
from manyarms.jobs.scoring import Scored, score
from manyarms.jobs.unseen import Unseen, unseen

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
