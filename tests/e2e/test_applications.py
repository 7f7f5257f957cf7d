"""LAMMPS, GROMACS, HPCC and CP2K: the trace agrees with a second, trivial count of the same calls.

The second count is tests/counting/count.c. Both libraries together in one run must agree exactly,
rank by rank, also where the number of calls depends on timing. In two separate runs, each library
alone, what does not depend on timing must agree.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from conformance import check_sites
from paths import ROOT

from p3s.base import ops
from p3s.capture import read_run
from p3s.capture.callpath import call_path, stack
from p3s.capture.modules import Modules
from p3s.capture.sites import resolve
from p3s.signature_runner import build
from p3s.signature_runner.launch import run_traced

MPIEXEC = shutil.which("mpiexec.openmpi")
MPICC = shutil.which("mpicc.openmpi")

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.optional,
    pytest.mark.skipif(not (MPIEXEC and MPICC), reason="no Open MPI of Debian"),
]

COUNTER = ROOT / "tests" / "counting" / "count.c"
TIMEOUT_S = 240.0

Counts = dict[str, tuple[int, int]]


def _melt(folder: Path) -> None:
    shutil.copy("/usr/share/lammps/examples/melt/in.melt", folder)


WATER = """#include "oplsaa.ff/forcefield.itp"
#include "oplsaa.ff/spc.itp"
[ system ]
water
[ molecules ]
"""

STEPS = """integrator = md
nsteps = 60
dt = 0.0002
cutoff-scheme = Verlet
coulombtype = PME
rcoulomb = 0.9
rvdw = 0.9
gen-vel = yes
gen-temp = 300
gen-seed = 1
ld-seed = 1
tcoupl = v-rescale
tc-grps = System
tau-t = 0.1
ref-t = 300
"""


def _tool(folder: Path, *command: str) -> None:
    subprocess.run(
        command,
        cwd=folder,
        check=True,
        capture_output=True,
        timeout=TIMEOUT_S,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )


def _water(folder: Path) -> None:
    (folder / "topol.top").write_text(WATER)
    (folder / "md.mdp").write_text(STEPS)
    _tool(
        folder,
        "gmx_mpi",
        "solvate",
        "-cs",
        "spc216.gro",
        "-box",
        "3",
        "3",
        "3",
        "-o",
        "box.gro",
        "-p",
        "topol.top",
    )
    _tool(
        folder,
        "gmx_mpi",
        "grompp",
        "-f",
        "md.mdp",
        "-c",
        "box.gro",
        "-p",
        "topol.top",
        "-o",
        "run.tpr",
        "-maxwarn",
        "5",
    )


def _linpack(folder: Path, np: int) -> None:
    text = Path("/usr/share/doc/hpcc/examples/_hpccinf.txt").read_text()
    for old, new in (
        ("1000         Ns", "200 Ns"),
        ("2            Ps", "2 Ps"),
        ("2            Qs", f"{np // 2} Qs"),
    ):
        assert old in text
        text = text.replace(old, new)
    (folder / "hpccinf.txt").write_text(text)


def _argon(folder: Path) -> None:
    packed = Path("/usr/share/doc/cp2k/examples/argon.inp.gz")
    text = gzip.decompress(packed.read_bytes()) if packed.exists() else None
    (folder / "argon.inp").write_bytes(text or packed.with_suffix("").read_bytes())


@dataclass(frozen=True)
class Application:
    """One program: what must be there, how its input is made, and its command.

    ``varies`` are the calls whose number depends on timing or chance.
    """

    name: str
    needs: tuple[str, ...]
    command: tuple[str, ...]
    prepare: Callable[..., None]
    varies: frozenset[str] = frozenset()


APPLICATIONS = (
    Application(
        "lammps",
        ("lmp", "/usr/share/lammps/examples/melt/in.melt"),
        ("lmp", "-in", "in.melt", "-log", "none"),
        _melt,
    ),
    Application(
        "gromacs",
        ("gmx_mpi", "/usr/share/gromacs/top/oplsaa.ff"),
        (
            "gmx_mpi",
            "mdrun",
            "-s",
            "run.tpr",
            "-ntomp",
            "1",
            "-pin",
            "off",
            "-dlb",
            "no",
            "-notunepme",
            "-reprod",
        ),
        _water,
    ),
    Application(
        "hpcc",
        ("hpcc", "/usr/share/doc/hpcc/examples/_hpccinf.txt"),
        ("hpcc",),
        _linpack,
        varies=frozenset(
            "MPI_Iprobe MPI_Test MPI_Testany MPI_Wait MPI_Waitall MPI_Waitany MPI_Recv"
            " MPI_Irecv MPI_Send MPI_Isend MPI_Start MPI_Sendrecv MPI_Sendrecv_recv"
            # A rank drawn by lot does the tests of a single one.
            " MPI_Barrier MPI_Allreduce MPI_Gather".split()
        ),
    ),
    Application(
        "cp2k",
        ("cp2k.psmp", "/usr/share/doc/cp2k/examples/argon.inp.gz"),
        ("cp2k.psmp", "-i", "argon.inp"),
        _argon,
    ),
)


def cases() -> list[object]:
    """Each program at 4 and 8 ranks; only LAMMPS at 4 is quick."""
    return [
        pytest.param(
            app,
            np,
            id=f"{app.name}-{np}",
            marks=() if (app.name, np) == ("lammps", 4) else pytest.mark.slow,
        )
        for app in APPLICATIONS
        for np in (4, 8)
    ]


@pytest.fixture(scope="module")
def counter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("counting") / "count.so"
    assert MPICC is not None
    _tool(
        target.parent,
        MPICC,
        "-std=gnu11",
        "-O1",
        "-w",
        "-shared",
        "-fPIC",
        str(COUNTER),
        "-o",
        str(target),
        "-ldl",
    )
    return target


def prepared(app: Application, np: int, folder: Path) -> Path:
    """Make a directory with the input of a program; skips where something is missing."""
    for need in app.needs:
        if not (os.path.exists(need) or shutil.which(need)):
            pytest.skip(f"{app.name}: {need} is not installed")
    folder.mkdir()
    if app.prepare is _linpack:
        _linpack(folder, np)
    else:
        app.prepare(folder)
    return folder


def run(app: Application, np: int, folder: Path, run_dir: Path, *preload: Path) -> None:
    """Run a program in ``folder`` with libraries preloaded into it and nothing else."""
    assert MPIEXEC is not None
    run_dir.mkdir()
    settings = [
        "LD_PRELOAD=" + ":".join(map(str, preload)),
        f"P3S_TRACE_DIR={run_dir}",
        f"COUNT_DIR={run_dir}",
        "OMP_NUM_THREADS=1",
        "CP2K_DATA_DIR=/usr/share/cp2k",
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        run_traced(
            [MPIEXEC, "-n", "{np}", "env", *settings, *app.command],
            np,
            run_dir,
            timeout_s=TIMEOUT_S,
            trace=False,
        )


def counted(run_dir: Path, np: int) -> list[Counts]:
    """Return what the second library counted on each rank: name -> (calls, bytes)."""
    ranks = []
    for rank in range(np):
        lines = (run_dir / f"count-{rank:06d}.txt").read_text().splitlines()
        rows = [line.split() for line in lines]
        ranks.append({name: (int(calls), int(moved)) for name, calls, moved in rows})
    return ranks


def traced(run_dir: Path, np: int) -> list[Counts]:
    """Return what the trace has of each rank, in the terms of the second library.

    That counts starts of persistent requests, whatever they start, and no bytes of them nor of
    completions.
    """
    trace = read_run(run_dir)
    assert trace.np == np and trace.problem == ""
    ranks = []
    for rank in trace.ranks:
        events: Counter[str] = Counter()
        moved: Counter[str] = Counter()
        for number in rank.call.tolist():
            call = trace.calls[number]
            name = "MPI_Start" if call.op.endswith("_init") else call.op
            if name in ("MPI_Init", "MPI_Finalize") or not name.startswith("MPI_"):
                continue
            events[name] += 1
            if name != "MPI_Start" and ops.kind_of(name) != ops.COMPLETION:
                moved[name] += call.bytes
        ranks.append({name: (events[name], moved[name]) for name in events})
    return ranks


def check_equal(found: list[Counts], wanted: list[Counts]) -> None:
    """Assert that two counts are the same on every rank."""
    for rank, (one, other) in enumerate(zip(found, wanted, strict=True)):
        here, there = set(one.items()) - set(other.items()), set(other.items()) - set(one.items())
        assert not here and not there, f"rank {rank}: traced {here}, counted {there}"


def check_dump(run_dir: Path, ranks: list[Counts]) -> None:
    """Assert that `p3s dump --summary` prints the sums over the ranks of what was counted."""
    done = subprocess.run(
        [sys.executable, "-m", "p3s", "dump", str(run_dir), "--summary", "--json"],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        start_new_session=True,
        check=True,
    )
    (shown,) = json.loads(done.stdout)["runs"]
    assert shown["complete"] is True
    for name in {name for rank in ranks for name in rank}:
        rows = [rank[name] for rank in ranks if name in rank]
        wanted = (sum(calls for calls, _ in rows), sum(moved for _, moved in rows))
        if name == "MPI_Start":  # told apart by what was started, with its bytes
            started = [row for op, row in shown["calls"].items() if op.endswith("_init")]
            assert sum(row["events"] for row in started) == wanted[0]
        else:
            row = shown["calls"][name]
            assert (row["events"], row["bytes"]) == wanted, name


def check_places(run_dir: Path, app: Application) -> None:
    """Assert that call sites are the program's, and that calls in a library have names."""
    trace = read_run(run_dir)
    check_sites(trace)
    places, _ = resolve([f for site in trace.sites for f in site.frames], Modules(app.command))
    for site in trace.sites:
        path = call_path(stack(site.frames, places))
        assert path is not None
        shown = [path.place, *path.callers()]
        assert not path.library or not any(name.startswith("lib") for name in shown), shown


