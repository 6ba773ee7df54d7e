"""Few rounds and columns far from zero: learning must not make all actions alike."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import load_digits

import manyarms as ma

NOTE = "alike at the average context"


def moved(shift, seed=0, prior=None, **options):
    rng = np.random.default_rng(seed)
    n, K = 300, 12
    columns = rng.normal(size=(n, 3))
    columns -= columns.mean(axis=0)
    actions, theta = rng.integers(K, size=n), rng.normal(size=(K, 4))
    rewards = np.einsum("nd,nd->n", np.column_stack([np.ones(n), columns]), theta[actions]) + rng.normal(size=n)
    contexts = np.column_stack([np.ones(n), columns + np.asarray(shift)])
    logs = ma.LoggedData(contexts, actions, rewards, n_actions=K)
    prior = prior or ma.priors.from_categories([k % 3 for k in range(K)], dim=4, shared_std=1.0)
    return logs, ma.learn_prior(logs, prior, **options)


@pytest.mark.parametrize("shift", [[2.0, 0.0, 0.0], [5.0, -20.0, 3.0]])
def test_it_does_not_matter_where_a_column_has_its_zero(shift):
    # The weak prior on standard deviations knows the size of a column, so it is off here.
    (centred, plain), (logs, learned) = (moved(s, avoid_boundary=False) for s in (np.zeros(3), shift))
    expected = plain.posterior.expected_reward(centred.contexts)
    assert_allclose(learned.posterior.expected_reward(logs.contexts), expected, rtol=1e-4, atol=1e-5)
    stds = [
        m.posterior.reward_std(rounds.contexts, rounds.actions) for m, rounds in ((plain, centred), (learned, logs))
    ]
    assert_allclose(stds[1], stds[0], rtol=1e-4)
    assert any(NOTE in note for note in learned.notes) and not any(NOTE in note for note in plain.notes)


def test_a_prior_with_scales_of_its_own_stays_as_given():
    own = ma.priors.independent(12, cov=np.diag([1.0, 4.0, 1.0, 1.0]), dim=4)
    for options in ({"prior": own}, {"action_cov": "diagonal"}, {"effect_cov": "full"}):
        assert not any(NOTE in note for note in moved([5.0, 5.0, 5.0], **options)[1].notes)


@pytest.mark.slow
def test_digits_from_a_hundred_rounds_beat_one_digit_for_all():
    images, digits = load_digits(return_X_y=True)
    contexts, values = np.column_stack([np.ones(len(images)), images / 16]), list[float]()
    for seed in range(4):
        rng = np.random.default_rng(seed)
        items, actions = rng.integers(len(images), size=100), rng.integers(10, size=100)
        logs = ma.LoggedData(contexts[items], actions, (digits[items] == actions).astype(float), n_actions=10)
        learned = ma.learn_prior(logs, ma.priors.from_catalog(10, dim=65, shared_std=1.0))
        values.append(float(np.mean(ma.Greedy(learned.posterior).actions(contexts) == digits)))
    # Before columns were centred this was 0.2, little better than always the same digit.
    assert np.mean(values) > 0.35
