import numpy as np

import manyarms as ma


def test_where_rewards_have_signs_the_value_is_in_its_interval_and_agrees_with_doubly_robust_estimation():
    """Without a lowest reward the grid reaches very far, and quantiles must be precise all the same."""
    rng = np.random.default_rng(0)
    means, n = np.linspace(-3.0, 3.0, 30), 6000
    actions = rng.integers(30, size=n)
    logs = ma.LoggedData(np.ones((n, 1)), actions, means[actions] + rng.normal(size=n), np.full(n, 1 / 30), 30)
    train, test = logs.split(0.5, rng=rng)
    posterior = ma.fit(train, ma.priors.independent(30, dim=1))
    best = ma.TablePolicy(np.eye(30)[-1])
    gain = ma.Checked(posterior).difference(best, ma.Logged(test), test)
    low, high = gain.interval()
    assert low < gain.value < high
    robust = ma.SNDR(posterior).estimate(best, test)
    assert high - low < 2 * 4 * robust.std
    assert abs(gain.value - (robust.value - test.rewards.mean())) < robust.std
