"""The command line of the benchmark, and the programs that it means."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import replace
from pathlib import Path

from accuracy.cluster import ALGORITHMS, PLATFORMS, SET
from accuracy.programs import HELD_OUT, PROGRAMS, Program


def counts_of(text: str) -> tuple[int, ...]:
    """Return process counts from words such as 4,8,16."""
    return tuple(int(word) for word in text.split(","))


def at_of(text: str) -> tuple[int, tuple[str, ...]]:
    """Return a count and its arguments from words such as "64=-x 4"."""
    n, words = text.split("=", 1)
    return int(n), tuple(shlex.split(words))


def algorithms_of(text: str) -> tuple[str, ...]:
    """Return collectives whose algorithm is set from words such as bcast,allreduce."""
    found = tuple(word for word in text.split(",") if word)
    if set(found) - set(ALGORITHMS):
        raise ValueError
    return found


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    made = argparse.ArgumentParser(
        description="How well P3S predicts run times, on a simulated cluster (SimGrid SMPI)."
    )
    add = made.add_argument
    add("--program", action="append", help="only this one (may be repeated); names --source")
    add("--held-out", action="store_true", help="the programs that nothing was changed for")
    add("--half", choices=("developed", "kept"), help="of --source: which half it belongs to")
    outside = made.add_argument_group("a program from elsewhere")
    add = outside.add_argument
    add("--source", type=Path, help="directory of its sources, in C, C++ or Fortran")
    add("--build", default="make", help="shell command that builds it there (default: make)")
    add("--executable", default="", help="what that makes, from --source")
    add("--arguments", default="", help="its arguments; {np}: the process count")
    add(
        "--arguments-at",
        action="append",
        default=[],
        type=at_of,
        metavar="N=WORDS",
        help="other arguments at a count (may be repeated)",
    )
    add("--traced", type=counts_of, help="traced counts (default: 4,8,16,32)")
    add("--predicted", type=counts_of, help="predicted counts (default: 64,128,256)")
    add = made.add_argument_group("runs and results").add_argument
    add("--platform", choices=sorted(PLATFORMS), default="flat", help="network (default: flat)")
    add(
        "--algorithms",
        type=algorithms_of,
        default=SET,
        metavar="CALLS",
        help=f"set these ({','.join(ALGORITHMS)}) instead of the library's choice "
        f"(default: {','.join(SET)})",
    )
    add("--predict-with", default="", help='further words for p3s predict, "--topology FILE"')
    add("--simulate-only", action="store_true", help="make runs and study, predict nothing")
    add("--dir", type=Path, help="work here; what was simulated there is not simulated again")
    add("--out", type=Path, help="write everything that was seen, as JSON")
    add("--join", type=Path, nargs="+", help="only show what these files of --out have together")
    return made


def asked(args: argparse.Namespace) -> list[Program]:
    """Return the programs that the command line means. Errors: ValueError, one line."""
    found = _known(args) if args.source is None else [_outside(args)]
    return [
        replace(
            program,
            traced=args.traced or program.traced,
            predicted=args.predicted or program.predicted,
        )
        for program in found
    ]


def _known(args: argparse.Namespace) -> list[Program]:
    every = {**PROGRAMS, **HELD_OUT}
    names = args.program or (HELD_OUT if args.held_out else PROGRAMS)
    if unknown := [name for name in names if name not in every]:
        raise ValueError(
            f"--program {unknown[0]}: give --source, or one of {', '.join(sorted(every))}"
        )
    return [every[name] for name in names]


def _outside(args: argparse.Namespace) -> Program:
    if len(args.program or ()) != 1 or not args.executable:
        raise ValueError("--source needs one --program NAME and --executable PATH")
    if not args.source.is_dir():
        raise ValueError(f"--source {args.source}: not a directory")
    return Program(
        args.program[0],
        args.source.resolve(),
        tuple(shlex.split(args.arguments)),
        build=args.build,
        executable=args.executable,
        at=dict(args.arguments_at),
        half=args.half or "",
    )
