"""GOAL schedules: what LogGOPSim's txt2bin reads, one text file with a part per rank.

GOAL has sends, receives and computation with their order; no calls, no communicators and no
collectives: these are the messages that they consist of, tags tell communicators apart. One unit
of computation is one ns, LogGOPSim's unit of time.
"""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO

import numpy as np

from p3s.formats.calls import RECEIVING, SENDING, RankProgram
from p3s.formats.exported import ExportResult, new_export, new_file
from p3s.formats.scaled import ScaledSource, programs_of
from p3s.simulate.steps import Op

_BLOCK = 1 << 20
#: Calls after which the rank goes on at once.
_GOES_ON = frozenset({int(op) for op in (Op.ISEND, Op.ISSEND, Op.BSEND, Op.IRECV)})


def to_goal(scaled: ScaledSource, result: ExportResult) -> None:
    """Write a GOAL schedule into a new file, or one for each section into a new directory."""
    target, parts = result.path, programs_of(scaled, _no_call, result)
    if result.options.turns is None:
        with new_file(target) as file:
            for _, programs in parts:
                write_goal(programs, result, file)
        result.command = _command(target)
    else:
        with new_export(result) as directory:
            for part, programs in parts:
                with new_file(directory / f"{part}.goal") as file:
                    write_goal(programs, result, file)
            result.command = _command(target / "section-000.goal")
    result.notes.append("one unit of computation is one ns")


def _no_call(call: str, world: bool) -> bool:
    """Tell whether a collective is written as a call: GOAL has none."""
    return False


def _command(path: Path) -> str:
    text, binary = (shlex.quote(str(p)) for p in (path, path.with_suffix(".bin")))
    return f"txt2bin -i {text} -o {binary} && LogGOPSim -f {binary}"


def write_goal(programs: Iterable[RankProgram], result: ExportResult, file: IO[str]) -> None:
    """Write the schedules of all ranks, in the order of the ranks; takes down what they lack."""
    with tempfile.TemporaryDirectory(prefix=".goal.", dir=Path(file.name).parent) as work:
        # Programs come in any order; the parts of a schedule must not.
        for program in programs:
            with open(Path(work) / str(program.rank), "w", encoding="ascii") as part:
                part.write("\n".join(_rank(program, result)))
        file.write(f"num_ranks {result.n}\n")
        for rank in range(result.n):
            file.write(f"\nrank {rank} {{\n")
            path = Path(work) / str(rank)
            if path.exists():
                with open(path, encoding="ascii") as part:
                    while text := part.read(_BLOCK):
                        file.write(text)
                path.unlink()
            file.write("\n}\n")


def _rank(program: RankProgram, result: ExportResult) -> list[str]:
    """Return the lines of a rank.

    An operation needs the end of a blocking one before it (requires), and only the start of one
    that does not block (irequires); a wait is a computation of 0 that needs its requests.
    """
    columns = (program.op, program.peer, program.tag, program.bytes)
    ops, peers, tags, sizes = (column.tolist() for column in columns)
    works = np.rint(program.work_ns).astype(np.int64).tolist()
    begin, requests = program.done_start.tolist(), program.done.tolist()
    label = [0] * len(ops)
    lines: list[str] = []
    number, last, needs = 0, 0, "requires"

    def put(action: str, then: str) -> None:
        nonlocal number, last, needs
        number += 1
        lines.append(f"l{number}: {action}")
        if last:
            lines.append(f"l{number} {needs} l{last}")
        last, needs = number, then

    empty = soft = 0
    for i, (op, peer, tag, nbytes, work) in enumerate(
        zip(ops, peers, tags, sizes, works, strict=True)
    ):
        if work:
            put(f"calc {work}", "requires")
        if op in SENDING or op in RECEIVING:
            empty += op in SENDING and not nbytes
            soft += op in (Op.SSEND, Op.ISSEND)
            transfer = (
                f"send {max(nbytes, 1)}b to" if op in SENDING else f"recv {max(nbytes, 1)}b from"
            )
            put(f"{transfer} {peer} tag {tag}", "irequires" if op in _GOES_ON else "requires")
            label[i] = number
        elif begin[i] < begin[i + 1]:
            put("calc 0", "requires")
            lines += [f"l{number} requires l{label[k]}" for k in requests[begin[i] : begin[i + 1]]]
        elif op == Op.COLLECTIVE:
            name = program.names[int(program.call[i])]
            result.lacks(name, "GOAL has no collectives, and it is too many messages", 1.0)
    result.records += number
    result.changes("messages without bytes carry one byte", empty)
    result.changes("synchronous sends are plain sends", soft)
    return lines
