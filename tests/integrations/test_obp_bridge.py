"""`ma.obp`: what OBP's dictionaries and arrays say is what we read, and what we write it can read."""

import jaxtyping
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from test_obp_agreement import (
    ACTIONS,
    CONTEXTS,
    LOGGING,
    MODEL,
    MODEL_WEIGHTS,
    OBP,
    REWARDS,
    ROUND,
    TARGET,
)

import manyarms as ma
from manyarms.errors import DataTypeError, InputError, PropensityError, RangeError, ShapeError

CUBE = np.stack([LOGGING, TARGET, LOGGING[::-1]], axis=2)  # of three positions
POSITIONS = ROUND % 3


@pytest.fixture
def own_errors():
    """Our own checks speak, rather than those of the types."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def feedback(**changes):
    """As SyntheticBanditDataset.obtain_batch_bandit_feedback writes it."""
    return {
        "n_rounds": 12,
        "n_actions": 4,
        "context": CONTEXTS,
        "action_context": np.arange(8.0).reshape(4, 2),
        "action": ACTIONS,
        "position": None,
        "reward": REWARDS,
        "expected_reward": CONTEXTS @ MODEL_WEIGHTS.T,
        "pi_b": LOGGING[:, :, None],
        "pscore": LOGGING[ROUND, ACTIONS],
    } | changes


@pytest.mark.parametrize(
    ("estimator", "of_obp"),
    [
        (ma.IPS(), "IPS"),
        (ma.DR(ma.obp.reward_model((CONTEXTS @ MODEL_WEIGHTS.T)[:, :, None])), "DR"),
        (ma.SNDR(ma.obp.reward_model((CONTEXTS @ MODEL_WEIGHTS.T)[:, :, None])), "snDR"),
        (ma.DM(MODEL), "DM"),
    ],
)
def test_its_inputs_give_its_answers(estimator, of_obp):
    """What OBP computed from these very arrays, test_obp_agreement.py tells how."""
    found = estimator.estimate(ma.obp.policy(TARGET[:, :, None]), ma.obp.logs(feedback()))
    assert_allclose(found.value, OBP[of_obp][0], rtol=1e-12)


def test_feedback_comes_back_as_it_was():
    given = feedback()
    back = ma.obp.feedback(ma.obp.logs(given), expected_reward=given["expected_reward"])
    assert back.keys() == given.keys()
    assert back["position"] is None
    for key in given.keys() - {"position"}:
        assert_array_equal(back[key], given[key], err_msg=key)


def test_logs_come_back_as_they_were():
    given = ma.LoggedData(CONTEXTS, ACTIONS, REWARDS, n_actions=5, logging_policy=ma.Uniform(5))
    back = ma.obp.logs(ma.obp.feedback(given))
    assert back.n_actions == 5
    for name in ("contexts", "actions", "rewards"):
        assert_array_equal(getattr(back, name), getattr(given, name))
    assert_allclose(back.propensities, 0.2)
    assert_allclose(back.logging_policy.probabilities(CONTEXTS), np.full((12, 5), 0.2))


def test_distributions_and_rewards_have_the_shape_of_its_arrays():
    posterior = ma.fit(ma.obp.logs(feedback()), ma.priors.independent(4, dim=2))
    greedy = ma.Greedy(posterior)
    chosen = ma.obp.action_dist(greedy, CONTEXTS, len_list=2)
    assert_array_equal(chosen.argmax(axis=1), np.column_stack([greedy.actions(CONTEXTS)] * 2))
    assert_array_equal(ma.obp.policy(chosen, position=1).probabilities(CONTEXTS), chosen[:, :, 1])
    rewards = ma.obp.estimated_rewards(posterior, CONTEXTS, len_list=2)
    for position in range(2):
        for action in range(4):
            expected = posterior.expected_reward(CONTEXTS, np.full(12, action))
            assert_allclose(rewards[:, action, position], expected, rtol=1e-12)


def test_of_several_positions_the_one_asked_for_is_read():
    score = CUBE[ROUND, ACTIONS, POSITIONS]
    given = feedback(position=POSITIONS, pi_b=CUBE, pscore=score)
    second = ma.obp.logs(given, position=1)
    assert_array_equal(second.actions, ACTIONS[1::3])
    assert_allclose(second.logging_policy.probabilities(second.contexts), TARGET[1::3])
    pooled = ma.obp.logs(given, position="all")
    assert len(pooled) == 12
    assert_allclose(pooled.logging_policy.probability_of(CONTEXTS, ACTIONS), score)
    model = ma.obp.reward_model(CUBE, position=POSITIONS)
    at_logged, expected = model.predict(ma.TablePolicy(TARGET), pooled, None)
    assert_allclose(at_logged, score)
    assert_allclose(expected, [TARGET[i] @ CUBE[i, :, POSITIONS[i]] for i in ROUND])


def test_chances_as_rough_as_obp_allows_are_taken_and_rougher_ones_refused():
    rough = TARGET[:, :, None] * (1 + 8e-6)
    assert_allclose(ma.obp.policy(rough).probabilities(CONTEXTS), TARGET, rtol=1e-12)
    with pytest.raises(PropensityError, match="the sum of probabilities must be 1; row 0"):
        ma.obp.policy(TARGET[:, :, None] * 1.001)


def test_chances_rounded_in_a_file_do_not_contradict_each_other():
    score = LOGGING[ROUND, ACTIONS]
    rounded = ma.obp.logs(feedback(pscore=score.astype(np.float32), pi_b=LOGGING.astype(np.float32)[:, :, None]))
    assert_allclose(rounded.propensities, score, rtol=1e-6)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: ma.obp.logs({"n_actions": 2}),
            InputError,
            "feedback has no 'context'; it must be the dictionary that OBP's",
        ),
        (
            lambda: ma.obp.logs(feedback(position=POSITIONS, pi_b=CUBE)),
            InputError,
            "position has rounds at 3 positions of a list. Pass position=0",
        ),
        (
            lambda: ma.obp.logs(feedback(position=POSITIONS, pi_b=CUBE), position=7),
            InputError,
            "no round was shown at position 7; positions are 0, 1, 2.",
        ),
        (
            lambda: ma.obp.logs([1]),
            DataTypeError,
            "feedback must be the dictionary that OBP's obtain_batch_bandit_feedback returns; got list.",
        ),
        (
            lambda: ma.obp.logs(feedback(pscore=np.where(ROUND == 7, 0.5, LOGGING[ROUND, ACTIONS]))),
            PropensityError,
            f"row 7 has 0.5, and pi_b {LOGGING[7, ACTIONS[7]]:.6g}. Set the wrong one to None.",
        ),
        (
            lambda: ma.obp.policy(CUBE, position=-1),
            RangeError,
            r"position must be at least 0; got -1\.$",
        ),
        (
            lambda: ma.obp.policy(CUBE, position=POSITIONS - 1),
            RangeError,
            r"position must be a whole number, not negative; row 0 has -1.0. OBP counts positions from 0\.$",
        ),
        (lambda: ma.obp.policy(CUBE), InputError, "action_dist has 3 positions. Pass position="),
        (lambda: ma.obp.policy(CUBE, position=3), RangeError, "below 3, the number of positions of action_dist; row 0"),
        (
            lambda: ma.obp.feedback(ma.LoggedData(CONTEXTS, ACTIONS, REWARDS, weights=ROUND)),
            InputError,
            "logs have weights, which OBP does not support",
        ),
        (
            lambda: ma.IPS().estimate(ma.Uniform(4), ma.obp.logs(feedback(action=ACTIONS[:5]))),
            ShapeError,
            "action must have 12 rows; got 5",
        ),
        (
            lambda: ma.DR(ma.obp.reward_model(CUBE[:6], position=0)).estimate(ma.Uniform(4), ma.obp.logs(feedback())),
            ShapeError,
            "the reward model has 6 rounds and 4 actions; the logs have 12 and 4",
        ),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(call, error, message, own_errors):
    with pytest.raises(error, match=message):
        call()


def test_weights_that_are_all_one_change_nothing():
    logs = [ma.LoggedData(CONTEXTS, ACTIONS, REWARDS, weights=weights) for weights in (None, np.ones(len(ROUND)))]
    plain, weighted = map(ma.obp.feedback, logs)
    assert plain.keys() == weighted.keys()
    assert_array_equal(plain["reward"], weighted["reward"])


def test_true_rewards_have_a_column_for_each_action():
    logs = ma.LoggedData(CONTEXTS, ACTIONS, REWARDS, n_actions=4)
    with pytest.raises(ShapeError, match="expected_reward must have a column for each of 4 actions; got 3"):
        ma.obp.feedback(logs, expected_reward=np.zeros((12, 3)))
    assert_array_equal(ma.obp.feedback(logs, expected_reward=np.eye(12, 4))["expected_reward"], np.eye(12, 4))
