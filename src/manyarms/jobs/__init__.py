"""Jobs for every night: fit, update and evaluate from files, learn a policy, score contexts."""

from manyarms.core.feature_map import StackedMap
from manyarms.jobs.backtest import backtest
from manyarms.jobs.backtest_files import backtest_files
from manyarms.jobs.backtest_result import Backtest
from manyarms.jobs.doctor import CheckUp, doctor
from manyarms.jobs.evaluate import Evaluation, PolicyResult, evaluate
from manyarms.jobs.evaluate_files import EvaluationResult, evaluate_files
from manyarms.jobs.fit_files import FitResult, UpdateResult, fit_files, update_files
from manyarms.jobs.learn_policy import learn_policy
from manyarms.jobs.log_findings import LogFinding
from manyarms.jobs.parse_names import estimator_named, likelihood_named, policy_named
from manyarms.jobs.sample_rounds import RoundSample, sample_rounds
from manyarms.jobs.score import ScoreResult, score

__all__ = [
    "Backtest",
    "CheckUp",
    "Evaluation",
    "EvaluationResult",
    "FitResult",
    "LogFinding",
    "PolicyResult",
    "RoundSample",
    "ScoreResult",
    "StackedMap",
    "UpdateResult",
    "backtest",
    "backtest_files",
    "doctor",
    "estimator_named",
    "evaluate",
    "evaluate_files",
    "fit_files",
    "learn_policy",
    "likelihood_named",
    "policy_named",
    "sample_rounds",
    "score",
    "update_files",
]
