"""Signals at every allocation, lock and write: python tests/helpers/signal_trials.py.

Six programs run with a signal at every N-th of these operations, whose handler opens, writes, reads
and removes a new file (tests/faults/handler_shim.c). What ends well without the tracer has to do so
with it; else the exit code is 1. Needs an MPI and a C compiler.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

from tracer_helpers import PROGRAMS, compile_c, usable_mpi  # noqa: E402

from p3s.signature_runner import build  # noqa: E402

SHIM = ROOT / "tests" / "faults" / "handler_shim.c"
#: Calls of MPI, files, threads: source and whether several threads call MPI at once.
TRIED = {
    "collectives.c": False,
    "requests.c": False,
    "comms.c": False,
    "windows.c": False,
    "io/posix.c": False,
    "threads.c": True,
}
#: Bytes of a handler's own stack beside those that the kernel needs; 0: the thread's.
STACKS = (0, 1536)
RANKS, TIMEOUT_S = 2, 120.0
#: What Open MPI's launchers want to be told by root.
AS_ROOT = {
    f"{prefix}_ALLOW_RUN_AS_ROOT{suffix}": "1"
    for prefix in ("OMPI", "PRTE")
    for suffix in ("", "_CONFIRM")
}


class Ending(StrEnum):
    """What became of a run: as without signals, ended otherwise, or not at all."""

    SAME = "same"
    CRASHED = "crashed"
    HUNG = "hung"


@dataclass(frozen=True)
class Trial:
    """One program disturbed at every ``every``-th operation.

    ``stack``: bytes of the handler's stack (STACKS). ``mpi``: the handler calls MPI, too.
    """

    program: str
    every: int
    stack: int
    mpi: bool


@dataclass(frozen=True)
class Result:
    """How a trial ended, how many handlers ran in all ranks, and the last line of stderr."""

    ending: Ending
    handlers: int
    line: str


def trials(every: list[int]) -> Iterator[Trial]:
    """Yield all trials; MPI is called in handlers only where one thread calls it."""
    for program, threaded in TRIED.items():
        for number in every:
            for stack in STACKS:
                yield Trial(program, number, stack, False)
            if not threaded:
                yield Trial(program, number, 0, True)


def compiled(folder: Path) -> dict[str, Path]:
    """Return the programs and the shim, by source, compiled into a folder."""
    made = {}
    for source in TRIED:
        target = folder / Path(source).stem
        made[source] = compile_c(PROGRAMS / source, target, "-w", "-lpthread", "-lm")
    shim = compile_c(SHIM, folder / "shim.so", "-shared", "-fPIC", "-fno-builtin", "-w", "-ldl")
    return {**made, SHIM.name: shim}


def run(trial: Trial, made: dict[str, Path], folder: Path, tracer: Path | None) -> Result:
    """Run a trial in an empty folder, traced or not."""
    install = usable_mpi()
    (folder / "run").mkdir(parents=True)
    loaded = ([str(tracer)] if tracer else []) + [str(made[SHIM.name])]
    variables = {
        "LD_PRELOAD": ":".join(loaded),
        "P3S_EVERY": str(trial.every),
        "P3S_STACK": str(trial.stack),
        "P3S_HANDLED": str(folder / "handled"),
        **({"P3S_HANDLER": "mpi"} if trial.mpi else {}),
        **({"P3S_TRACER": str(tracer), "P3S_TRACE_DIR": str(folder / "run")} if tracer else {}),
    }
    words = [f"{name}={value}" for name, value in variables.items()]
    command = [install.mpiexec, "-n", str(RANKS), "env", *words, str(made[trial.program])]
    try:
        done = subprocess.run(
            ["timeout", "--kill-after=5", str(TIMEOUT_S), *command],
            cwd=folder,
            env={**AS_ROOT, **os.environ},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S + 20,
        )
    except subprocess.TimeoutExpired:
        return Result(Ending.HUNG, 0, "")
    handlers = sum(int(path.read_text().split()[0]) for path in folder.glob("handled.*.txt"))
    line = (done.stderr.strip().splitlines() or [""])[0]
    ending = {0: Ending.SAME, 124: Ending.HUNG, 137: Ending.HUNG}.get(
        done.returncode, Ending.CRASHED
    )
    return Result(ending, handlers, line)


def main() -> int:
    """Try everything and print a line for each program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", default="1,2,3,5,7,11,13,17", help="numbers N, with commas")
    numbers = [int(word) for word in parser.parse_args().every.split(",")]
    bad = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made = compiled(folder)
        tracer = build.ensure_tracer(program=str(made["comms.c"])).path
        for source in TRIED:
            counts = dict.fromkeys(Ending, 0)
            handlers = refused = 0
            for at, trial in enumerate(t for t in trials(numbers) if t.program == source):
                here = folder / f"{Path(source).stem}-{at}"
                if run(trial, made, here / "plain", None).ending != Ending.SAME:
                    refused += 1  # the program itself cannot bear it
                    continue
                result = run(trial, made, here / "traced", Path(tracer))
                counts[result.ending] += 1
                handlers += result.handlers
                if result.ending != Ending.SAME:
                    print(f"  {trial}: {result.ending}: {result.line}", flush=True)
            bad += counts[Ending.CRASHED] + counts[Ending.HUNG]
            shown = ", ".join(f"{ending} {number}" for ending, number in counts.items())
            print(f"{source}: {shown}, not without the tracer {refused}; handlers {handlers}")
    return 1 if bad else 0


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    sys.exit(main())
