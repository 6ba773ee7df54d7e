"""A spec file says the same as flags, and is checked."""

import json
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose
from small_shop import done, in_python
from typer.testing import CliRunner

import manyarms as ma
from manyarms._base.job_options import TABLES, options_of
from manyarms.cli.flags_and_spec import read_spec
from manyarms.cli.main import app
from manyarms.errors import InputError


def test_a_spec_file_says_the_same_as_flags_and_flags_win(shop, tmp_path):
    text = f"""
        [logs]
        path = "{shop / "old"}"
        context = ["age", "city"]
        action = "item"
        reward = "click"
        [catalog]
        path = "{shop / "items.csv"}"
        id = "sku"
        category = "kind"
        [prior]
        learn = false
        action_std = 0.5
    """
    (tmp_path / "fit.toml").write_text(text)
    out = tmp_path / "model.arrow"
    done("fit", "--spec", tmp_path / "fit.toml", "--reward", "spend", "--action-std", 1, "--out", out)
    assert_allclose(ma.load(out).weights.action_mean(), in_python(shop, False).weights.action_mean(), rtol=1e-9)


def test_a_spec_is_typed_and_says_what_it_knows(tmp_path):
    def spec(text, **flags):
        (tmp_path / "s.toml").write_text(text)
        known = options_of(*(kind for kinds in TABLES.values() for kind in kinds))
        return read_spec(tmp_path / "s.toml", {"logs": "d", "action": "a", "reward": "r", **flags}, known)

    text = '[logs]\npath = "d"\nhalf_life = "14d"\nnow = 2024-05-01T00:00:00Z\n'
    assert spec(text, logs=None, effect_std=2, context=["a,b", "c"]) == {
        "logs": str(tmp_path / "d"),
        "context": ("a", "b", "c"),
        "action": "a",
        "reward": "r",
        "half_life": timedelta(days=14),
        "now": datetime(2024, 5, 1, tzinfo=UTC),
        "effect_std": 2.0,
    }
    for words, text, flags in (
        ("[logs] has no key 'rewards'; known are path, context", '[logs]\nrewards = "x"', {}),
        ("known are [logs], [catalog]", "[log]\n", {}),
        ("logs must be a table", "logs = 3", {}),
        ("logs.context must be a list of names", "[logs]\ncontext = 3", {}),
        ("prior.learn must be true or false", '[prior]\nlearn = "yes"', {}),
        ("logs.max_levels must be a whole number", "[logs]\nmax_levels = 2.5", {}),
        ("likelihood.kind must be one of gaussian, bernoulli", '[likelihood]\nkind = "clicks"', {}),
        ("is not TOML", "[logs", {}),
        ("--half-life must be a number and one of s, m, h, d, w", "", {"half_life": "two weeks"}),
        ("--now must be a time", "", {"now": "today"}),
        ("--missing must be one of refuse, drop", "", {"missing": "ignore"}),
    ):
        with pytest.raises(InputError) as caught:
            spec(text, **flags)
        assert words in str(caught.value)


@pytest.mark.parametrize("command", ["fit", "evaluate", "learn", "score", "update"])
def test_help_shows_an_example_that_parses(command):
    shown = done(command, "--help").stdout
    assert f"Example: manyarms {command} --" in shown.replace("\n", " ")


def test_a_spec_that_is_not_text_is_refused(tmp_path):
    (tmp_path / "spec.toml").write_bytes(b'[logs]\npath = "\xff\xfe"\n')
    with pytest.raises(InputError, match=r"spec\.toml is not text in UTF-8"):
        read_spec(tmp_path / "spec.toml", {}, {})


def test_options_of_a_spec_that_a_command_does_not_use_are_named(tmp_path):
    rng = np.random.default_rng(0)
    rows = {"age": rng.normal(size=40), "item": np.arange(40) % 4, "spend": rng.normal(size=40)}
    pq.write_table(pa.table(rows), tmp_path / "logs.parquet")
    spec = tmp_path / "s.toml"
    roles = '[logs]\npath = "logs.parquet"\ncontext = "age"\naction = "item"\nreward = "spend"\n'
    spec.write_text(f'{roles}[prior]\nkind = "independent"\nlearn = false\n')
    line = f"manyarms: note: this command does not use prior.kind, prior.learn from {spec}.\n"
    decided = CliRunner().invoke(app, ["decide", "--spec", str(spec), "--json"])
    assert line in decided.stderr and json.loads(decided.stdout)["verdict"], (decided.output, decided.exception)
    fitted = done("fit", "--spec", spec, "--out", tmp_path / "model.arrow")
    assert "note" not in fitted.stderr
    evaluated = done("evaluate", "--spec", spec, "--model", tmp_path / "model.arrow", "--policies", "greedy")
    assert "note" not in evaluated.stderr
