"""Posteriors and the loop for clicks on a device match those on the processor."""

import numpy as np
import pytest
from device_cases import HERE, stand_in, torch_or_skip

import manyarms as ma
from manyarms.core.latent_covariance import BlockFactor
from manyarms.core.observed_rows import observe
from manyarms.core.statistics import Statistics
from manyarms.engines import LOCAL
from manyarms.gpu.batched_posterior import SharedEffects, absorb_actions, action_means
from manyarms.inference import device_condition
from manyarms.inference.condition import condition_on
from manyarms.likelihoods.device_sites import DeviceRounds, DeviceSiteSolver
from manyarms.likelihoods.sites import StreamSiteSolver
from manyarms.policies.device_marginals import DeviceMarginals

N_ACTIONS, DIM = 40, 3


def priors():
    """Every kind of prior that the loop accepts."""
    rng = np.random.default_rng(0)
    category = rng.integers(0, 5, N_ACTIONS)
    one = np.eye(6)[category]
    root = rng.normal(size=(N_ACTIONS, DIM, DIM))
    each = root @ root.swapaxes(1, 2) + 0.2 * np.eye(DIM)
    mean = rng.normal(size=6 * DIM)
    return {
        "categories": ma.HierarchicalGaussian(np.zeros(6 * DIM), 1.0, ma.MixedEffects(one, DIM), 0.3),
        "weights and offset": ma.HierarchicalGaussian(
            mean, 0.5, ma.MixedEffects(one * rng.uniform(0.5, 2, (N_ACTIONS, 1)), DIM), each[0], np.full(DIM, -0.3)
        ),
        "own covariances": ma.HierarchicalGaussian(mean, 1.0, ma.MixedEffects(one, DIM), each),
        "a shared effect": ma.HierarchicalGaussian(
            mean, 1.0, ma.MixedEffects(one, DIM), [0.3, 0.1, 0.2], effects=[ma.EffectGroup("category", 6, DIM)]
        )
        + _of_all(N_ACTIONS),
        "two levels": _two_levels(rng, category),
        "dense": ma.HierarchicalGaussian(np.ones(5), 1.0, 0.5 * rng.normal(size=(N_ACTIONS, DIM, 5)), [0.3, 1.0, 2.0]),
        "independent": ma.priors.independent(N_ACTIONS, dim=DIM),
    }


def _of_all(n_actions):
    """An effect that all actions share."""
    mixing = ma.MixedEffects(np.ones((n_actions, 1)), DIM)
    return ma.HierarchicalGaussian(np.ones(DIM), 0.7, mixing, 0.0, effects=[ma.EffectGroup("shared", 1, DIM)])


def _two_levels(rng, category):
    """Small categories within large ones, with weights, some actions in none, and a direction without variance."""
    small = np.eye(6)[category] * np.where(rng.random(N_ACTIONS) < 0.5, 1.0, 0.5)[:, None]
    small[::7] = 0.0
    large = np.eye(2)[category % 2]
    large[::11] = 0.0
    groups = [ma.EffectGroup("large", 2, DIM), ma.EffectGroup("small", 6, DIM), ma.EffectGroup("all", 1, DIM)]
    blocks = np.stack([np.diag([1.0, 0.5, 0.0])] * 2 + [0.4 * np.eye(DIM)] * 6 + [np.eye(DIM)])
    weights = np.column_stack([large, small, rng.uniform(0.5, 1.5, 4)[category % 4]])
    return ma.HierarchicalGaussian(rng.normal(size=9 * DIM), blocks, ma.MixedEffects(weights, DIM), 0.3, effects=groups)


def clicks(weights=None):
    rng = np.random.default_rng(1)
    x = np.column_stack([np.ones(500), rng.normal(size=(500, DIM - 1))])
    # Some predictors are wide, and take the closed form.
    x[::50] *= 5
    actions, rewards = rng.integers(0, N_ACTIONS - 9, 500), (rng.random(500) < 0.3).astype(float)
    return ma.LoggedData(x, actions, rewards, n_actions=N_ACTIONS, weights=weights)


