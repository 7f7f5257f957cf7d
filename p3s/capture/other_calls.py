"""MPI calls in a program's file that no run came to, though the code around them ran.

Only machine code of x86-64 is read: direct calls, and those through the table of a shared library.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from p3s.capture.elf import Binary, Code
from p3s.capture.lines import lines_of

#: mpi_x_, MPI_X, PMPI_X, mpi_x_f08_ and the like are one call.
_MPI = re.compile(r"^p?(mpi_[a-z_]*?)(?:_f08|_f08ts)?_{0,2}$")


@dataclass(frozen=True)
class OtherCall:
    """A call that no run came to: in which function, below which function that ran.

    copied: it may be a copy that the compiler made of a call that ran, in the same function; debug
    information would tell.
    """

    call: str
    function: str
    under: str
    copied: bool = False


def other_calls(
    path: Path, stacks: Mapping[str, Iterable[Collection[int]]], executed: Iterable[int] = ()
) -> tuple[OtherCall, ...]:
    """Return the calls of the same operations that no run came to, near those that it made.

    ``stacks``: per operation (MPI_X) the stacks of its calls, return addresses in the file, the
    innermost first; ``executed``: return addresses in stacks of other calls. Near is what lies in a
    function of these stacks, or in one that such a function calls, directly or through others that
    are on no stack. A call of the same source line as one that ran is that one. Errors: as Binary.
    """
    with Binary(path) as binary:
        code = binary.code()
    if code is None:
        return ()
    executed_addresses = set(executed).union(
        *(stack for stacks_ in stacks.values() for stack in stacks_)
    )
    near_by = _calls_near_by(code, stacks, executed_addresses)
    if not any(others for _, _, others in near_by.values()):
        return ()  # debug information takes long to read
    ops = {op.lower() for op in near_by}
    mine = [after for after, _, name in code.calls if _normal(name) in ops]
    lines = {
        at + 1: (line.file, line.line)
        for at, line in lines_of(path, (after - 1 for after in mine)).items()
        if line.line
    }
    others_found = []
    for op, (below, came, others) in near_by.items():
        known_lines = {lines.get(after) for after, _ in came} - {None}
        near = {code.name(function) for _, function in came}
        for after, function in others:
            if lines.get(after) in known_lines:
                continue
            name = code.name(function)
            copied = after not in lines and name in near
            others_found.append(OtherCall(op, name, code.name(below[function]), copied))
    return tuple(dict.fromkeys(others_found))


#: Functions that are reached, and from which; calls that ran, and others, by return address and
#: function.
_NearBy = tuple[dict[int, int], list[tuple[int, int]], list[tuple[int, int]]]


def _calls_near_by(
    code: Code, stacks: Mapping[str, Iterable[Collection[int]]], executed: Collection[int]
) -> dict[str, _NearBy]:
    """Return the calls near those of operations; ``executed``: return addresses of what ran."""
    ran = {code.function(address - 1) for address in executed}
    near_by: dict[str, _NearBy] = {}
    for op, stacks_of_op in stacks.items():
        around = {code.function(a - 1) for stack in stacks_of_op for a in stack} - {None}
        below = _below(code, around, ran)
        calls = [call[:2] for call in code.calls if _normal(call[2]) == op.lower()]
        came = [call for call in calls if call[0] in executed]
        near_by[op] = below, came, [c for c in calls if c[0] not in executed and c[1] in below]
    return near_by


def _normal(name: str) -> str:
    match = _MPI.match(name.lower())
    return match[1] if match else ""


def _below(
    code: Code, around: Collection[int | None], ran: Collection[int | None]
) -> dict[int, int]:
    """Return the functions that are reached from some, and from which; see other_calls."""
    caller_of = {function: function for function in around if function is not None}
    waiting = list(caller_of)
    while waiting:
        function = waiting.pop()
        for callee in code.callees.get(function, ()):
            if callee not in caller_of and callee not in ran:
                caller_of[callee] = caller_of[function]
                waiting.append(callee)
    return caller_of
