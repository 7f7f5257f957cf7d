"""Small programs of one communication pattern each: traced small, modelled, compared at N.

The sources are in tests/programs/patterns/; pattern_table.py says what of each must hold.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from captured_runs import check_runs
from paths import PROGRAMS
from tracer_helpers import the_mpi, usable_mpi

from p3s.base.errors import P3SError
from p3s.base.host.mpi import OPENMPI
from p3s.base.settings import traces_of
from p3s.base.study import Study
from p3s.capture import run_files
from p3s.model.compare import compare, overlap, predicted_tallies, true_triples
from p3s.model.comparison import Overlap
from p3s.model.evaluate import generate
from p3s.model.reasons import Verdict
from p3s.model.stage import load
from p3s.model.types import Model
from p3s.model.verdicts import judged_at
from p3s.pipeline.gather import put_runs
from p3s.pipeline.stages import fit_model
from p3s.signature.signature import characterize, read_alike
from p3s.signature.tables import PointTable, table_of
from p3s.signature_runner.launch import run_traced
from p3s.signature_runner.recording import CPU, Recording

LIMIT_S = 600.0
#: How much of a run the model has to say: every message, who talks to whom, nothing.
ALL, PAIRS, NOTHING = "all", "pairs", "nothing"
LEVELS = (NOTHING, PAIRS, ALL)


@dataclass(frozen=True)
class At:
    """A model beside the run at ``n`` processes; refused: why it says nothing there.

    order: ranks whose events are all in order; exact, exact_wrong: calls and weights that are
    called exact at ``n``, and the wrong ones.
    """

    n: int
    refused: str = ""
    pairs: Overlap = Overlap(0, 0, 0)
    triples: Overlap = Overlap(0, 0, 0)
    collectives: Overlap = Overlap(0, 0, 0)
    order: str = ""
    exact: int = 0
    exact_wrong: tuple[str, ...] = ()

    @property
    def level(self) -> str:
        """How much of the run the model says."""
        if self.refused:
            return NOTHING
        if self.triples.all_equal and self.collectives.all_equal:
            return ALL
        return PAIRS if self.pairs.all_equal else NOTHING


def build(source: Path, target: Path, *flags: str) -> list[str]:
    """Compile a program (C, Fortran or Python) and return the words that start it."""
    if source.suffix == ".py":
        return [sys.executable, str(source)]
    install = usable_mpi()
    compiler = fortran() if source.suffix == ".f90" else install.mpicc
    assert compiler is not None
    command = [compiler, *(flags or ("-O2",)), "-g", f"-I{PROGRAMS}", str(source)]
    subprocess.run(
        [*command, "-o", str(target), "-lm"],
        check=True,
        timeout=LIMIT_S,
        capture_output=True,
        cwd=target.parent,
    )
    return [str(target)]


def fortran() -> str | None:
    """Return the Fortran compiler of the tests' MPI, where there is one."""
    install = the_mpi()
    family = "openmpi" if install is not None and install.family == OPENMPI else "mpich"
    return shutil.which(f"mpifort.{family}")


def launched(words: Sequence[str]) -> list[str]:
    """Return the launcher command of a program, with {np}."""
    install = usable_mpi()
    return [install.mpiexec, "-n", "{np}", *words]


def traced(command: Sequence[str], n: int, run_dir: Path) -> Path:
    """Run a program traced and return the directory of its capture."""
    run_traced(list(command), n, run_dir, timeout_s=LIMIT_S, recording=Recording(CPU))
    return run_dir


def modelled(study_dir: Path, run_dirs: Sequence[Path], command: Sequence[str]) -> Model:
    """Return the model of captured runs, as `p3s add` and `p3s model` make it."""
    study = put_runs(study_dir, check_runs(study_dir, run_dirs, list(command)))
    for n in sorted({run.np for run in study.runs()}):
        characterize(traces_of(study), n)
    study.update()
    fit_model(study)
    return load(study.root)


def captured(study_dir: Path, model: Model, run_dir: Path) -> PointTable:
    """Return the table of a run as `p3s validate` reads it."""
    run = run_files(run_dir)
    part = read_alike(traces_of(Study.open(study_dir)), model.sites, list(run.files.values()))
    assert not part.problem, part.problem
    return table_of([part], [run.wall_ns], str(run_dir))


def compared(model: Model, table: PointTable) -> At:
    """Compare a model with a run, its verdicts those at the run's process count."""
    try:
        judged = judged_at(model, table.np)
        found = compare(judged, table)
    except P3SError as err:
        return At(table.np, refused=str(err))
    exact = {k for k, item in enumerate(judged.items) if item.verdict == Verdict.EXACT}
    sure = {p.phase for p in judged.phases if p.weight_verdict == Verdict.EXACT}
    weights = [w for w in found.weights.each if w.phase in sure]
    wrong = [_named(judged, k) for k in exact & set(found.items_wrong)]
    wrong += [
        f"weight of phase {w.phase}: {w.predicted} for {w.true}"
        for w in weights
        if w.true != w.predicted
    ]
    says, *_ = predicted_tallies(judged, generate(judged, table.np))
    return At(
        n=table.np,
        pairs=overlap(_pairs(true_triples(table)), _pairs(says)),
        triples=found.p2p_triples,
        collectives=found.collectives,
        order=f"{found.order.equal}/{found.order.ranks}" if found.order else "",
        exact=len(exact) + len(weights),
        exact_wrong=tuple(sorted(wrong)),
    )


def _named(model: Model, number: int) -> str:
    """Return a call's operation, number and place in the program."""
    item = model.items[number]
    return f"{item.op} (rule {number}) {(*model.sites.get(item.site, ()), item.site)[0]}"


def _pairs(triples: Counter[tuple[int, ...]]) -> Counter[tuple[int, ...]]:
    """Return who sends to whom, each pair once."""
    return Counter({(a, b) for (a, b, _), k in triples.items() if k > 0})


@dataclass(frozen=True)
class Program:
    """A program, the counts it is traced at, and those it is compared at.

    level: what the model says at all targets but those of ``open_at``, at which the traces allow
    several rules; why_not: what keeps it from saying all; flags: of the compiler.
    """

    source: str
    args: str
    counts: tuple[int, ...]
    targets: tuple[int, ...]
    level: str = ALL
    why_not: str = ""
    open_at: tuple[int, ...] = ()
    flags: tuple[str, ...] = ("-O2",)

    @property
    def id(self) -> str:
        """Its name in reports."""
        return "-".join([Path(self.source).stem, *self.args.split()])


@dataclass(frozen=True)
class Outcome:
    """The model of a program beside its runs; model_s: wall time of the model step."""

    model: Model
    model_s: float
    at: tuple[At, ...]


def outcome(program: Program, sources: Path, work: Path) -> Outcome:
    """Trace, model and compare a program in an empty directory."""
    source = sources / program.source
    words = build(source, work / source.stem, *program.flags)
    command = launched([*words, *program.args.split()])
    runs = [traced(command, n, work / f"np{n}") for n in program.counts]
    begin = time.perf_counter()
    model = modelled(work / "study", runs, command)
    seconds = time.perf_counter() - begin
    truth = [
        captured(work / "study", model, traced(command, n, work / f"at{n}"))
        for n in program.targets
    ]
    return Outcome(model, seconds, tuple(compared(model, table) for table in truth))
