"""The process grid on the command line, on a real program: as arguments, as a statement, and the
counts that show it."""

from __future__ import annotations

import json
import shutil

import pytest
from commands import p3s
from paths import PROGRAMS
from tracer_helpers import compile_c, the_mpi

SOURCE = PROGRAMS / "box.c"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A directory with the program."""
    folder = tmp_path_factory.mktemp("box")
    compile_c(SOURCE, folder / "box")
    return folder


def command(*arguments):
    return ["--", the_mpi().mpiexec, "-n", "{np}", "./box", *arguments]


@pytest.fixture(scope="module")
def given(place):
    """A study of the program with its grid as arguments, all faces from one call."""
    done = p3s(
        "characterize -n 2,4,8,12 --dims 12=4x3x1 -o given",
        *command("{px}", "{py}", "{pz}", "one"),
        cwd=place,
    )
    first = done.err.splitlines()[0]
    assert first.startswith(
        "note: -n 2,4,8,12 has at most two ranks in one dimension of a 3-D grid"
    )
    assert "4x3x1" in done.out
    return place / "given"


def validated(place, study, n, *more):
    done = p3s(f"validate {study} -n {n} --json", *more, code=None, cwd=place)
    messages = done.data["p2p_triples"]
    return messages["true"], messages["predicted"], messages["equal"], done


def test_the_grid_as_arguments_reaches_the_program_and_the_model(place, given):
    info = json.loads((given / "runs" / "np0012.r0" / "run.json").read_text())
    assert info["argv"][-4:-1] == ["4", "3", "1"] == [str(p) for p in info["dims"]]
    assert "{px}" in info["command"]
    done = p3s("model given", code=None, cwd=place)
    assert "12: 4x3x1), as in the program's arguments" in " ".join(done.out.split())
    model = json.loads((given / "model.json").read_text())
    assert model["grid"]["family"]["listed"] == [[12, [4, 3, 1]]]


def test_a_run_at_another_count_gets_the_grid_of_the_rule_or_the_one_listed(place, given):
    true, predicted, equal, done = validated(place, "given", 6)
    assert true == predicted == equal
    assert "np=6: not in --dims; the program gets 3x2x1, as of MPI_Dims_create" in done.err
    true, predicted, equal, done = validated(place, "given", 6, "--dims", "6=2x3x1")
    assert true == predicted == equal and "not in --dims" not in done.err
    info = json.loads((given / "validate" / "np000006.r0" / "run.json").read_text())
    assert info["dims"] == [2, 3, 1]
    p3s("validate given -n 12 --dims 12=3x2x2", code=2, cwd=place, err="were traced as 4x3x1")


def test_signatures_smaller_inputs_and_times_get_the_same_grid(place, given):
    p3s(
        "characterize --signature -n 12 -o given",
        *command("{px}", "{py}", "{pz}", "one"),
        cwd=place,
    )
    info = json.loads((given / "runs" / "np0012.r0" / "run.json").read_text())
    assert info["dims"] == [4, 3, 1]
    p3s(
        "characterize --far -n 12 -o given",
        *command("{px}", "{py}", "{pz}", "one", "smaller"),
        cwd=place,
    )
    (run,) = (given / "far").glob("*/runs/np0012.r0/run.json")
    assert json.loads(run.read_text())["dims"] == [4, 3, 1]
    words = ["baseline", "run", "-n", "4", "-r", "1", "-o", "times.json"]
    for dims, code in ((["--dims", "4=1x1x4"], 0), ([], 0), (["--dims", "4=4x1x1"], 2)):
        p3s(*words, *dims, *command("{px}", "{py}", "{pz}"), code=code, cwd=place)
    assert json.loads((place / "times.json").read_text())["dims"] == {"4": [1, 1, 4]}


def test_a_lost_manifest_and_runs_that_are_added_keep_the_extents(place, given):
    shutil.copytree(given, place / "lost")
    (place / "lost" / "study.json").unlink()
    true, predicted, equal, _ = validated(place, "lost", 12)
    assert true == predicted == equal
    p3s(
        "add added given/runs/np0012.r0 given/runs/np0008.r0 given/runs/np0004.r0",
        *command("{px}", "{py}", "{pz}", "one"),
        cwd=place,
    )
    kept = json.loads((place / "added" / "runs" / "np0012.r0" / "run.json").read_text())
    assert kept["dims"] == [4, 3, 1]
    p3s(
        "add other given/runs/np0012.r0",
        *command("{px}", "{py}", "{pz}"),
        code=2,
        cwd=place,
        err="are no arguments of",
    )


def test_a_statement_changes_the_model_is_checked_and_is_taken_back(place):
    done = p3s("characterize -n 2,4,8,12 -o own", *command("0", "0", "0", "one"), cwd=place)
    true, _, equal, _ = validated(place, "own", 18)
    assert true == equal
    done = p3s("model own --grid 3", code=None, cwd=place)
    assert "stated: 3 dimensions" in " ".join(done.out.split())
    true, predicted, equal, _ = validated(place, "own", 18)
    assert true == predicted == equal
    before = (place / "own" / "study.json").read_text()
    for words, why in (
        (["--grid", "none,1"], "does not fit the traces"),
        (["--grid", "2x2x3@12", "--fastest", "first"], "does not fit the traces"),
        (["--grid", "2x2@12"], "does not fit the traces"),
        (["--grid", "4x4@12"], "4x4 is 16, not 12"),
    ):
        refused = p3s("model own", *words, code=2, cwd=place)
        assert why in refused.err.splitlines()[-1]
        assert (
            json.loads((place / "own" / "study.json").read_text())["grid"]
            == json.loads(before)["grid"]
        )
    done = p3s("model own --grid 3x2x2@12 --fastest first", code=None, cwd=place)
    assert "stated: 3x2x2 at 12, dimension 0 fastest" in " ".join(done.out.split())
    done = p3s("model own --grid none", code=None, cwd=place)
    assert "stated" not in done.out
    assert validated(place, "own", 18)[2] == true


@pytest.mark.parametrize(
    ("takes", "counts", "refused"), [([], [2, 4, 6, 8], []), (["powers"], [1, 2, 4, 8], [6])]
)
def test_counts_up_to_a_maximum_are_those_that_the_program_takes(place, takes, counts, refused):
    name = "".join(["up", *takes])
    done = p3s(f"characterize -n ..8 -o {name} --json", *command("0", "0", "0", *takes), cwd=place)
    told = done.data
    assert told["characterized"] == counts == [row["np"] for row in told["counts"]]
    assert [row["np"] for row in told["failed"]] == refused
    assert "-n ..8: 2, 4, 6 and 8 are traced" in done.err
    if refused:
        assert "the program refuses 6 processes (exit code 3): 1 is traced instead" in done.err
    p3s(
        f"characterize -n ..8 -o {name}",
        *command("0", "0", "0", *takes),
        cwd=place,
        err="no other count would tell more",
    )


def test_a_program_that_takes_nothing_is_not_asked_for_ever(place):
    done = p3s("characterize -n ..8 -o nothing", *command("5", "5", "5"), code=1, cwd=place)
    assert done.err.count("is traced instead") <= 1
    assert done.err.count(": failed") <= 8
