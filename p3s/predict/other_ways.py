"""Other ways of exchanging data that a program has and no traced run took."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from p3s.base import ops
from p3s.base.study import Study
from p3s.capture.other_calls import OtherCall, other_calls
from p3s.capture.sites import programs_of, traced_ns
from p3s.model.types import Model

#: Share of the bytes that an operation moves from which another way of it counts.
_LARGE = 0.1
_STARTS = ("MPI_Start", "MPI_Startall")


def other_ways(study: Study, model: Model) -> tuple[OtherCall, ...]:
    """Return the calls that could take over from those that move the program's data.

    Nothing where the program is not on this machine, or was built again since.
    """
    stacks = _stacks(model)
    frames = {module for found in stacks.values() for stack in found for module, _ in stack}
    every = [frame for frames in model.sites.values() for frame in _frames(frames)]
    for path in map(Path, programs_of(study)):
        if path.name in frames and _as_traced(path, study):
            own = {
                op: [[address for name, address in stack if name == path.name] for stack in found]
                for op, found in stacks.items()
            }
            try:
                return other_calls(path, own, [at for name, at in every if name == path.name])
            except (OSError, ValueError):
                return ()
    return ()


def _as_traced(path: Path, study: Study) -> bool:
    traced = traced_ns(study)
    return path.is_file() and (traced is None or path.stat().st_mtime_ns <= traced)


def _stacks(model: Model) -> dict[str, list[list[tuple[str, int]]]]:
    """Return the call stacks of the operations that move the data: (module, return address).

    Persistent operations move them where they are started: nothing tells whether a call that only
    makes a request was come to.
    """
    moved: dict[str, float] = defaultdict(float)
    for item in model.items:
        moved[ops.place_of(item.op)] += item.share.bytes if item.share is not None else 0.0
    found: dict[str, list[list[tuple[str, int]]]] = defaultdict(list)
    for item in model.items:
        op = ops.place_of(item.op)
        for name in _STARTS if op in _STARTS else (op,):
            if moved[op] >= _LARGE:
                found[name].append(_frames(model.sites.get(item.site, ())))
    return found


def _frames(frames: Sequence[str]) -> list[tuple[str, int]]:
    parts = (frame.rpartition("+0x") for frame in frames)
    return [
        (module, int(address, 16))
        for module, _, address in parts
        if module and all(digit in "0123456789abcdef" for digit in address)
    ]