def test_absorbed_actions_match_dense_algebra():
    torch = torch_or_skip()
    rng = np.random.default_rng(2)
    root = rng.normal(size=(12, 6, 4))
    gram, moment, W, z = (
        root @ root.swapaxes(1, 2),
        rng.normal(size=(12, 6)),
        rng.normal(size=(3, 6, 6)),
        np.ones((2, 6)),
    )
    which, effect = rng.integers(0, 3, 12), np.repeat([0, 1], [5, 7])
    effects = SharedEffects(torch.from_numpy(W), torch.from_numpy(which), torch.from_numpy(effect), 2)
    got = absorb_actions(torch.from_numpy(gram), torch.from_numpy(moment), effects)
    A = np.linalg.inv(np.eye(6) + gram)
    mixed = W[which]
    factor = got.factor.numpy()
    np.testing.assert_allclose(factor @ factor.swapaxes(1, 2), A, atol=1e-13)
    assert np.array_equal(factor, np.triu(factor))
    precision, score = mixed.swapaxes(1, 2) @ gram @ A @ mixed, np.einsum("mde,mdf,mf->me", mixed, A, moment)
    for j in range(2):
        np.testing.assert_allclose(got.precision[j], precision[effect == j].sum(axis=0), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(got.score[j], score[effect == j].sum(axis=0), rtol=1e-12, atol=1e-12)
    assert float(got.log_det) == pytest.approx(np.linalg.slogdet(np.eye(6) + gram)[1].sum(), rel=1e-13)
    means = action_means(got.factor, torch.from_numpy(moment), effects, torch.from_numpy(z)).numpy()
    right = moment + np.einsum("mde,me->md", mixed, z[effect])
    np.testing.assert_allclose(means, np.einsum("mde,me->md", A, right), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("kind", "weighted"), [*((kind, False) for kind in priors()), ("categories", True)])
def test_steps_on_a_device_are_those_on_the_processor(kind, weighted):
    torch_or_skip()
    prior, likelihood = priors()[kind], ma.Bernoulli()
    logs = clicks(np.random.default_rng(3).integers(1, 4, 500).astype(float) if weighted else None)
    device, here = (
        DeviceSiteSolver(prior, DeviceRounds(prior, logs, likelihood, HERE)),
        StreamSiteSolver(prior, logs, likelihood, LOCAL),
    )
    ours, theirs = device.sites_from(prior), here.sites_from(prior)
    everyone = np.arange(N_ACTIONS)
    for _ in range(2):
        mine, other = device.state(ours), here.state(theirs)
        assert mine.objective == pytest.approx(other.objective, rel=1e-12)
        np.testing.assert_allclose(mine.weights.action_mean(), other.weights.action_mean(), rtol=1e-9, atol=1e-10)
        got, want = mine.weights.action_cov(everyone), other.weights.action_cov(everyone)
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-10)
        assert mine.statistics.total_weight == pytest.approx(other.statistics.total_weight, rel=1e-12)
        ours, theirs = mine.target(), other.target()


