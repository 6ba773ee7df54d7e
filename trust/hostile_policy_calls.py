"""Valid calls of policies, estimators, learners and decisions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

import manyarms as ma
from manyarms import learners
from trust.hostile_call import Arguments, HostileCall, make_call, make_method
from trust.hostile_world import HostileWorld


def policy_calls() -> Iterator[HostileCall]:
    """Policies and their methods."""
    yield make_call("Greedy", ma.Greedy, lambda w: dict(posterior=w.posterior, device="cpu"))
    yield make_call("CappedPolicy", ma.CappedPolicy, lambda w: dict(
        posterior=w.posterior, contexts=w.few, max_share=0.5, budgets=0.75, costs=np.arange(6) / 4, price=0.25,
        categories=w.categories, weights=w.weights[:5]), budgets="number or mapping")  # fmt: skip
    yield make_call("BlendedGreedy", ma.BlendedGreedy, lambda w: dict(
        posteriors=[w.posterior, w.click_posterior], weights=np.array([1.0, 0.5])))  # fmt: skip
    yield make_call("EpsilonGreedy", ma.EpsilonGreedy, lambda w: dict(policy=w.uniform, epsilon=0.1))
    yield make_call("Pessimistic", ma.Pessimistic, lambda w: dict(posterior=w.posterior, delta=0.1, device="cpu"))
    yield make_call("Mixture", ma.Mixture, lambda w: dict(policies=[w.uniform, w.greedy], shares=np.array([0.3, 0.7])))
    yield make_call("Softmax", ma.Softmax, lambda w: dict(posterior=w.posterior, temperature=0.5))
    yield make_call("LinearSoftmax", ma.LinearSoftmax, lambda w: dict(weights=w.mixing[..., 0], catalog=w.catalog))
    yield make_call(
        "Thompson", ma.Thompson, lambda w: dict(posterior=w.posterior, n_draws=20, rng=w.rng(), device="cpu")
    )
    yield make_call("TablePolicy", ma.TablePolicy, lambda w: dict(probabilities=w.table[0]))
    yield make_call("TablePolicy", ma.TablePolicy, lambda w: dict(probabilities=w.table[:5]))
    yield make_call("TablePolicy.from_shares", ma.TablePolicy.from_shares, lambda w: dict(
        table=pa.table({"item": [0, 3], "share": [0.5, 0.5]}), actions=6, action="item", share="share"))  # fmt: skip
    yield make_call("ColumnPolicy", ma.ColumnPolicy, lambda w: dict(
        column="new", actions=6, position_weights=np.array([1.0, 0.5]), separator="|"))  # fmt: skip
    yield make_call("LookupPolicy", ma.LookupPolicy, lambda w: dict(
        table=pa.table({"user": ["a", "b"], "item": [0, 3]}), key="user", actions=6, action="item"))  # fmt: skip
    yield make_call("CallablePolicy", ma.CallablePolicy, lambda w: dict(
        function=lambda rows: [0] * len(rows), actions=6, columns=["user"], probabilities=False))  # fmt: skip
    yield make_call("Uniform", ma.Uniform, lambda w: dict(n_actions=6))
    yield make_call("SegmentPolicy", ma.SegmentPolicy, lambda w: dict(
        policy=w.softmax, otherwise=w.uniform, segments=w.groups[:5] % 2, follow=[1]),
        follow="labels")  # fmt: skip
    yield make_call("Logged", ma.Logged, lambda w: dict(logs=w.logs))
    yield make_call("EstimatedLogging", ma.EstimatedLogging, lambda w: dict(
        logs=w.logs, categories=w.categories, smoothing=0.5, penalty=1.0))  # fmt: skip
    owners: dict[str, Callable[[HostileWorld], Any]] = {
        "Greedy": lambda w: w.greedy,
        "CappedPolicy": lambda w: ma.CappedPolicy(w.posterior, w.few, max_share=0.5),
        "BlendedGreedy": lambda w: ma.BlendedGreedy([w.posterior, w.click_posterior], [1.0, 0.5]),
        "EpsilonGreedy": lambda w: ma.EpsilonGreedy(w.greedy, 0.2),
        "Mixture": lambda w: ma.Mixture([w.greedy, w.uniform], [0.2, 0.8]),
        "Pessimistic": lambda w: ma.Pessimistic(w.posterior),
        "Softmax": lambda w: ma.Softmax(w.posterior, 0.5),
        "LinearSoftmax": lambda w: w.softmax,
        "Thompson": lambda w: ma.Thompson(w.posterior, 20, rng=w.rng()),
        "TablePolicy": lambda w: ma.TablePolicy(np.full(6, 1 / 6)),
        "Uniform": lambda w: w.uniform,
        "SegmentPolicy": lambda w: ma.SegmentPolicy(w.softmax, w.uniform, w.groups[:5] % 2, [1]),
        "EstimatedLogging": lambda w: ma.EstimatedLogging(w.logs),
    }
    methods: dict[str, Callable[[HostileWorld], Arguments]] = {
        "actions": lambda w: {},
        "probabilities": lambda w: {},
        "feature_mass": lambda w: dict(weights=w.weights[:5]),
        "probability_of": lambda w: dict(actions=np.array([1, 2, 3, 5, 4])),
        "sample": lambda w: dict(rng=w.rng()),
        "top_k": lambda w: dict(k=1),
        "probability_chunks": lambda w: dict(chunk_size=2),
    }
    for name, owner in owners.items():
        for method, more in methods.items():
            yield make_method(f"{name}.{method}", owner, lambda w, more=more: dict(
                contexts=w.few, eligible=w.eligible, **more(w)))  # fmt: skip
    yield make_method("Policy.save", lambda w: w.softmax, lambda w: dict(path=w.folder / "saved"), path="out")
    yield make_method("TablePolicy.take", lambda w: ma.TablePolicy(w.table), lambda w: dict(rows=w.few_actions))
    yield make_method("SegmentPolicy.take", lambda w: ma.SegmentPolicy(w.softmax, w.uniform, w.groups % 2, [1]),
                      lambda w: dict(rows=w.few_actions))  # fmt: skip
    yield make_method("Logged.take", lambda w: ma.Logged(w.logs), lambda w: dict(rows=w.few_actions))
    yield make_method("Logged.actions", lambda w: ma.Logged(w.logs), lambda w: dict(contexts=w.contexts))


_ESTIMATORS: dict[str, tuple[Any, Callable[[HostileWorld], Arguments]]] = {
    "IPS": (ma.IPS, lambda w: dict(clip=0.01, cap=10.0)),
    "SNIPS": (ma.SNIPS, lambda w: dict(clip=0.01, cap=10.0)),
    "DR": (ma.DR, lambda w: dict(model=w.posterior, clip=0.01, cap=10.0)),
    "SNDR": (ma.SNDR, lambda w: dict(model=w.posterior, clip=0.01, cap=10.0)),
    "DRos": (ma.DRos, lambda w: dict(model=w.posterior, shrinkage=10.0)),
    "ExponentialSmoothing": (ma.ExponentialSmoothing, lambda w: dict(alpha=0.5)),
    "LogarithmicSmoothing": (ma.LogarithmicSmoothing, lambda w: dict(parameter=0.5)),
    "Replay": (ma.Replay, lambda w: dict()),
    "SubGaussianDR": (ma.SubGaussianDR, lambda w: dict(model=w.posterior, parameter=0.5)),
    "SubGaussianIPS": (ma.SubGaussianIPS, lambda w: dict(parameter=0.5)),
    "SwitchDR": (ma.SwitchDR, lambda w: dict(model=w.posterior, threshold=5.0)),
    "WeightedIPS": (ma.WeightedIPS, lambda w: dict(strata=w.groups % 2, model=w.posterior)),
    "BalancedIPS": (ma.BalancedIPS, lambda w: dict(
        logging_policies=[w.uniform, w.uniform], strata=w.groups % 2, model=w.posterior)),
    "MIPS": (ma.MIPS, lambda w: dict(clusters=np.arange(6) % 3, clip=0.01)),
    "OffCEM": (ma.OffCEM, lambda w: dict(clusters=np.arange(6) % 3, model=w.posterior, clip=0.01)),
    "PolicyConvolution": (ma.PolicyConvolution, lambda w: dict(embeddings=w.embeddings, k=2, clip=0.01)),
}  # fmt: skip


def estimator_calls() -> Iterator[HostileCall]:
    """Estimators, intervals and comparisons."""
    for name, (made, arguments) in _ESTIMATORS.items():
        yield make_call(name, made, lambda w, arguments=arguments: dict(
            interval=ma.Normal(), thresholds=ma.Thresholds(), name="mine", **arguments(w)), strata="groups",
            clusters="groups")  # fmt: skip
        policy = "greedy" if name == "Replay" else "softmax"
        logs = "clicked" if name == "LogarithmicSmoothing" else "logs"
        for method in ("estimate", "contributions"):
            yield make_method(
                f"{name}.{method}", lambda w, made=made, arguments=arguments: made(**arguments(w)),
                lambda w, policy=policy, logs=logs: dict(
                    policy=getattr(w, policy), logs=getattr(w, logs), eligible=[list(range(6))] * 40),
            )  # fmt: skip
    yield make_call("DM", ma.DM, lambda w: dict(posterior=w.posterior, name="mine", thresholds=ma.Thresholds()))
    yield make_method("DM.estimate", lambda w: ma.DM(w.posterior), lambda w: dict(policy=w.softmax, logs=w.logs))
    yield make_call("Checked", ma.Checked, lambda w: dict(posterior=w.posterior, scale=1.0, n_folds=2, name="mine"))
    yield make_method(
        "Checked.estimate", lambda w: ma.Checked(w.posterior), lambda w: dict(policy=w.softmax, logs=w.logs)
    )
    yield make_method("Checked.difference", lambda w: ma.Checked(w.posterior), lambda w: dict(
        policy=w.softmax, baseline=w.uniform, logs=w.logs))  # fmt: skip
    yield make_call("CrossFit", ma.CrossFit, lambda w: dict(
        prior=w.prior, likelihood=ma.Gaussian(), n_folds=2, rng=w.rng()))  # fmt: skip
    yield make_call("Bootstrap", ma.Bootstrap, lambda w: dict(n_draws=20, rng=w.rng()))
    yield make_call("EmpiricalBernstein", ma.EmpiricalBernstein, lambda w: dict(width=10.0))
    yield make_call("ConfidenceSequence", ma.ConfidenceSequence, lambda w: dict(low=0.0, high=1.0))
    yield make_method("ConfidenceSequence.intervals", lambda w: ma.ConfidenceSequence(-9.0, 9.0), lambda w: dict(
        contributions=w.rewards, level=0.9))  # fmt: skip
    yield make_call("Normal", ma.Normal, lambda w: dict(method="normal"))
    yield make_call("Thresholds", ma.Thresholds, lambda w: dict(
        min_effective_sample_size=100.0, max_weight_share=0.05, mean_weight_error=0.2, max_unsupported_mass=0.1,
        max_prior_share=0.5))  # fmt: skip
    yield make_call("check_weights", ma.check_weights, lambda w: dict(
        policy=w.softmax, logs=w.logs, categories=w.categories, clips=np.array([0.0, 0.1]), n_largest=3,
        eligible=[list(range(6))] * 40))  # fmt: skip
    yield make_call("hidden_cause", ma.hidden_cause, lambda w: dict(
        posterior=w.posterior, policy=w.softmax, baseline=w.uniform, contexts=w.few, logs=w.logs, level=0.9,
        eligible=w.eligible, weights=w.weights[:5]))  # fmt: skip
    yield make_call("propensity_sensitivity", ma.propensity_sensitivity, lambda w: dict(
        policy=w.softmax, logs=w.logs, self_normalised=True, columns=False,
        eligible=[list(range(6))] * 40))  # fmt: skip
    yield make_method("PropensitySensitivity.bounds", lambda w: ma.propensity_sensitivity(
        w.softmax, w.logs, columns=False), lambda w: dict(odds=2.0))  # fmt: skip
    yield make_call("support_by_category", ma.support_by_category, lambda w: dict(
        policy=w.softmax, logs=w.logs, categories=w.categories))  # fmt: skip
    yield make_call("compare", ma.compare, lambda w: dict(
        policies=dict(w.policies), logs=w.logs, estimators=[ma.IPS(), ma.SNIPS()],
        allow_training_rounds=True))  # fmt: skip
    yield make_call("slope", ma.slope, lambda w: dict(
        estimators=[ma.IPS(), ma.SNIPS()], policy=w.softmax, logs=w.logs, level=0.9))  # fmt: skip


_LEARNERS: dict[str, tuple[Any, Callable[[HostileWorld], Arguments]]] = {
    "IPSLearner": (ma.IPSLearner, lambda w: dict(clip=0.01)),
    "SNIPSLearner": (ma.SNIPSLearner, lambda w: dict(clip=0.01)),
    "DRLearner": (ma.DRLearner, lambda w: dict(model=w.posterior, clip=0.01)),
    "LogarithmicSmoothingLearner": (ma.LogarithmicSmoothingLearner, lambda w: dict(parameter=0.5)),
    "MIPSLearner": (ma.MIPSLearner, lambda w: dict(clusters=np.arange(6) % 3, clip=0.01)),
    "PolicyConvolutionLearner": (
        ma.PolicyConvolutionLearner, lambda w: dict(embeddings=w.embeddings, k=2, clip=0.01)),
}  # fmt: skip


def learner_calls() -> Iterator[HostileCall]:
    """Learners of policies."""
    for name, (made, arguments) in _LEARNERS.items():
        quick = ma.Training(learners.LBFGS(5))
        yield make_call(name, made, lambda w, arguments=arguments: dict(
            training=ma.Training(learners.LBFGS(5)), **arguments(w)), clusters="groups")  # fmt: skip
        owner: Callable[[HostileWorld], Any] = lambda w, made=made, arguments=arguments, quick=quick: made(  # noqa: E731
            training=quick, **arguments(w)
        )
        yield make_method(f"{name}.learn", owner, lambda w: dict(logs=w.clicked, eligible=[list(range(6))] * 40))
        yield make_method(f"{name}.objective", owner, lambda w: dict(
            policy=w.softmax, logs=w.clicked, eligible=[list(range(6))] * 40))  # fmt: skip
    yield make_call("DMLearner", ma.DMLearner, lambda w: dict(
        prior=w.prior, likelihood=ma.Gaussian(), policy=ma.Greedy, name="mine"))  # fmt: skip
    yield make_method("DMLearner.learn", lambda w: ma.DMLearner(w.prior), lambda w: dict(logs=w.logs))
    yield make_call("Training", ma.Training, lambda w: dict(
        optimiser=learners.LBFGS(5), holdout=0.2, patience=2, imitation=0.1, ridge=1e-4, rng=w.rng()))  # fmt: skip
    yield make_call("learners.LBFGS", learners.LBFGS, lambda w: dict(max_iterations=5, tolerance=1e-4))
    yield make_call("learners.Adam", learners.Adam, lambda w: dict(learning_rate=0.05, n_epochs=2, batch_size=16))


def _plan(world: HostileWorld) -> ma.Plan:
    return ma.plan(world.posterior, world.softmax, world.uniform, world.contexts)


def _backtest(world: HostileWorld) -> ma.Backtest:
    return ma.backtest(world.logs, prior=world.prior, period=10.0)


def _segments(world: HostileWorld) -> ma.Segments:
    segments = ma.evaluate(world.policies, world.logs, world.posterior, segments=world.groups % 2).segments
    assert segments is not None
    return segments


def decision_calls() -> Iterator[HostileCall]:
    """Evaluations, decisions, reports and plots."""
    yield make_call("evaluate", ma.evaluate, lambda w: dict(
        policies=dict(w.policies), logs=w.logs, posterior=w.posterior, estimators=[ma.IPS()], contexts=w.contexts,
        pairs=True, segments=w.groups % 2))  # fmt: skip
    for method in ("of_policy", "sentence"):
        argument = {"of_policy": "name", "sentence": "policy"}[method]
        yield make_method(
            f"Segments.{method}", _segments, lambda w, argument=argument: {argument: "greedy"})  # fmt: skip
    yield make_method("Segments.named", _segments, lambda w: dict(policy="greedy", outcome="wins"))
    yield make_method("Evaluation.probability_better", lambda w: w.evaluation, lambda w: dict(
        first="greedy", second="uniform"))  # fmt: skip
    yield make_call("decide", ma.decide, lambda w: dict(
        policies=dict(w.policies), logs=w.logs, posterior=w.posterior, estimators=[ma.IPS()], categories=w.categories,
        sure=0.9, segments=w.groups % 2, contexts=w.contexts,
        guardrails=[ma.Guardrail("returns", w.clicks)]))  # fmt: skip
    yield make_call("Guardrail", ma.Guardrail, lambda w: dict(
        name="returns", rewards=w.clicks, at_most_worse=0.25, sure=0.9, better="lower", absolute=False,
        likelihood=ma.Gaussian(), posterior=w.posterior))  # fmt: skip
    yield make_call("trade_off", ma.trade_off, lambda w: dict(
        posterior=w.posterior, other=w.click_posterior, contexts=w.few, better="lower", baseline=w.uniform,
        weights=np.array([0.0, 1.0])))  # fmt: skip
    yield make_call("backtest", ma.backtest, lambda w: dict(
        logs=w.logs, prior=w.prior, likelihood=ma.Gaussian(), period=10.0, training=1, categories=w.categories,
        logged_by=["a", "b"] * 20, policies={"uniform": w.uniform}, half_life=20.0, level=0.9,
        false_alarm=0.1), logged_by="labels")  # fmt: skip
    yield make_call("plan", ma.plan, lambda w: dict(
        posterior=w.posterior, policy=w.softmax, baseline=w.uniform, contexts=w.contexts, logging=w.uniform, sure=0.9,
        chance=0.5, share=0.3, max_cost=0.1, weights=w.weights, groups=w.groups, rng=w.rng()))  # fmt: skip
    for method in ("std_at", "chance_at"):
        yield make_method(f"Plan.{method}", _plan, lambda w: dict(n=10.0))
    yield HostileCall("plots.plan_chances", lambda w: ma.plots.plan_chances, lambda w: dict(plan=_plan(w)))
    for chart in ("clip_curve", "weight_balance"):
        yield HostileCall(
            f"plots.{chart}", lambda w, chart=chart: getattr(ma.plots, chart),
            lambda w: dict(check=ma.check_weights(w.softmax, w.logs)),
        )  # fmt: skip
    yield make_call("write_report", ma.write_report, lambda w: dict(
        decision=w.decision, path=w.folder / "report.html", format="html", title="Mine"), path="out")  # fmt: skip
    for chart in ("values", "gains", "probability_better", "agreement"):
        yield HostileCall(
            f"plots.{chart}", lambda w, chart=chart: getattr(ma.plots, chart), lambda w: dict(evaluation=w.evaluation)
        )
    for chart in ("backtest", "coverage"):
        yield HostileCall(f"plots.{chart}", lambda w, chart=chart: getattr(ma.plots, chart), lambda w: dict(
            result=_backtest(w)))  # fmt: skip
    yield make_call("plots.trade_off", ma.plots.trade_off, lambda w: dict(
        result=ma.trade_off(w.posterior, w.click_posterior, w.few), names=("margin", "clicks")))  # fmt: skip
    yield HostileCall("plots.segments", lambda w: ma.plots.segments, lambda w: dict(
        evaluation=ma.evaluate(w.policies, w.logs, w.posterior, segments=w.groups % 2), policy="greedy"))  # fmt: skip
    for chart in ("support", "shrinkage", "traffic_changes", "calibration"):
        yield HostileCall(
            f"plots.{chart}", lambda w, chart=chart: getattr(ma.plots, chart),
            lambda w, chart=chart: dict(evidence=getattr(w.held_out_decision, chart)),
        )  # fmt: skip
