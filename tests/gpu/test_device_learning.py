"""A prior learned from clicks on a device is that of the processor."""

import numpy as np
import pytest
from device_cases import HERE, stand_in, torch_or_skip

import manyarms as ma
from manyarms.prior_learning.evidence import ApproximateEvidence
from manyarms.prior_learning.hyperparameters import Hyperparameters

K, DIM, N = 40, 3, 1000


def problem(seed=0):
    """Clicks on actions in categories that differ."""
    rng = np.random.default_rng(seed)
    category = np.arange(K) % 6
    theta = rng.normal(size=(6, DIM))[category] * 0.8 + 0.5 * rng.normal(size=(K, DIM)) - [1.0, 0.0, 0.0]
    x = np.column_stack([np.ones(N), rng.normal(size=(N, DIM - 1))])
    actions = rng.integers(0, K - 5, N)
    clicked = (rng.random(N) < 1 / (1 + np.exp(-np.sum(x * theta[actions], axis=1)))).astype(float)
    return ma.LoggedData(x, actions, clicked, n_actions=K), category


def starts(category):
    """Priors to learn, with different means: of effects, of all actions, of one effect that all share."""
    mixing = ma.MixedEffects(np.eye(6)[category], DIM)
    categories = ma.HierarchicalGaussian(np.zeros(6 * DIM), 1.0, mixing, 1.0)
    one = [ma.EffectGroup("shared", 1, DIM)]
    shared = ma.HierarchicalGaussian(np.zeros(DIM), 1.0, ma.MixedEffects(np.ones((K, 1)), DIM), 0.0, effects=one)
    factors = np.random.default_rng(5).normal(size=(K, DIM, 4))
    return {
        "categories": categories,
        "independent": ma.priors.independent(K, dim=DIM),
        "categories and a shared effect": categories + shared,
        "dense": ma.HierarchicalGaussian(np.zeros(4), 1.0, factors, 1.0),
    }


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("categories", {}),
        ("categories", {"means": "maximised", "action_cov": "diagonal"}),
        ("categories and a shared effect", {}),
        ("independent", {"action_cov": "full"}),
        ("dense", {}),
    ],
)
def test_a_prior_learned_on_a_device_is_that_of_the_processor(kind, options, monkeypatch):
    torch_or_skip()
    stand_in(monkeypatch, "manyarms.prior_learning.learn_prior")
    logs, category = problem()
    prior = starts(category)[kind]
    here, there = (ma.learn_prior(logs, prior, ma.Bernoulli(), device=device, **options) for device in ("cpu", "cuda"))
    # Searches end where a step gains less than 1e-5 nats: a parameter is then off by 0.005 standard errors.
    assert there.converged and there.log_evidence == pytest.approx(here.log_evidence, abs=1e-3)
    for ours, theirs in zip(there.parameters, here.parameters, strict=True):
        assert ours.name == theirs.name
        unit = theirs.error if " mean " in theirs.name else theirs.error * theirs.value
        assert ours.value == pytest.approx(theirs.value, abs=0.02 * unit)
        assert ours.error == pytest.approx(theirs.error, rel=0.02)
    np.testing.assert_allclose(there.posterior.weights.action_mean(), here.posterior.weights.action_mean(), atol=2e-3)


def test_the_derivative_on_a_device_is_that_of_the_bound():
    torch_or_skip()
    logs, category = problem()
    prior = starts(category)["categories"]
    evidence = ApproximateEvidence(logs, ma.Bernoulli(), K, device=HERE)
    for means in ("integrated", "maximised"):
        hyper = Hyperparameters(
            prior, None, evidence.seen, evidence.scale,
            effect_cov="scale", action_cov="scale", means=means, learn_noise=True,
        )  # fmt: skip
        eta, step = hyper.start() - 0.3 * hyper.log_scales(), 1e-3
        _, slope = evidence.log_evidence(hyper, eta)
        for i in range(hyper.size):
            move = step * np.eye(hyper.size)[i]
            high, low = (evidence.value(hyper, eta + sign * move, avoid_boundary=False) for sign in (1, -1))
            assert slope[i] == pytest.approx((high - low) / (2 * step), abs=2e-3 * max(1.0, abs(slope[i])))


@pytest.mark.parametrize(
    ("change", "remedy"),
    [({"likelihood": ma.Gaussian()}, "clicks"), ({"avoid_boundary": False}, "avoid_boundary")],
)
def test_learning_that_a_device_cannot_do_is_refused(change, remedy, monkeypatch):
    stand_in(monkeypatch, "manyarms.prior_learning.learn_prior")
    logs, category = problem()
    with pytest.raises(ma.errors.InputError, match=remedy) as caught:
        ma.learn_prior(logs, starts(category)["categories"], **({"likelihood": ma.Bernoulli()} | change), device="cuda")
    assert caught.value.argument == "device"
