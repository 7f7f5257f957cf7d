"""How time and memory of the commands grow with what they are given.

    python benchmarks/all.py --only load,load:ranks,load:appends,load:together

Captures are written without a program (tests/helpers/load_captures.py), but for the lines of a
program: `appends` and `processes`. Every command is a process of its own.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from figures import P3S, ROOT, Figure, Found, Point, chosen_mpi, whole
from load_captures import Program, halo, many_comms, many_sites, write_study

#: Events of a turn of the halo.
TURN = 6
#: Names the directory of another MPI: its bin has mpicc and mpiexec.
MPI = "P3S_BENCH_MPI"
#: What lets MPICH 5 run many ranks on few cores: who waits sleeps, and 64 ranks share memory, as
#: if they were on a node of their own (one process manager of all 512 does not get them started).
CROWDED = (
    *("-launcher", "fork", "-ppn", "64", "-hosts", ",".join(f"n{k}" for k in range(64))),
    *("-genv", "MPIR_CVAR_DEVICE_COLLECTIVES", "none"),
    *("-genv", "MPIR_CVAR_ENABLE_HEAVY_YIELD", "1", "-genv", "MPIR_CVAR_POLLS_BEFORE_YIELD", "10"),
)


@dataclass(frozen=True)
class Row:
    """One command on one size: processor time, peak memory, how it failed, more figures."""

    line: str
    size: int
    events: int
    command: str
    cpu_s: float
    peak_mib: float
    bad: str = ""
    more: Mapping[str, float] = field(default_factory=dict)


def made(study: Path, sizes: Sequence[int], program: Program, turns: int) -> int:
    """Write a study; return its events.

    In a process of its own: what this one has in memory counts as its children's.
    """
    told, tell = os.pipe()
    child = os.fork()
    if not child:
        status = 1
        try:
            os.write(tell, str(write_study(study, sizes, program, turns)).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(tell)
    with open(told) as events:
        found = events.read()
    if os.waitpid(child, 0)[1]:
        raise SystemExit(f"{study} could not be written")
    return int(found)


def measured(line: str, size: int, events: int, words: Sequence[str], name: str = "") -> Row:
    """Run a command and return what it took, its own processes included."""
    with tempfile.NamedTemporaryFile() as said:
        used = whole(words, said.name, range(-64, 256))
        last = said.read().decode(errors="replace").strip().splitlines()[-1:]
    bad = f"exit {used.code}: {' '.join(last)}" if used.code not in (0, 3) else ""
    return Row(line, size, events, name or words[len(P3S)], used.cpu_s, used.peak_mib, bad)


def of_events(line: str, folder: Path, ranks: int, sizes: Sequence[int]) -> Iterator[Row]:
    """Signature and check of a halo exchange of so many events on all ranks."""
    for size in sizes:
        study = folder / f"{line}-{size}"
        events = made(study, [ranks], halo, max(size // ranks // TURN, 1))
        yield measured(line, size, events, [*P3S, "phases", str(study)])
        yield measured(line, size, events, [*P3S, "check", str(study)])
        shutil.rmtree(study)


def of_program(line: str, folder: Path, sizes: Sequence[int]) -> Iterator[Row]:
    """Signature, model and scaled trace of a program of so many call sites or communicators."""
    make, turns = {"sites": (many_sites, 3), "communicators": (many_comms, 3)}[line]
    for size in sizes:
        study = folder / f"{line}-{size}"
        events = made(study, [2, 4, 8], make(size), turns)
        yield measured(line, size, events, [*P3S, "phases", str(study)])
        yield measured(line, size, events, [*P3S, "model", str(study)])
        yield measured(line, size, events, [*P3S, "scale", str(study), "-n", "16"])
        shutil.rmtree(study)


def of_counts(line: str, folder: Path, sizes: Sequence[int]) -> Iterator[Row]:
    """The same, of a halo exchange at so many process counts."""
    for size in sizes:
        study = folder / f"{line}-{size}"
        events = made(study, list(range(2, 2 + size)), halo, 50)
        yield measured(line, size, events, [*P3S, "phases", str(study)])
        yield measured(line, size, events, [*P3S, "model", str(study)])
        yield measured(line, size, events, [*P3S, "scale", str(study), "-n", "64"])
        shutil.rmtree(study)


def together(line: str, folder: Path, sizes: Sequence[int]) -> Iterator[Row]:
    """So many commands at once on one study: what they leave is what one alone leaves."""
    for size in sizes:
        study, alone = folder / f"{line}-{size}", folder / f"{line}-{size}-alone"
        for each in (study, alone):
            events = made(each, [2, 4, 8], halo, 50)
        jobs = (["phases"], ["model"], ["check"], ["scale", "-n", "16"], ["model", "--json"])
        for words in jobs:
            measured(line, size, events, [*P3S, words[0], str(alone), *words[1:]])
        running = [
            subprocess.Popen(
                [*P3S, words[0], str(study), *words[1:]],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                cwd=ROOT,
            )
            for words in (jobs[k % len(jobs)] for k in range(size))
        ]
        cpu, peak, bad = 0.0, 0.0, []
        for child in running:
            said = child.stderr.read() if child.stderr else b""
            _, status, used = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
            cpu, peak = cpu + used.ru_utime + used.ru_stime, max(peak, used.ru_maxrss / 1024)
            if child.returncode not in (0, 3):
                bad.append(said.decode(errors="replace").strip()[-200:])
        bad += differences(study, alone)
        yield Row(line, size, events, f"{size} commands", cpu, peak, "; ".join(bad[:3]))
        shutil.rmtree(study)
        shutil.rmtree(alone)


def differences(study: Path, alone: Path) -> list[str]:
    """Return which files of one study the other has not, or has with other bytes."""
    there, here = (
        {str(p.relative_to(at)): p.read_bytes() for p in at.rglob("*") if p.is_file()}
        for at in (study, alone)
    )
    names = (set(there) ^ set(here)) | {n for n in set(there) & set(here) if there[n] != here[n]}
    return sorted(names - {"study.json"})  # that says when it was made


def compiled(folder: Path) -> tuple[Path, list[str]]:
    """Return the program that is traced, and its launcher with its options."""
    if prefix := os.environ.get(MPI):
        compiler, launcher = (str(Path(prefix) / "bin" / name) for name in ("mpicc", "mpiexec"))
    else:
        install = chosen_mpi()
        compiler, launcher = install.mpicc, str(install.mpiexec)
    program = folder / "load"
    source = Path(__file__).with_name("load.c")
    subprocess.run([compiler, "-O2", "-rdynamic", "-o", str(program), str(source)], check=True)
    version = subprocess.run([launcher, "--version"], capture_output=True, text=True, check=False)
    return program, [launcher, *(CROWDED if "HYDRA" in version.stdout else ())]


def appends(line: str, folder: Path, sizes: Sequence[int]) -> Iterator[Row]:
    """A program that the tracer follows for 24 hours, by a clock that the program puts forward.

    Its processor time is that of the program with the tracer in it.
    """
    from p3s.capture.capture import read_capture

    program, launcher = compiled(folder)
    for size in sizes:
        run = folder / f"{line}-{size}"
        words = [*launcher, "-n", "1", sys.executable, "-m", "p3s", "exec", "-o", str(run), "--"]
        row = measured(line, size, size, [*words, str(program), "long", str(size), "24"], "exec")
        if row.bad:
            yield row
            continue
        starts: list[int] = []
        path = run / "rank-000000.p3t"
        capture = read_capture(path, each=lambda e, to=starts: to.append(int(e.start_ns[-1])))
        more = {
            "bytes an event": capture.bytes / capture.event_count,
            "hours": starts[-1] / 3600e9,
            "MiB filled": capture.header.resident_bytes / 2**20,
        }
        yield replace(row, more=more)
        yield measured(line, size, size, [*P3S, "check", str(run)])
        shutil.rmtree(run)


def of_ranks(line: str, folder: Path, sizes: Sequence[int]) -> Iterator[Row]:
    """A traced halo exchange of 20 turns with so many processes on the cores that there are."""
    program, launcher = compiled(folder)
    for size in sizes:
        study = folder / f"{line}-{size}"
        words = ["characterize", "-n", f"2,4,{size}", "-o", str(study), "--timeout", "580", "--"]
        words += [*launcher, "-n", "{np}", str(program), "halo", "20"]
        yield measured(line, size, size * (20 * TURN + 2), [*P3S, *words])
        yield measured(line, size, size * (20 * TURN + 2), [*P3S, "check", str(study)])
        shutil.rmtree(study, ignore_errors=True)


MILLION = 10**6
#: Line -> what makes it, its sizes, and those of --quick.
LINES: dict[str, tuple[Callable[..., Iterator[Row]], list[int], list[int]]] = {
    "ranks": (
        lambda line, folder, sizes: of_events(line, folder, 64, sizes),
        [MILLION, 10 * MILLION, 100 * MILLION],
        [MILLION // 10, MILLION],
    ),
    "rank": (
        lambda line, folder, sizes: of_events(line, folder, 1, sizes),
        [MILLION, 10 * MILLION, 100 * MILLION],
        [MILLION // 10, MILLION],
    ),
    "sites": (of_program, [1000, 10_000, 100_000], [100, 1000]),
    "communicators": (of_program, [100, 1000, 10_000], [10, 100]),
    "counts": (of_counts, [3, 10, 30], [3, 6]),
    "together": (together, [5, 15, 50], [5]),
    "appends": (appends, [MILLION, 10 * MILLION, 100 * MILLION], [MILLION // 10]),
    "processes": (of_ranks, [32, 128, 512], [8]),
}


#: Line -> what grows in it, as curves name it, and its sizes: quick ones, and others.
AXES: dict[str, tuple[str, list[int], list[int]]] = {
    "rank": ("events", [MILLION // 10, MILLION], [10**5, MILLION, 10 * MILLION, 100 * MILLION]),
    "sites": ("call sites", [30, 100], [3, 30, 300, 3000]),
    "counts": ("process counts", [3, 5], [3, 6, 12, 24, 48]),
}


def figures(quick: bool) -> Found:
    """Return how fast captures become signatures, and how the commands grow."""
    points, rates = [], []
    for line, (axis, few, many) in AXES.items():
        for row in rows_of(line, few if quick else many):
            points.append(Point(axis, f"p3s {row.command}", row.size, row.cpu_s, row.peak_mib))
            if line == "rank" and row.command == "phases":
                rates.append(row.events / row.cpu_s / 1e6)
    name = "p3s phases of the longest run, one rank, all in"
    goal = None if quick else 3.0  # a short run is mostly the start of Python
    return Found((Figure(name, rates[-1], "M events/s of CPU", goal, more=True),), tuple(points))


def rows_of(line: str, sizes: Sequence[int]) -> Iterator[Row]:
    """Yield the commands of a line; raises SystemExit where one fails."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("P3S_BENCH_FOLDER")) as folder:
        for row in LINES[line][0](line, Path(folder), sizes):
            if row.bad:
                raise SystemExit(f"{row.command} of {line} {row.size:,}: {row.bad}")
            yield row


def figures_of(line: str, quick: bool) -> Found:
    """Return what the commands of a line take, and what they say beside that."""
    _, many, few = LINES[line]
    out = []
    for row in rows_of(line, few if quick else many):
        of = f"{line} {row.size:,}, {row.events:,} events, {row.command}"
        out.append(Figure(f"{of}: CPU time", row.cpu_s, "s"))
        out.append(Figure(f"{of}: peak memory", row.peak_mib, "MiB"))
        out += [Figure(f"{of}: {name}", value, "") for name, value in row.more.items()]
    return Found(tuple(out))


PARTS = {line: functools.partial(figures_of, line) for line in LINES}
