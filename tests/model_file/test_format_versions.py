"""Files of older versions open; files of newer versions are refused with the part that is unknown."""

import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from saved_models import FORMS, brief

import manyarms as ma
from manyarms import errors
from manyarms.model_file import arrow_file
from manyarms.model_file.registry import MODELS, PARTS, kind_of
from manyarms.model_file.save import describe


def test_a_file_of_a_newer_version_says_so(tmp_path, model, monkeypatch):
    monkeypatch.setattr(arrow_file, "FORMAT_VERSION", 3)
    model.save(tmp_path / "model")
    monkeypatch.undo()
    with pytest.raises(
        errors.ModelFileError,
        match=r"written by a newer manyarms: its format is 3, and this version reads up to 1\. Upgrade",
    ):
        ma.load(tmp_path / "model")


def test_a_kind_that_is_not_known_is_not_made(tmp_path):
    objects = [{"kind": "os.system", "parts": {"command": "true"}}]
    arrow_file.write(tmp_path / "model", {"objects": objects}, [])
    with pytest.raises(
        errors.ModelFileError, match=r"holds a 'os\.system', which this version of manyarms does not know"
    ):
        ma.load(tmp_path / "model")
    assert all(kind_of(name).__module__.startswith("manyarms.") for name in MODELS | PARTS)


@pytest.mark.parametrize("kind", ["epsilon-greedy", "reward posterior", "action covariance", "mixed effects"])
def test_a_part_that_only_a_newer_manyarms_writes_is_named_and_not_called_damage(kind, tmp_path, model):
    described, arrays = describe(model)
    entry = next(entry for entry in described["objects"] if entry["kind"] == kind)
    # What a newer one refers to may be of a form that is not known here.
    entry["parts"]["added"] = {"table": 3}
    arrow_file.write(tmp_path / "model", described, arrays)
    with pytest.raises(
        errors.ModelFileError,
        match=rf"newer manyarms: it holds a '{kind}' with 'added', which this version does not know. Upgrade manyarms",
    ) as caught:
        ma.load(tmp_path / "model")
    assert str(tmp_path / "model") in str(caught.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: data["features"][0].update(clip=3.0), "a 'numeric' feature with 'clip'"),
        (lambda data: data["features"][0].update(kind="spline"), "a 'spline' feature"),
        (lambda data: data.update(interactions=[]), "a feature map with 'interactions'"),
    ],
)
def test_features_of_a_newer_manyarms_are_named_and_not_called_damage(change, words, tmp_path, model):
    described, arrays = describe(model)
    entry = next(entry for entry in described["objects"] if entry["kind"] == "feature map")
    data = json.loads(entry["parts"]["json"])
    change(data)
    entry["parts"]["json"] = json.dumps(data)
    arrow_file.write(tmp_path / "model", described, arrays)
    with pytest.raises(
        errors.ModelFileError, match=f"newer manyarms: it holds {words}, which this version does not know"
    ):
        ma.load(tmp_path / "model")


def test_a_file_from_before_a_part_was_added_opens_with_its_default(tmp_path, model):
    described, arrays = describe(model)
    later = {"reward posterior": ("as_of", "converged"), "fingerprint": ("until",), "statistics": ("counted",)}
    for entry in described["objects"]:
        for name in later.get(entry["kind"], ()):
            del entry["parts"][name]
    arrow_file.write(tmp_path / "model", described, arrays)
    got = ma.load(tmp_path / "model")
    assert brief(got) == brief(model)
    posterior = got.policy.posterior
    assert (posterior.as_of, posterior.converged, posterior.learned_from[0].until) == (None, True, None)
    assert posterior.statistics.counted


def test_a_kind_knows_the_parts_that_it_writes_and_no_others():
    for form in ("features, catalog, weights", "taxonomy", "Hurdle"):
        posterior, _ = FORMS[form](np.random.default_rng(0))
        described, _ = describe(posterior)
        for entry in described["objects"]:
            assert entry["parts"].keys() == set(kind_of(entry["kind"]).part_names())


OLD_FILES = Path(__file__).parent / "old_files"


@pytest.fixture
def old_models(tmp_path):
    """A posterior and a policy that manyarms saved before its modules were renamed (commit b5da56c), and their results.

    The posterior has a catalog, a feature map and a learned prior; the policy is epsilon-greedy around a pessimistic
    one, learned from the same posterior.
    """
    for name in ("posterior", "policy"):
        (tmp_path / name).write_bytes(gzip.decompress((OLD_FILES / f"{name}.arrow.gz").read_bytes()))
    expected = json.loads((OLD_FILES / "expected.json").read_text())
    return ma.load(tmp_path / "posterior"), ma.load(tmp_path / "policy"), expected


def test_a_posterior_saved_before_modules_were_renamed_gives_the_same_results(old_models):
    posterior, _, expected = old_models
    contexts = pa.table(expected["table"])
    assert repr(posterior) == expected["repr"]
    assert list(posterior.features.names) == expected["features"]
    assert posterior.log_evidence == expected["log_evidence"]
    assert posterior.likelihood.noise_std == expected["noise_std"]
    assert posterior.learned_from[0].origin == expected["origin"]
    everyone = np.arange(posterior.n_actions)
    got = {
        "action_mean": posterior.weights.action_mean(),
        "action_cov": posterior.weights.action_cov(everyone),
        "expected_reward": posterior.expected_reward(contexts),
        "reward_std": posterior.reward_std(contexts, [0, 1, 4, 5]),
    }
    for name, values in got.items():
        np.testing.assert_allclose(values, expected[name], rtol=1e-12, atol=1e-14, err_msg=name)
    catalog = posterior.catalog
    assert catalog.ids.tolist() == [f"item {a}" for a in everyone]
    assert catalog.categories.tolist() == ["tea", "mug", "tea", None, "mug", "tea"]
    assert catalog.tags == tuple(("new",) if a % 2 else {"old": 0.5} for a in everyone)
    assert catalog.paths == tuple(("home", f"room {a % 2}") for a in everyone)
    assert catalog.embeddings.tolist() == np.arange(12.0).reshape(6, 2).tolist()


def test_a_policy_saved_before_modules_were_renamed_makes_the_same_choices(old_models):
    posterior, policy, expected = old_models
    contexts = pa.table(expected["table"])
    assert (policy.epsilon, policy.policy.delta) == (0.2, 0.1)
    np.testing.assert_allclose(policy.probabilities(contexts), expected["probabilities"], rtol=1e-12)
    assert policy.learned_from == posterior.learned_from
    assert policy.catalog.ids.tolist() == posterior.catalog.ids.tolist()
