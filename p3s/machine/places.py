"""Hardware threads of a node in the order in which a team takes them: close together, or far."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from p3s.machine.facts import CPUS, cores_of, text_of


@dataclass(frozen=True, order=True)
class Place:
    """A hardware thread: what it is part of, the widest first (numbers, -1 where not told)."""

    package: int
    domain: int
    l3: int
    l2: int
    core: int
    number: int


def places(root: Path = CPUS) -> list[Place]:
    """Return the hardware threads that this process may use, as sysfs describes them."""
    return [_place(root, number) for number in sorted(os.sched_getaffinity(0))]


def close(found: Sequence[Place]) -> list[int]:
    """Return them so that those that share caches follow each other.

    Cores first: the second hardware thread of a core comes after the first of all.
    """
    first, more = _by_turn(found)
    return [place.number for place in [*first, *more]]


def far(found: Sequence[Place]) -> list[int]:
    """Return them so that the first ones share as little as possible, cores first too."""
    first, more = _by_turn(found)
    return [*_spread(first, 0), *_spread(more, 0)]


def domains(found: Sequence[Place]) -> int:
    """Return how many memory domains they lie in."""
    return len({(place.package, place.domain) for place in found})


def _by_turn(found: Sequence[Place]) -> tuple[list[Place], list[Place]]:
    """Return one hardware thread of every core, and the others."""
    first: dict[tuple[int, int], Place] = {}
    for place in sorted(found):
        first.setdefault((place.package, place.core), place)
    rest = sorted(set(found) - set(first.values()))
    return sorted(first.values()), rest


_LEVELS = ("package", "domain", "l3", "l2", "core", "number")


def _spread(found: Sequence[Place], level: int) -> list[int]:
    """Return numbers taken in turn from each part of a level, spread in the parts as well."""
    if level == len(_LEVELS):
        return [place.number for place in found]
    parts: dict[int, list[Place]] = {}
    for place in found:
        parts.setdefault(getattr(place, _LEVELS[level]), []).append(place)
    lists = [_spread(part, level + 1) for part in parts.values()]
    return [number for row in zip_longest(*lists) for number in row if number is not None]


def _place(root: Path, number: int) -> Place:
    folder = root / f"cpu{number}"
    siblings = cores_of(text_of(folder / "topology" / "thread_siblings_list"))
    return Place(
        _number(text_of(folder / "topology" / "physical_package_id")),
        next((int(m[1]) for p in folder.glob("node*") if (m := _NODE.fullmatch(p.name))), -1),
        _shared(folder, "3"),
        _shared(folder, "2"),
        min(siblings, default=number),
        number,
    )


_NODE = re.compile(r"node(\d+)")


def _number(text: str) -> int:
    return int(text) if text.isdigit() else -1


def _shared(folder: Path, level: str) -> int:
    """Return the first hardware thread that shares a cache, -1 where there is none such."""
    for index in sorted((folder / "cache").glob("index*")):
        if text_of(index / "level") == level and text_of(index / "type") != "Instruction":
            return min(cores_of(text_of(index / "shared_cpu_list")), default=-1)
    return -1
