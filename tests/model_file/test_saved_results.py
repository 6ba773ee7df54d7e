"""A loaded posterior or policy gives the same results as the saved one, to the last bit."""

import numpy as np
import pytest
from problems import make_problem
from saved_models import (
    FORMS,
    D,
    again,
    bits,
    cube,
    grown,
    of_reward,
    of_weights,
    policies,
    results,
    rounds,
    summary,
    with_features,
)

import manyarms as ma
from manyarms.core.latent_covariance import EliminatedFactor


@pytest.mark.parametrize("form", FORMS)
def test_every_result_of_a_loaded_posterior_is_the_same_to_the_last_bit(form, tmp_path):
    posterior, logs = FORMS[form](np.random.default_rng(0))
    assert results(again(posterior, tmp_path), logs) == results(posterior, logs)


PROBLEMS = [
    (mixing, cov, latent, offset)
    for number, (mixing, cov) in enumerate(
        (mixing, cov)
        for mixing in ("dense", "none", "one_hot", "sparse_effects", "dense_effects")
        for cov in ("scalar", "diagonal", "shared", "each", "singular")
    )
    for latent in [("scalar", "diagonal", "full", "blocks")[number % 4]]
    for offset in [("none", "shared", "each")[number % 3]]
]


@pytest.mark.parametrize("forms", PROBLEMS, ids=" ".join)
def test_every_form_of_a_prior_comes_back(forms, tmp_path):
    mixing, cov, latent, offset = forms
    problem = make_problem(1, 6, 3, 30, mixing, cov, latent, offset, 6, 1e-2, 1.0)
    posterior, x = problem.fit(), problem.logs.contexts[:5]
    got = again(posterior, tmp_path)
    for one, other in ((got, posterior), (grown(got), grown(posterior))):
        assert bits([of_weights(one.weights), summary(one, x)]) == bits([of_weights(other.weights), summary(other, x)])


@pytest.mark.parametrize(("form", "core"), [("taxonomy", 0), ("tree with a dense core", 12)])
def test_a_tree_comes_back_eliminated_and_not_solved_again(form, core, tmp_path, monkeypatch):
    posterior, _ = FORMS[form](np.random.default_rng(0))
    assert isinstance(posterior.weights.latent_factor, EliminatedFactor)
    assert len(posterior.weights.latent_factor.cholesky.plan.core) == core
    posterior.save(tmp_path / "model")
    monkeypatch.setattr("manyarms.linalg.block_cholesky._layers", None)
    assert isinstance(ma.load(tmp_path / "model").weights.latent_factor, EliminatedFactor)


def test_parts_that_prior_and_posterior_share_are_written_once_and_shared_again(tmp_path):
    rng = np.random.default_rng(0)
    prior = ma.HierarchicalGaussian(np.zeros(8), 1.0, rng.normal(size=(500, D, 8)), cube(rng, 500))
    logs = rounds(rng)
    posterior = ma.fit(logs, prior)
    got = again(posterior, tmp_path)
    assert got.weights.base is got.prior
    assert got.weights.mixing is got.prior.mixing
    assert got.weights.action_covariance is got.prior.action_covariance
    numbers = prior.mixing.matrices.nbytes + prior.action_covariance.each.nbytes
    assert numbers < (tmp_path / "model.arrow").stat().st_size < 1.5 * numbers


def test_saving_what_was_loaded_writes_the_same_file(tmp_path):
    posterior, _ = with_features(np.random.default_rng(0))
    policy = ma.Thompson(posterior, 20, rng=np.random.default_rng(1))
    policy.save(tmp_path / "first")
    ma.load(tmp_path / "first").save(tmp_path / "second")
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()


@pytest.mark.parametrize("name", policies(FORMS["one category each"](np.random.default_rng(0))[0]))
def test_a_loaded_policy_does_what_the_saved_one_does(name, tmp_path):
    posterior, logs = FORMS["one category each"](np.random.default_rng(0))
    policy, x = policies(posterior)[name], logs.contexts[:9]
    got = again(policy, tmp_path)
    asked = [
        (
            p.actions(x), p.probabilities(x), p.top_k(x, 4), p.sample(x, np.random.default_rng(2)), p.learned_from,
            p.probabilities(x, eligible=[[1, 2, 5]] * 9), posterior.value(p, x), repr(p), p.dim, p.n_rows,
        )
        for p in (policy, got)
    ]  # fmt: skip
    assert type(got) is type(policy)
    assert bits(asked[0]) == bits(asked[1])
    inside = getattr(got, "posterior", None)
    if inside is not None:
        assert bits(of_reward(inside, x)) == bits(of_reward(posterior, x))
