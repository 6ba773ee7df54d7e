"""Bad input is refused by a typed error that names the argument, the first bad row and a remedy."""

import jaxtyping
import numpy as np
import pytest
from scipy import sparse

import manyarms as ma
from manyarms import errors


@pytest.fixture(autouse=True)
def as_users_run_it():
    """Without the run-time check of annotations, which would refuse some calls before our own errors can."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


X = np.arange(12.0).reshape(4, 3)
A = np.array([0, 1, 1, 4])
R = np.array([1.0, 0.0, 2.0, 1.0])


def bad(array, row, value):
    out = np.array(array, dtype=object if isinstance(value, str | None) else float)
    out[row] = value
    return out


LOGS = {
    "rewards of another length": (dict(rewards=R[:3]), errors.ShapeError, "rewards must have 4 rows; got 3"),
    "actions of another length": (dict(actions=A[:3]), errors.ShapeError, "actions must have 4 rows; got 3"),
    "contexts with one axis": (dict(contexts=R), errors.ShapeError, "contexts must have 2 axes"),
    "contexts with no column": (dict(contexts=np.empty((4, 0))), errors.ShapeError, "column of ones"),
    "ragged contexts": (dict(contexts=[[1.0], [1.0, 2.0]]), errors.ShapeError, "rectangular"),
    "NaN in contexts": (dict(contexts=bad(X, (2, 1), np.nan)), errors.NonFiniteError, "contexts must be finite; row 2"),
    "inf in contexts": (dict(contexts=bad(X, (3, 0), np.inf)), errors.NonFiniteError, "row 3 holds inf"),
    "NaN in rewards": (dict(rewards=bad(R, 1, np.nan)), errors.NonFiniteError, "rewards must be finite; row 1"),
    "object contexts": (dict(contexts=X.astype(object)), errors.DataTypeError, "contexts.*dtype object.*astype"),
    "object rewards": (dict(rewards=bad(R, 1, None)), errors.DataTypeError, "rewards must hold numbers"),
    "strings as actions": (dict(actions=np.array(["a", "b", "c", "d"])), errors.DataTypeError, "actions.*dtype <U1"),
    "sparse contexts": (dict(contexts=sparse.csr_array(X)), errors.DataTypeError, r"contexts\.toarray\(\)"),
    "complex rewards": (dict(rewards=R + 1j), errors.DataTypeError, "dtype complex128"),
    "fractional actions": (dict(actions=A + 0.5), errors.DataTypeError, "actions must be integers; row 0 has 0.5"),
    "NaN actions": (dict(actions=bad(A, 2, np.nan)), errors.DataTypeError, "row 2 has nan"),
    "boolean actions": (dict(actions=A > 0), errors.DataTypeError, "actions must be integers, not booleans"),
    "negative action": (dict(actions=np.array([0, 1, -1, 2])), errors.ActionError, "row 2 has -1"),
    "action out of range": (dict(n_actions=4), errors.ActionError, "below n_actions=4; row 3 has 4.*n_actions="),
    "unsigned action beyond int64": (
        dict(actions=np.full(4, 2**63, np.uint64)),
        errors.ActionError,
        "not an action number",
    ),
    "no actions at all": (dict(n_actions=0), errors.RangeError, "n_actions must be at least 1; got 0"),
    "n_actions not an integer": (dict(n_actions=5.0), errors.DataTypeError, "n_actions must be an integer"),
    "propensity of zero": (dict(propensities=[0.5, 0.0, 1, 1]), errors.PropensityError, r"\(0, 1\]; row 1 has 0.0"),
    "propensity above one": (dict(propensities=[0.5, 1, 7.0, 1]), errors.PropensityError, "row 2 has 7.0"),
    "NaN propensity": (dict(propensities=[0.5, 1, np.nan, 1]), errors.NonFiniteError, "propensities.*row 2"),
    "negative weight": (dict(weights=[1, 1, 1, -1]), errors.InputError, "weights must not be negative; row 3"),
    "fractional groups": (dict(groups=R + 0.5), errors.DataTypeError, "groups must be integers; row 0"),
    "a policy on other actions": (dict(logging_policy=ma.Uniform(3)), errors.ShapeError, "3 actions; the logs have 5"),
}


@pytest.mark.parametrize("name", LOGS)
def test_bad_logs_are_refused(name):
    change, error, message = LOGS[name]
    with pytest.raises(error, match=message) as caught:
        ma.LoggedData(**(dict(contexts=X, actions=A, rewards=R) | change))
    assert isinstance(caught.value, errors.ManyarmsError)
    assert isinstance(caught.value, ValueError)


def prior(**change):
    given = dict(latent_mean=np.zeros(2), latent_cov=np.eye(2), mixing=np.ones((5, 3, 2)), action_cov=1.0, offset=None)
    return ma.HierarchicalGaussian(**(given | change))


SKEW = np.array([[1.0, 0.5], [0.0, 1.0]])
PRIORS = {
    "mean of another length": (dict(latent_mean=np.zeros(3)), errors.ShapeError, "latent_mean must have 2 rows; got 3"),
    "NaN mean": (dict(latent_mean=[0, np.nan]), errors.NonFiniteError, "latent_mean must be finite; row 1"),
    "latent_cov of another shape": (
        dict(latent_cov=np.eye(3)), errors.ShapeError, r"latent_cov.*\(2, 2\).*got shape \(3, 3\)",
    ),
    "skew latent_cov": (dict(latent_cov=SKEW), errors.CovarianceError, "latent_cov must be symmetric"),
    "indefinite latent_cov": (
        dict(latent_cov=np.diag([1.0, -1])), errors.CovarianceError, "latent_cov must be positive",
    ),
    "negative variance": (
        dict(latent_cov=[1.0, -1.0]), errors.CovarianceError, "latent_cov must not be negative; row 1",
    ),
    "mixing with two axes": (dict(mixing=np.ones((5, 3))), errors.ShapeError, "mixing must have 3 axes"),
    "mixing without actions": (dict(mixing=np.ones((0, 3, 2))), errors.ShapeError, "at least one action"),
    "inf in mixing": (dict(mixing=np.full((5, 3, 2), np.inf)), errors.NonFiniteError, "mixing must be finite; row 0"),
    "object mixing": (dict(mixing=np.ones((5, 3, 2), dtype=object)), errors.DataTypeError, "mixing must hold numbers"),
    "action_cov of another shape": (dict(action_cov=np.eye(2)), errors.ShapeError, r"action_cov.*got shape \(2, 2\)"),
    "negative action_cov": (dict(action_cov=-1.0), errors.CovarianceError, "action_cov must not be negative"),
    "one indefinite action_cov": (
        dict(action_cov=np.stack([np.eye(3)] * 3 + [-np.eye(3)] + [np.eye(3)])), errors.CovarianceError,
        "matrix 3 is not",
    ),
    "NaN action_cov": (dict(action_cov=np.nan), errors.NonFiniteError, "action_cov must be finite"),
    "offset of another shape": (
        dict(offset=np.zeros(2)), errors.ShapeError, r"offset must be None, \(3,\) or \(5, 3\)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PRIORS)
def test_bad_priors_are_refused(name):
    change, error, message = PRIORS[name]
    with pytest.raises(error, match=message):
        prior(**change)


def posterior():
    return ma.fit(ma.LoggedData(X, A, R), prior())


NAN_WEIGHTS = sparse.csr_array(np.array([[1.0], [np.nan]]))
CALLS = {
    "logs of another dimension": (
        lambda: ma.fit(ma.LoggedData(X[:, :2], A, R), prior()), errors.ShapeError,
        "2 columns; the prior's.*dimension 3",
    ),
    "more actions than the prior": (
        lambda: ma.fit(ma.LoggedData(X, A, R, n_actions=9), prior()), errors.ShapeError, "9 actions; the prior knows 5",
    ),
    "no prior": (lambda: ma.fit(ma.LoggedData(X, A, R), None), errors.DataTypeError, "prior must be"),
    "noise of zero": (lambda: ma.Gaussian(0.0), errors.InputError, "noise_std must be above 1e-150"),
    "NaN noise": (lambda: ma.Gaussian(np.nan), errors.NonFiniteError, "noise_std must be finite"),
    "effects with NaN": (
        lambda: ma.MixedEffects(NAN_WEIGHTS, 3), errors.NonFiniteError, "weights must be finite; row 1",
    ),
    "effects without effects": (lambda: ma.MixedEffects(np.ones((3, 0)), 3), errors.ShapeError, "one effect"),
    "contexts of another width": (
        lambda: ma.Greedy(posterior()).actions(X[:, :2]), errors.ShapeError, "contexts must have 3 columns; got 2",
    ),
    "NaN contexts": (
        lambda: posterior().value(ma.Uniform(5), bad(X, (1, 1), np.nan)), errors.NonFiniteError, "contexts.*row 1",
    ),
    "value over no contexts": (lambda: posterior().value(ma.Uniform(5), X[:0]), errors.ShapeError, "at least one row"),
    "policy on other actions": (lambda: posterior().value(ma.Uniform(4), X), errors.ShapeError, "policy has 4 actions"),
    "unknown action": (
        lambda: posterior().weights.action_mean([7]), errors.ActionError, "below n_actions=5; row 0 has 7",
    ),
    "table that does not sum to one": (
        lambda: ma.TablePolicy([[0.5, 0.5], [0.5, 0.4]]), errors.PropensityError, "must be 1; row 1 has 0.9",
    ),
    "negative probability": (lambda: ma.TablePolicy([1.5, -0.5]), errors.PropensityError, "not be negative; row 1"),
    "no temperature": (
        lambda: ma.Softmax(posterior(), temperature=0.0), errors.InputError, "temperature must be above",
    ),
    "epsilon above one": (lambda: ma.EpsilonGreedy(ma.Uniform(3), 1.5), errors.RangeError, "epsilon must .* at most 1"),
    "delta of one": (lambda: ma.Pessimistic(posterior(), delta=1.0), errors.InputError, "delta must be .* below 1"),
    "a seed for a generator": (
        lambda: ma.Thompson(posterior(), rng=3), errors.DataTypeError, r"np\.random\.default_rng\(3\)",
    ),
    "k above the number of actions": (
        lambda: ma.Greedy(posterior()).top_k(X, 6), errors.ShapeError, "k must be at most",
    ),
    "nothing eligible": (
        lambda: ma.Uniform(5).actions(X, eligible=[[1], [2], [], [3]]), errors.EligibilityError, "in row 2",
    ),
    "eligible names no action": (
        lambda: ma.Uniform(5).actions(X, eligible=[[1], [2], [5], [3]]), errors.ActionError, "row 2 has 5",
    ),
    "eligible for other rows": (
        lambda: ma.Uniform(5).actions(X, eligible=[[1]]), errors.ShapeError, "one row per context: 4; got 1",
    ),
    "eligible with fractions": (
        lambda: ma.Uniform(5).actions(X, eligible=[[1], [2.5], [3], [3]]), errors.DataTypeError, "row 1 does not",
    ),
    "eligible of another width": (
        lambda: ma.Uniform(5).actions(X, eligible=np.ones((4, 3), dtype=bool)), errors.ShapeError, r"shape \(4, 5\)",
    ),
    "eligible of no kind": (lambda: ma.Uniform(5).actions(X, eligible=3), errors.DataTypeError, "eligible must be"),
    "logged action not eligible": (
        lambda: ma.Logged(ma.LoggedData(X, A, R)).actions(X, eligible=[[0], [1], [2], [4]]),
        errors.EligibilityError, "row 2",
    ),
    "table with no eligible mass": (
        lambda: ma.TablePolicy([1.0, 0.0]).actions(X, eligible=[[0], [0], [0], [1]]), errors.EligibilityError, "row 3",
    ),
    "level of an interval": (lambda: ma.Estimate(0.0, 1.0).interval(95), errors.InputError, "level must be"),
    "latent_cov too large": (
        lambda: ma.HierarchicalGaussian(np.zeros(9000), 1.0, ma.MixedEffects(np.eye(9000), 1), 1.0).latent_cov,
        errors.TooLargeError, "9000 x 9000",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_bad_calls_are_refused(name):
    call, error, message = CALLS[name]
    with pytest.raises(error, match=message):
        call()


def test_row_numbers_of_eligible_sets_are_those_of_the_whole_call(monkeypatch):
    monkeypatch.setattr(ma.Policy, "rows_per_block", 2)
    with pytest.raises(errors.EligibilityError, match="row 3"):
        ma.Uniform(5).actions(X, eligible=lambda rows: [[1] if i < 3 else [] for i in range(4)][rows])


def test_overflow_is_an_error_and_never_a_silent_nan():
    huge = ma.LoggedData(np.full((2, 3), 1e200), [0, 1], [1.0, 1.0], n_actions=5)
    with pytest.raises(errors.NumericalError, match="action 0"):
        ma.fit(huge, prior())
    many = ma.LoggedData(np.full((9, 3), 1e200), np.full(9, 4), np.ones(9), n_actions=5)
    with pytest.raises(errors.NumericalError, match="action 4"):
        ma.fit(many, prior())
    for n in (2, 9):
        rich = ma.LoggedData(np.ones((n, 3)), np.zeros(n, dtype=int), np.full(n, 1e200), n_actions=5)
        with pytest.raises(errors.NumericalError, match="rewards"):
            ma.fit(rich, prior())


def test_arrays_inside_cannot_be_changed_by_accident():
    logs = ma.LoggedData(X.copy(), A, R)
    fitted = ma.fit(logs, prior())
    for array in (logs.contexts, logs.actions, fitted.weights.latent_mean, fitted.weights.action_mean()):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_integers_lists_and_booleans_are_welcome_where_they_mean_something():
    logs = ma.LoggedData([[1, 2], [3, 4]], [0, 1], [True, False])
    assert (logs.contexts.dtype, logs.actions.dtype, logs.rewards.dtype) == (np.float64, np.int64, np.float64)
    assert repr(logs) == "LoggedData(2 rounds, 2 actions, d=2)"
    assert logs.actions.base is not None


def test_a_mask_of_integers_is_not_read_as_ids():
    mask = np.zeros((4, 5), dtype=int)
    mask[:, 3] = 1
    with pytest.raises(errors.DataTypeError, match="dtype=bool"):
        ma.Uniform(5).actions(X, eligible=mask)


@pytest.mark.parametrize(
    "call",
    [
        lambda: ma.fit((X, A, R), prior()),
        lambda: ma.fit(ma.LoggedData(X, A, R), prior(), 1.0),
        lambda: ma.fit(ma.LoggedData(X, A, R), prior(), ma.Gaussian),
        lambda: ma.Greedy(prior()),
        lambda: ma.EpsilonGreedy(prior(), 0.1),
        lambda: ma.Logged(X),
        lambda: posterior().value(X, ma.Uniform(5)),
    ],
)
def test_an_argument_of_the_wrong_kind_is_refused_by_name(call):
    with pytest.raises(errors.DataTypeError, match="must be"):
        call()


def test_arrays_of_a_prior_are_its_own():
    mixing, cov = np.ones((5, 3, 2)), np.eye(3)
    given = prior(mixing=mixing, action_cov=cov)
    before = given.action_cov([0]).copy()
    mixing *= 10
    cov *= 10
    assert np.array_equal(given.action_cov([0]), before)
    table = sparse.csr_matrix(np.array([[0.5, 0.5]]))
    policy = ma.TablePolicy(table)
    table.data[:] = 9.0
    assert policy.probability_of(np.zeros((1, 1)), [0]) == [0.5]


def test_masked_values_are_not_ignored():
    with pytest.raises(errors.NonFiniteError, match="contexts has masked values; the first is in row 2"):
        ma.LoggedData(np.ma.masked_equal(X, 7.0), A, R)


def test_errors_in_sparse_tables_name_the_row():
    table = np.array([[0.5, 0.5, 0.0], [0.2, 0.8, 0.0], [1.2, -0.2, 0.0]])
    with pytest.raises(errors.PropensityError, match="row 2"):
        ma.TablePolicy(sparse.csr_array(table))
    with pytest.raises(errors.DataTypeError, match="must be real"):
        ma.TablePolicy(sparse.csr_array(table.astype(complex)))


def test_numbers_too_large_to_use_are_refused():
    for call in (lambda: ma.Gaussian(10**30 * 10**130), lambda: ma.Uniform(10**30), lambda: ma.Gaussian(1e170)):
        with pytest.raises(errors.RangeError):
            call()
