"""Far points of a program that was built again, with another input compiled in."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from commands import cli
from paths import EXAMPLES
from test_far_cli import far, fingerprint, launch, refused
from tracer_helpers import compile_c, the_mpi

from p3s.base.study import Study
from p3s.costs.small_runs.sites import names_in
from p3s.model.stage import load
from p3s.pipeline.costing import other_points
from p3s.signature.store import load_table

#: A ring of SIZE cells; what the compiler makes of the loops depends on it.
CODE = """
#include <mpi.h>
#include <stdlib.h>
#ifdef SMALL
static int extra(int k) { volatile int all = 0; for (int i = 0; i < k; i++) all += i * k;
                          return all; }
#endif
static double *cells;
static void compute(int n)
{
    for (int s = 0; s < 20; s++)
        for (int i = 1; i < n; i++)
            cells[i] = 0.5 * cells[i - 1] + 1.0 / (1.0 + cells[i]);
}
static void pass_on(int n, int to, int from)
{
    MPI_Sendrecv(cells, n, MPI_DOUBLE, to, 1, cells + n, n, MPI_DOUBLE, from, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    compute(n);
    MPI_Sendrecv(cells, n / 2, MPI_DOUBLE, from, 1, cells + n, n / 2, MPI_DOUBLE, to, 1,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}
int main(int argc, char **argv)
{
    int n, r;
    double all, one = 1;
    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    MPI_Comm_rank(MPI_COMM_WORLD, &r);
    cells = calloc(2 * (SIZE / n) + 2, sizeof *cells);
#ifdef SMALL
    cells[0] = extra(n);
#endif
    for (int k = 0; k < TURNS; k++) {
        compute(SIZE / n);
        pass_on(SIZE / n, (r + 1) % n, (r + n - 1) % n);
        MPI_Allreduce(&one, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return 0;
}
"""
LARGE = ("-DSIZE=40000", "-DTURNS=30")
SMALL = ("-DSIZE=5000", "-DTURNS=60", "-DSMALL")
#: Without debug information, without symbols.
BUILDS = {"line": (), "function": ("-g0",), "structure": ("-g0", "-s")}
WORDS = "by functional similarity"


def built(folder: Path, name: str, *flags: str, code: str = CODE) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return compile_c(code, folder / name, *flags)


@pytest.fixture(scope="module", params=list(BUILDS))
def made(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path, Path]:
    """Return the kind of build, its directory, and a modelled study of the larger one."""
    if the_mpi() is None:
        pytest.skip("no MPI")
    how = str(request.param)
    folder = tmp_path_factory.mktemp(how)
    program = built(folder / "large", "heat.L", *LARGE, *BUILDS[how])
    root = folder / "study"
    cli(f"characterize -n 2,3,4 --work cpu -o {root}", *launch(program))
    cli(f"model {root}", code=(0, 3))
    return how, folder, root


def test_another_build_gives_far_points(made: tuple[str, Path, Path], tmp_path: Path) -> None:
    how, folder, original = made
    root = shutil.copytree(original, tmp_path / "study")
    program = built(folder / "small", "heat.S", *SMALL, *BUILDS[how])
    far(root, "-n", "2", *launch(program), out=f"its places were matched {WORDS}")
    told = far(root, "-n", "4", "--json", *launch(program)).data
    assert told["places"] == WORDS and told["matched"]["error"] is None
    rows = {r["np"]: r for r in told["matched"]["rows"] if "Sendrecv" in r["name"]}
    for np in (2, 4):  # 1/8 of the cells
        assert rows[np]["n"] == pytest.approx(8 * np, rel=0.02)
        assert rows[np]["turns"] == 60

    study = Study(root)
    other = Study(root / "far" / "w1")
    model = load(root)
    known = {p.place for ph in model.phases for p in ph.work.places}
    program.unlink()  # how places are matched does not depend on it
    assert {p.place for p in other_points(study, model)[0]} <= known
    # the places are not mixed up: the larger message is that of the first call
    sizes: dict[str, dict[str, int]] = {}
    for each in (study, other):
        own = [load_table(root, 2)]
        t = load_table(each.root, 2)
        t = names_in(own, t).table(t)
        for row, group in enumerate(t.group.tolist()):
            g = t.groups[group]
            if g.op == "MPI_Sendrecv":
                sizes.setdefault(each.root.name, {})[g.site] = int(t.nbytes[row])
    assert set(sizes["w1"]) == set(sizes["study"])
    assert all(sizes["study"][s] == 8 * b for s, b in sizes["w1"].items())


def test_the_same_command_after_the_program_was_built_again(
    made: tuple[str, Path, Path], tmp_path: Path
) -> None:
    how, folder, original = made
    root = shutil.copytree(original, tmp_path / "study")
    program = folder / "large" / "heat.L"
    kept = shutil.copy2(program, tmp_path / "heat.L")
    assert "the study's own workload" in refused(root, ["-n", "2", *launch(program)], 2)
    try:
        built(folder / "large", "heat.L", *SMALL, *BUILDS[how])
        far(root, "-n", "2", *launch(program), out=f"its places were matched {WORDS}")
        assert Study(root / "far" / "w1").signature_counts() == [2]
    finally:
        shutil.copy2(kept, program)


def test_a_different_program_stays_refused(made: tuple[str, Path, Path], tmp_path: Path) -> None:
    how, folder, original = made
    root = shutil.copytree(original, tmp_path / "study")
    # the same calls of the same functions in other loops
    other = CODE.replace(
        "MPI_Allreduce",
        "}\n    for (int k = 0; k < TURNS; k++) {"
        "\n        compute(SIZE / n);\n        MPI_Allreduce",
    )
    program = built(folder / "other", "heat.O", *SMALL, *BUILDS[how], code=other)
    before = fingerprint(root)
    error = refused(root, ["-n", "2", *launch(program)], 1)
    assert "a different program: " in error
    assert fingerprint(root) == before


@pytest.mark.parametrize("flags", BUILDS.values(), ids=BUILDS)
def test_examples_are_different_programs(flags: tuple[str, ...], tmp_path: Path) -> None:
    if the_mpi() is None:
        pytest.skip("no MPI")
    ring, jacobi = (
        compile_c(EXAMPLES / f"{name}.c", tmp_path / name, *flags, "-lm")
        for name in ("ring", "jacobi2d")
    )
    root = tmp_path / "study"
    cli(f"characterize -n 2,3,4 --work cpu -o {root}", *launch(ring, "--bodies", 2000))
    assert "a different program: " in refused(
        root, ["-n", "2", *launch(jacobi, "--nx", 100, "--ny", 100)], 1
    )