def tracer(app: Application) -> Path:
    program = shutil.which(app.command[0])
    return build.ensure_tracer(program=program, launcher=MPIEXEC).path


@pytest.mark.parametrize(("app", "np"), cases())
def test_both_libraries_in_one_run_agree_exactly(
    app: Application, np: int, counter: Path, tmp_path: Path
) -> None:
    folder = prepared(app, np, tmp_path / "work")
    both = tmp_path / "both"
    run(app, np, folder, both, counter, tracer(app))
    check_equal(traced(both, np), counted(both, np))
    check_dump(both, counted(both, np))


@pytest.mark.parametrize(("app", "np"), cases())
def test_separate_runs_agree_in_what_does_not_depend_on_timing(
    app: Application, np: int, counter: Path, tmp_path: Path
) -> None:
    # Programs append to, or start from, what an earlier run left: a place of its own for each.
    run(app, np, prepared(app, np, tmp_path / "one"), tmp_path / "alone", counter)
    run(app, np, prepared(app, np, tmp_path / "two"), tmp_path / "traced", tracer(app))

    def fixed(ranks: list[Counts]) -> list[Counts]:
        return [{k: v for k, v in rank.items() if k not in app.varies} for rank in ranks]

    check_equal(fixed(traced(tmp_path / "traced", np)), fixed(counted(tmp_path / "alone", np)))
    check_places(tmp_path / "traced", app)