@pytest.mark.parametrize("kind", priors())
def test_the_evidence_of_sites_on_a_device_has_the_derivatives_of_the_processor(kind):
    torch_or_skip()
    prior, likelihood, logs = priors()[kind], ma.Bernoulli(), clicks()
    rounds = DeviceRounds(prior, logs, likelihood, HERE)
    device, here = DeviceSiteSolver(prior, rounds), StreamSiteSolver(prior, logs, likelihood, LOCAL)
    mine, other = device.state(device.sites_from(prior)), here.state(here.sites_from(prior))
    wider = prior.with_parts(
        prior.latent_mean + 0.3,
        BlockFactor(1.5 * prior.prior_factor.blocks),
        prior.action_covariance.scaled(0.4),
        np.array([0.1, -0.2, 0.3]),
    )
    ours, theirs = ([state.evidence(prior.effects, given) for given in (None, wider)] for state in (mine, other))
    gain = ours[1].log_evidence - ours[0].log_evidence
    assert gain == pytest.approx(theirs[1].log_evidence - theirs[0].log_evidence, rel=1e-10)
    for got, want in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(got.action_excess, want.action_excess, rtol=1e-9, atol=1e-9)
        assert len(got.effect_excess) == len(want.effect_excess)
        for left, right in zip(got.effect_excess, want.effect_excess, strict=True):
            np.testing.assert_allclose(left, right, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(got.latent_pull, want.latent_pull, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(got.offset_pull, want.offset_pull, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", priors())
def test_conditioning_on_a_device_is_conditioning(kind, monkeypatch):
    torch_or_skip()
    monkeypatch.setattr(device_condition, "FEW_ACTIONS", 0)
    prior, logs = priors()[kind], clicks()
    observed = observe(Statistics.of_rounds(logs.contexts, logs.actions, logs.rewards, N_ACTIONS), 0.4)
    got, want = device_condition.condition_on_device(prior, observed, HERE), condition_on(prior, observed)
    everyone = np.arange(N_ACTIONS)
    for name in ("log_evidence", "misfit", "log_det"):
        assert getattr(got, name) == pytest.approx(getattr(want, name), rel=1e-11)
    np.testing.assert_allclose(got.action_mean(), want.action_mean(), rtol=1e-10, atol=1e-11)
    np.testing.assert_allclose(got.action_cov(everyone), want.action_cov(everyone), rtol=1e-10, atol=1e-11)
    np.testing.assert_allclose(got.latent_mean, want.latent_mean, rtol=1e-10, atol=1e-11)
    for ours, theirs in zip(got.gains, want.gains, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-11)


def test_rows_that_outweigh_the_prior_are_conditioned_on_by_the_processor(monkeypatch):
    torch_or_skip()
    monkeypatch.setattr(device_condition, "FEW_ACTIONS", 0)
    prior, logs = priors()["categories"], clicks()
    x = logs.contexts * [1e6, 1.0, 1e-3]
    observed = observe(Statistics.of_rounds(x, logs.actions, logs.rewards, N_ACTIONS), 1.0)
    got, want = device_condition.condition_on_device(prior, observed, HERE), condition_on(prior, observed)
    assert got.log_evidence == want.log_evidence and np.array_equal(got.action_mean(), want.action_mean())


def test_a_fit_on_a_device_is_the_fit(monkeypatch):
    torch_or_skip()
    stand_in(monkeypatch, "manyarms.posterior.fit")
    prior, logs = priors()["categories"], clicks()
    here, there = ma.fit(logs, prior, ma.Bernoulli()), ma.fit(logs, prior, ma.Bernoulli(), device="cuda")
    assert there.converged and there.log_evidence == pytest.approx(here.log_evidence, abs=1e-5)
    np.testing.assert_allclose(there.weights.action_mean(), here.weights.action_mean(), atol=1e-3)
    again = ma.fit(logs, prior, ma.Bernoulli(), start=there, device="cuda")
    assert again.log_evidence == pytest.approx(there.log_evidence, abs=1e-5) and len(again.trace) <= 3


def test_refits_on_a_device_are_refits(monkeypatch):
    torch_or_skip()
    for module in ("posterior.reward_posterior", "estimators.reward_model"):
        stand_in(monkeypatch, f"manyarms.{module}")
    # The folds pass on the name of the device that stands in.
    stand_in(monkeypatch, "manyarms.posterior.fit")
    prior, logs = priors()["categories"], clicks()
    posterior = ma.fit(logs.take(slice(0, 400)), prior, ma.Bernoulli())
    here, there = posterior.refit(logs), posterior.refit(logs, device="cuda")
    assert there.converged and there.log_evidence == pytest.approx(here.log_evidence, abs=1e-5)
    np.testing.assert_allclose(there.weights.action_mean(), here.weights.action_mean(), atol=1e-3)
    models = [
        ma.CrossFit(prior, ma.Bernoulli(), n_folds=3, rng=np.random.default_rng(0), device=device)
        for device in ("cpu", "cuda")
    ]
    greedy = ma.Greedy(posterior)
    (logged, expected), (same, alike) = (model.predict(greedy, logs, None) for model in models)
    np.testing.assert_allclose(same, logged, atol=1e-4)
    np.testing.assert_allclose(alike, expected, atol=1e-4)
    assert np.ptp(logged) > 0.1


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"likelihood": ma.Gaussian()}, "can only fit clicks"),
        ({"likelihood": ma.Bernoulli("laplace")}, "can only fit clicks"),
        ({"prior": ma.HierarchicalGaussian(np.zeros(2), 1.0, np.ones((N_ACTIONS, DIM, 2)), 0.0)}, "positive definite"),
        ({"prior": ma.HierarchicalGaussian(np.zeros(40), 1.0, np.ones((N_ACTIONS, DIM, 40)), 1.0)}, "one effect per"),
        ({"prior": "posterior"}, "prior without data"),
    ],
)
def test_a_fit_that_a_device_cannot_do_is_refused(change, problem, monkeypatch):
    stand_in(monkeypatch, "manyarms.posterior.fit")
    prior, logs = priors()["categories"], clicks()
    arguments = {"logs": logs, "prior": prior, "likelihood": ma.Bernoulli(), "device": "cuda"} | change
    if arguments["prior"] == "posterior":
        arguments["prior"] = ma.fit(logs, prior, ma.Bernoulli()).weights
    with pytest.raises(ma.errors.InputError, match=problem) as caught:
        ma.fit(**arguments)
    assert caught.value.argument == "device" and 'device="cpu"' in caught.value.remedy


@pytest.mark.parametrize("kind", priors())
@pytest.mark.parametrize("most", [0, 1000])
def test_marginals_on_a_device_are_those_of_the_posterior(kind, most, monkeypatch):
    torch_or_skip()
    monkeypatch.setattr("manyarms.policies.device_marginals.MOST_KINDS", most)
    fitted = ma.fit(clicks(), priors()[kind], ma.Bernoulli(), tolerance=1e-2).weights
    marginals, some = DeviceMarginals(fitted, HERE), np.array([39, 3, 4, 38, 3])
    for actions in (np.arange(N_ACTIONS), some):
        means, covs = (part.numpy() for part in marginals(actions))
        np.testing.assert_allclose(means, fitted.action_mean(actions), rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(covs, fitted.action_cov(actions), rtol=1e-11, atol=1e-12)
    unseen = np.arange(N_ACTIONS - 9, N_ACTIONS)
    means, covs = (part.numpy() for part in marginals(unseen))
    for left, right in zip(*np.nonzero(fitted.twins[unseen][:, None] == fitted.twins[unseen]), strict=True):
        assert np.array_equal(means[left], means[right]) and np.array_equal(covs[left], covs[right])
