"""What a nightly job does with models, logs and files: judge policies side by side, score contexts."""

from manyarms.jobs.evaluating import Evaluation, Judged, evaluate
from manyarms.jobs.named import estimator_named, policy_named
from manyarms.jobs.sampling import sample_rows
from manyarms.jobs.scoring import Scored, score

__all__ = [
    "Evaluation",
    "Judged",
    "Scored",
    "estimator_named",
    "evaluate",
    "policy_named",
    "sample_rows",
    "score",
]
