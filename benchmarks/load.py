"""How time and memory of the commands grow with what they are given.

    python benchmarks/load.py [--quick] [--only ranks,rank,...] [--folder DIR] [--mpi PREFIX]

Captures are written without a program (tests/helpers/load_captures.py), but for the lines of a
program: `appends` and `processes`. Every command is a process of its own. Nothing here passes or
fails. README.md beside this file says what the columns are.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "helpers")]

from load_captures import Program, halo, many_comms, many_sites, write_study  # noqa: E402

sys.path.append(str(Path(__file__).resolve().parent))
from figures import Figure, Found, Point, chosen_mpi, whole  # noqa: E402

#: Events of a turn of the halo.
TURN = 6
#: Names the directory of an MPI for this and its processes.
MPI = "LOAD_MPI"
#: What lets MPICH 5 run many ranks on few cores: who waits sleeps, and 64 ranks share memory, as
#: if they were on a node of their own (one process manager of all 512 does not get them started).
CROWDED = (
    *("-launcher", "fork", "-ppn", "64", "-hosts", ",".join(f"n{k}" for k in range(64))),
    *("-genv", "MPIR_CVAR_DEVICE_COLLECTIVES", "none"),
    *("-genv", "MPIR_CVAR_ENABLE_HEAVY_YIELD", "1", "-genv", "MPIR_CVAR_POLLS_BEFORE_YIELD", "10"),
)
P3S = (sys.executable, "-m", "p3s")


@dataclass(frozen=True)
class Row:
    """One command on one size: processor time, peak resident memory, what it said if it failed."""

    line: str
    size: int
    events: int
    command: str
    cpu_s: float
    peak_mib: float
    said: str = ""


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
    """Return the program that is traced, and its launcher with its options: those of --mpi, or of
    the first MPI that is found."""
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
        if row.said:
            yield row
            continue
        starts: list[int] = []
        path = run / "rank-000000.p3t"
        capture = read_capture(path, each=lambda e, to=starts: to.append(int(e.start_ns[-1])))
        said = (
            f"{capture.event_count:,} events, {capture.chunks:,} chunks,"
            f" {capture.bytes / capture.event_count:.1f} bytes an event,"
            f" {starts[-1] / 3600e9:.2f} h, {capture.header.resident_bytes / 2**20:.1f} MiB filled"
        )
        yield replace(row, said=said)
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


def slopes(rows: Sequence[Row]) -> dict[int, tuple[float, float]]:
    """Return of each row by how much processor time and memory grow, as powers of the size.

    From the next smaller size of the same line and command; NaN for the smallest.
    """
    out = {}
    for k, row in enumerate(rows):
        smaller = [r for r in rows[:k] if (r.line, r.command) == (row.line, row.command)]
        if not smaller or smaller[-1].size == row.size:
            out[k] = (math.nan, math.nan)
            continue
        before = smaller[-1]
        by = math.log(row.size / before.size)
        cpu = math.log(max(row.cpu_s, 1e-3) / max(before.cpu_s, 1e-3)) / by
        out[k] = (cpu, math.log(row.peak_mib / before.peak_mib) / by)
    return out


def shown(rows: Sequence[Row]) -> str:
    """Return the table."""
    grow = slopes(rows)
    lines = [
        "| line | size | events | command | CPU s | us/event | power | peak MiB | power | said |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for k, row in enumerate(rows):
        cpu, memory = (f"{each:.2f}" if each == each else "" for each in grow[k])
        per = 1e6 * row.cpu_s / max(row.events, 1)
        lines.append(
            f"| {row.line} | {row.size:,} | {row.events:,} | {row.command} | {row.cpu_s:.2f} |"
            f" {per:.3g} | {cpu} | {row.peak_mib:,.0f} | {memory} | {row.said} |"
        )
    return "\n".join(lines)


#: Line -> what grows in it, as curves name it, and its sizes: quick ones, and others.
AXES: dict[str, tuple[str, list[int], list[int]]] = {
    "rank": ("events", [MILLION // 10, MILLION], [10**5, MILLION, 10 * MILLION, 100 * MILLION]),
    "sites": ("call sites", [30, 100], [3, 30, 300, 3000]),
    "counts": ("process counts", [3, 5], [3, 6, 12, 24, 48]),
}


def figures(quick: bool) -> Found:
    """Return how fast captures become signatures, and how the commands grow."""
    points, rates = [], []
    with tempfile.TemporaryDirectory() as folder:
        for line, (axis, few, many) in AXES.items():
            make, _, _ = LINES[line]
            for row in make(line, Path(folder), few if quick else many):
                if row.said:
                    raise SystemExit(f"{row.command} of {row.size:,} {axis}: {row.said}")
                name = f"p3s {row.command}"
                points.append(Point(axis, name, row.size, row.cpu_s, row.peak_mib))
                if line == "rank" and row.command == "phases":
                    rates.append(row.events / row.cpu_s / 1e6)
    name = "p3s phases of the longest run, one rank, all in"
    goal = None if quick else 3.0  # a short run is mostly the start of Python
    return Found((Figure(name, rates[-1], "M events/s of CPU", goal, more=True),), tuple(points))


def main() -> None:
    """Measure the lines and print the table."""
    parser = argparse.ArgumentParser(description="How time and memory grow.")
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--only", default="", help=f"lines: {','.join(LINES)}")
    parser.add_argument("--sizes", default="", help="other sizes, for example 1000,10000")
    parser.add_argument("--folder", type=Path, help="where the studies are made, and removed again")
    parser.add_argument("--mpi", type=Path, help="directory of an MPI: its bin has mpicc, mpiexec")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    if options.mpi:
        os.environ[MPI] = str(options.mpi.resolve())
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for line in options.only.split(",") if options.only else LINES:
            make, sizes, quick = LINES[line]
            wanted = [int(size) for size in options.sizes.split(",") if size]
            for row in make(line, Path(folder), wanted or (quick if options.quick else sizes)):
                rows.append(row)
                print(shown([row]).splitlines()[-1], file=sys.stderr, flush=True)
    print(json.dumps([asdict(row) for row in rows], indent=1) if options.json else shown(rows))


if __name__ == "__main__":
    main()
