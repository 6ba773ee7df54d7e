from collections import Counter
from dataclasses import replace

import pytest

from trust import covering_tests, mutations
from trust.covering_tests import LineMap
from trust.mutants import LIBRARY, Mutant, chosen_mutants, mutants_of


def row(kind: str, caught_by: str = "") -> dict[str, object]:
    return {
        "case": 3,
        "mutant": "a.py | f | kind | text | a -> b",
        "line": 3,
        "package": "core",
        "kind": kind,
        "caught_by": caught_by,
    }


def mutant_in(file: str, function: str, operator: str) -> Mutant:
    matching = [
        mutant for mutant in mutants_of(LIBRARY / file) if (mutant.function, mutant.operator) == (function, operator)
    ]
    return matching[0]


def test_every_package_has_mutants_of_many_kinds():
    mutants = chosen_mutants()
    packages = {path.name for path in LIBRARY.iterdir() if (path / "__init__.py").exists()}
    counts = Counter(mutant.package for mutant in mutants)
    assert len(mutants) >= 120
    assert packages <= set(counts)
    assert min(counts.values()) >= 4
    assert len({mutant.operator for mutant in mutants}) >= 10
    assert len({mutant.key for mutant in mutants}) == len(mutants)


def test_a_mutant_differs_from_its_file_in_one_piece():
    for mutant in chosen_mutants()[:30]:
        source = (LIBRARY / mutant.file).read_bytes()
        changed = mutant.applied(source)
        assert changed != source
        assert changed[: mutant.start] == source[: mutant.start]
        assert changed.endswith(source[mutant.end :])


def test_errors_annotations_and_texts_are_left_alone():
    operators = {mutant.text for mutant in mutants_of(LIBRARY / "errors.py")}
    assert not any(text.startswith(("raise", '"""', "from", "import")) for text in operators)
    assert not any(mutant.function.endswith("__repr__") for mutant in mutants_of(LIBRARY / "core/catalog.py"))


def test_tests_of_the_package_come_first_and_then_the_fastest():
    mutant = replace(chosen_mutants()[1], file="core/labels.py", run_lines=(5, 6))
    seconds = {"tests/cli/test_a.py::a": 0.1, "tests/core/test_b.py::b": 3.0, "tests/core/test_c.py::c": 1.0}
    tests = {"core/labels.py": {5: list(seconds)[:2], 6: list(seconds)[2:], 7: []}}
    order = [test for test, _ in covering_tests.covering_tests(mutant, [LineMap(seconds, tests)])]
    assert order == ["tests/core/test_c.py::c", "tests/core/test_b.py::b", "tests/cli/test_a.py::a"]


@pytest.mark.slow
def test_a_bug_is_caught_and_the_library_itself_is_not():
    mutant = mutant_in("linalg/indexing.py", "all_pairs", "changed arithmetic")
    test = "tests/linalg/test_block_cholesky.py::test_sparse_cholesky_solves_as_the_dense_one[tree-0]"
    steps = [([test], 1.0)]
    control = replace(mutant, after=(LIBRARY / mutant.file).read_bytes()[mutant.start : mutant.end].decode())
    assert mutations.run_mutant(mutant, steps).caught_by == test
    assert mutations.run_mutant(control, steps).caught_by == ""


def test_too_many_survivors_break_the_threshold():
    caught, survivor = row("mutant", "tests/a.py::a"), row("mutant")
    outcome = mutations.summarise_mutants([caught] * 19 + [survivor, row("equivalent"), row("control")])
    assert outcome.holds
    assert outcome.measured == "19 of 20 caught (95.0%)"
    assert outcome.notes[0].startswith("Survived: a.py | f")
    assert not mutations.summarise_mutants([caught] * 18 + [survivor] * 2).holds


def test_a_survivor_that_is_shown_to_be_equivalent_no_longer_counts(monkeypatch):
    monkeypatch.setattr(mutations, "equivalent_mutants", lambda: {str(row("mutant")["mutant"]): "It is the same."})
    outcome = mutations.summarise_mutants([row("mutant", "tests/a.py::a"), row("mutant")])
    assert outcome.measured == "1 of 1 caught (100.0%)"
    assert outcome.notes[0].startswith("1 mutants are equivalent")


def test_a_verdict_lasts_as_long_as_the_file_with_its_test():
    test = "tests/trust/test_mutations.py::test_a"
    mine = {"mutant": mutations.mutant_of(3).key}
    caught = row("mutant", test) | mine | {"tests": mutations.state_of_tests(test)}
    survivor = row("mutant") | mine | {"tests": mutations.state_of_tests("")}
    assert mutations.is_current(caught)
    assert mutations.is_current(survivor)
    assert not mutations.is_current(caught | {"tests": "another state"})
    assert not mutations.is_current(survivor | {"tests": caught["tests"]})
    assert not mutations.is_current(caught | {"case": 4})


def test_a_control_that_fails_breaks_the_check():
    outcome = mutations.summarise_mutants([row("mutant", "tests/a.py::a"), row("control", "tests/a.py::a")])
    assert not outcome.holds
    assert "tests/a.py::a" in outcome.notes[0]


def test_statements_that_no_test_runs_break_the_threshold():
    files = [file.relative_to(LIBRARY).as_posix() for file in LIBRARY.rglob("*.py")]
    lines = {file: [lines[0] for lines in mutations.statements_of(file)] for file in files}
    half = {file: numbers[::2] for file, numbers in lines.items()}

    def outcome(run, n_folders):
        return mutations.summarise_lines([{"folder": "core", "tests": 3, "lines": run}] * n_folders)

    everything = len(covering_tests.FOLDERS)
    assert outcome(lines, everything).holds
    assert not outcome(half, everything).holds
    assert "does not apply" in outcome(half, 1).notes[1]
    # What only runs on a GPU does not count, and the page says so.
    without = {file: numbers for file, numbers in lines.items() if file not in mutations.ON_A_GPU}
    assert outcome(without, everything).measured.startswith("100.0%")
    assert all(file in outcome(without, everything).notes[0] for file in mutations.ON_A_GPU)


def test_every_equivalent_mutant_is_in_the_library_and_says_why():
    for key, why in mutations.equivalent_mutants().items():
        file = LIBRARY / key.split(" | ")[0]
        # The campaign chooses some of them at random, and others after a change.
        assert key in {mutant.key for mutant in mutants_of(file)}, f"no longer a mutant: {key}"
        assert why.endswith(".")


@pytest.mark.slow
def test_the_lines_of_a_folder_are_recorded(tmp_path, monkeypatch):
    pytest.importorskip("coverage")
    monkeypatch.setattr(covering_tests, "MAPS", tmp_path)
    outcome = mutations.summarise_lines([mutations.measure_lines(covering_tests.FOLDERS.index("_base"))])
    assert "tests" in outcome.measured
