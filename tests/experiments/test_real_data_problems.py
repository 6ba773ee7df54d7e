"""Worlds made of real data: their truth is that of the ratings, by enumeration on small data of the same format."""

import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import load_digits

import manyarms as ma
from manyarms import datasets
from manyarms.errors import DataFileError, InputError
from manyarms.experiments.real_data_problems import (
    DigitsProblem,
    JesterProblem,
    KuaiRecProblem,
    MovieLensProblem,
    OpenBanditProblem,
)

HALF = 0.5


def truth_by_hand(environment, allowed=None):
    """The mean over test users of the best rating, and of half the best and half a random one."""
    ratings = np.asarray(environment.matrix.todense() if hasattr(environment.matrix, "todense") else environment.matrix)
    ratings = ratings[environment.test_users]
    allowed = np.ones(ratings.shape, dtype=bool) if allowed is None else allowed[environment.test_users]
    best = np.where(allowed, ratings, -np.inf).max(axis=1)
    even = np.where(allowed, ratings, 0.0).sum(axis=1) / allowed.sum(axis=1)
    return best.mean(), (HALF * best + HALF * even).mean()


def test_jester_is_a_world_of_ratings_of_half_of_the_jokes(made_up):
    world = JesterProblem(str(made_up)).draw(np.random.default_rng(0))
    assert world.known.n_actions == 50 and world.known.learnable.n_actions == 50
    best, target = truth_by_hand(world.environment)
    assert_allclose([world.best_value, world.target_value], [best, target])
    logs = world.log(300, np.random.default_rng(1))
    ratings = datasets.load_jester(made_up / "jester")
    # Every reward is a rating that the user gave.
    assert np.isin(logs.rewards.round(5), np.asarray(ratings).round(5)).all()


def test_digits_reward_the_right_name_of_an_image():
    world = DigitsProblem().draw(np.random.default_rng(0))
    pixels, labels = load_digits(return_X_y=True)
    contexts = np.column_stack([np.ones(len(pixels)), pixels / 16.0])
    logs = world.log(200, np.random.default_rng(1))
    rows = [int(np.flatnonzero((contexts == x).all(axis=1))[0]) for x in logs.contexts]
    assert_allclose(logs.rewards, labels[rows] == logs.actions)
    assert world.best_value == 1.0 and world.target_value == pytest.approx(HALF + HALF / 10)
    assert len(np.unique(world.known.clusters)) == 5


@pytest.mark.parametrize("half", [False, True])
def test_movielens_has_a_target_that_knows_the_prior_and_not_the_truth(made_up, half):
    problem = MovieLensProblem(str(made_up), half=half, target="prior", n_actions=40, n_components=3)
    world = problem.draw(np.random.default_rng(0))
    x, environment = world.contexts[:200], world.environment
    assert world.known.n_actions == 40 and world.known.prior.latent_dim == 15
    favourite = (x @ world.known.prior.action_mean().T).argmax(axis=1)
    expected = np.full((200, 40), HALF / 40)
    expected[np.arange(200), favourite] += HALF
    assert_allclose(world.target.probabilities(x), expected)
    means = world.contexts @ environment.weights.T
    assert_allclose(world.best_value, means.max(axis=1).mean())
    taken = means[np.arange(len(means)), (world.contexts @ world.known.prior.action_mean().T).argmax(axis=1)]
    assert_allclose(world.target_value, (HALF * taken + HALF * means.mean(axis=1)).mean())


def test_kuairec_without_its_big_matrix_is_refused(made_up, tmp_path):
    folder = tmp_path / "kuairec"
    shutil.copytree(made_up / "kuairec", folder)
    (folder / "big_matrix.csv").unlink()
    with pytest.raises(DataFileError, match=r"big_matrix\.csv is missing beside small_matrix"):
        KuaiRecProblem(str(folder)).draw(np.random.default_rng(0))


def test_the_published_part_of_kuairec_is_split_into_prior_and_rewards(tmp_path):
    rng = np.random.default_rng(0)
    users, videos = (part.reshape(-1) for part in np.meshgrid(np.arange(40), np.arange(30), indexing="ij"))
    ratios = rng.uniform(0.1, 8.0, size=1200).round(3)
    watched = {"user_id": users, "video_id": videos, "watch_ratio": ratios}
    pq.write_table(pa.table(watched), tmp_path / "small_matrix_subsample_watch_ratio.parquet")
    levels = {"first": np.arange(30) % 4, "second": 10 + np.arange(30) % 3, "third": np.full(30, -124)}
    paths = {"video_id": np.arange(30)} | {f"{name}_level_category_id": ids for name, ids in levels.items()}
    pq.write_table(pa.table(paths), tmp_path / "kuairec_caption_category.parquet")
    world = KuaiRecProblem(str(tmp_path)).draw(np.random.default_rng(1))
    environment, table = world.environment, ratios.reshape(40, 30)
    allowed = np.zeros((40, 30), dtype=bool)
    for user in range(40):
        allowed[user, environment.eligible([user]).tocsr().indices] = True
    # The other half of the cells of each user went into the prior.
    assert allowed.sum() == 600 and (allowed.sum(axis=1) == 15).all()
    assert_allclose([world.best_value, world.target_value], truth_by_hand(environment, allowed))
    logs = world.log(200, rng)
    assert allowed[logs.groups, logs.actions].all()
    # A reward is a watch ratio over the largest of the same user, of which none is as long as ten.
    assert_allclose(logs.rewards, (table / table.max(axis=1, keepdims=True))[logs.groups, logs.actions])
    assert len(np.unique(world.known.clusters)) == 4 and world.known.clusters_given


def test_the_value_of_a_learned_policy_on_open_bandit_logs_is_not_made_up(made_up):
    world = OpenBanditProblem(str(made_up)).draw(np.random.default_rng(0))
    with pytest.raises(InputError, match=r'not known on these logs\. Run evaluation only \("ope"\)'):
        world.value(ma.Uniform(world.known.n_actions))
