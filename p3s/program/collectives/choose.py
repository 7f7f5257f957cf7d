"""Which algorithm a library takes for a call, and the schedule of messages that it makes."""

from __future__ import annotations

import json
import operator
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from p3s.base.arrays import Ints, starts
from p3s.base.artefacts import parse_json
from p3s.base.errors import P3SError
from p3s.base.serialise import Natural, ShapeError, from_data
from p3s.program.collectives import exchanges, nodes, reductions, rooted
from p3s.program.collectives.job import Job, power_below, shares, whole
from p3s.program.collectives.registry import COLLECTIVES, CREATIONS
from p3s.program.collectives.writer import Schedule, Writer

OPENMPI = "openmpi"
MPICH = "mpich"


@dataclass(frozen=True)
class Rule:
    """Take this algorithm for a call, below these sizes (None: any); see ``Library``.

    ``segment``: messages are cut into pieces of so many bytes where the algorithm can, 0: not.
    """

    call: str
    algorithm: str
    segment: Natural = 0
    members_below: Natural | None = None
    bytes_below: Natural | None = None


@dataclass(frozen=True)
class Library:
    """An MPI library: family, (major, minor) version, and rules that come before its own.

    ``chosen_as``: (members, as of how many): communicators of
    so many members stand for larger ones, whose algorithms they take (p3s.program.fewer).
    """

    family: str
    version: tuple[int, int]
    rules: tuple[Rule, ...] = ()
    chosen_as: tuple[tuple[int, int], ...] = ()

    def members(self, p: int) -> int:
        """Return as of how many members the algorithm of a communicator of ``p`` is chosen."""
        return dict(self.chosen_as).get(p, p)

    def __str__(self) -> str:
        name = "Open MPI" if self.family == OPENMPI else "MPICH"
        return f"{name} {self.version[0]}.{self.version[1]}"


Row = tuple[int | None, tuple[tuple[int | None, int], ...]]


@cache
def switch_points() -> dict[str, dict[str, Any]]:
    """Return what openmpi-tuned.json holds by call: ``algorithms`` and ``members``."""
    calls: dict[str, dict[str, Any]] = json.loads(
        Path(__file__).with_name("openmpi-tuned.json").read_text()
    )["calls"]
    return calls


def algorithms(call: str) -> list[str]:
    """Return the names of a call's algorithms by number from 1; none where it has no table."""
    names: list[str] = switch_points().get(call, {}).get("algorithms", [])
    return names


@cache
def rows(call: str) -> tuple[Row, ...]:
    """Return (members below, ((bytes below, number), ...)) of a call; None: no limit."""
    limits_found = []
    for line in switch_points()[call]["members"]:
        members, *words = line.split()
        sizes = []
        for word in words:
            limit, _, number = word.rpartition(":")
            sizes.append((int(limit[1:]) if limit else None, int(number)))
        limits_found.append((None if members == "-" else int(members), tuple(sizes)))
    return tuple(limits_found)


def choose_algorithm(call: str, members: int, nbytes: int) -> str:
    """Return the name of the algorithm for a communicator of this size and this many bytes."""
    for below, sizes in rows(call):
        if below is None or members < below:
            for limit, number in sizes:
                if limit is None or nbytes < limit:
                    return algorithms(call)[number - 1]
    raise AssertionError(call)


#: The files of algorithms.
FILES = (exchanges, rooted, reductions)


@dataclass(frozen=True)
class Choice:
    """An algorithm by name, and the size its messages are cut into (0: not)."""

    algorithm: str
    segment: int = 0


def size_for_choice(call: str, at: Ints, members: int = 0) -> int:
    """Return the size in bytes by which Open MPI and the user's rules choose.

    ``members``: as of so many, each of which sends as much in all; 0: as of those that there are.
    """
    p, total = len(at) - 1, int(at[-1])
    if call in ("allgather", "gather", "scatter", "reduce_scatter_block", "allgatherv"):
        return total // p
    if call in ("alltoall", "alltoallv", "alltoallw"):
        return total // (p * (members or p))
    return total


def choose(library: Library, call: str, at: Ints, element: int, blocking: bool = True) -> Choice:
    """Return the algorithm of a library for ``len(at) - 1`` members and a vector cut at ``at``."""
    p = library.members(len(at) - 1)
    size = size_for_choice(call, at, p)
    for rule in library.rules:
        if (
            rule.call == call
            and (rule.members_below is None or p < rule.members_below)
            and (rule.bytes_below is None or size < rule.bytes_below)
        ):
            return Choice(rule.algorithm, rule.segment)
    if call in CREATIONS:
        return Choice("mask" if library.family == MPICH else "agree")
    if library.family == OPENMPI and blocking and call in switch_points():
        return Choice(choose_algorithm(call, p, size))
    total, power = int(at[-1]), p & (p - 1) == 0
    facts = {
        "p": p,
        "total": total,
        "size": size,
        "power": power,
        "other": not power,
        "enough": total // element >= power_below(p),
    }
    tables = [library.family] if blocking else [f"{library.family}-nonblocking", library.family]
    return Choice(next(name for each in tables if (name := _first(each, call, facts))))


@cache
def _choices() -> dict[str, dict[str, list[str]]]:
    choices: dict[str, dict[str, list[str]]] = tomllib.loads(
        Path(__file__).with_name("choices.toml").read_text()
    )
    return choices


#: How a fact is compared with a number in choices.toml; a fact alone has to be true.
_COMPARED: dict[str, Callable[[int, int], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "": lambda fact, _: bool(fact),
}


def _first(table: str, call: str, facts: Mapping[str, int]) -> str:
    """Return the algorithm of the first line of a table of choices that holds; "" where none."""
    lines = _choices()[table]
    for line in lines.get(call, lines["else"]):
        *conditions, name = line.split()
        parts = (re.match(r"([a-z]+)([<>=]*)(\d*)", each) for each in conditions)
        if all(_COMPARED[p[2]](facts[p[1]], int(p[3] or 0)) for p in parts if p is not None):
            return name
    return ""


def division(call: str, p: int, sizes: Ints, element: int) -> Ints:
    """Return where the vector is cut, from the bytes of each member as a scaled trace has them."""
    if COLLECTIVES[call].blocks:
        if not COLLECTIVES[call].varying:
            sizes = np.full(p, most_common(sizes))
        return starts(sizes)
    total = most_common(sizes)
    return shares(p, total, element) if COLLECTIVES[call].shared else whole(p, total)


def most_common(values: Ints) -> int:
    """Return the value that occurs most often, the largest of several."""
    distinct_values, times = np.unique(values, return_counts=True)
    return int(distinct_values[times == times.max()].max())


def element_of(call: str, library: Library, nbytes: int) -> int:
    """Return the bytes of an element: unknown in a trace, the largest of 8, 4, 2, 1 that fits.

    MPICH's broadcasts divide bytes.
    """
    if call == "bcast" and library.family == MPICH:
        return 1
    if call in CREATIONS:
        return 4  # they agree on numbers of the library's own
    return next(e for e in (8, 4, 2, 1) if nbytes % e == 0)


@dataclass(frozen=True)
class Setting:
    """What a choice depends on beside the call: library, element size, blocking or not, nodes."""

    library: Library
    element: int
    blocking: bool = True
    nodes: Ints | None = None


def write(w: Writer, setting: Setting, call: str, at: Ints, root: int) -> None:
    """Write a collective with the algorithm that the library chooses."""
    p = len(at) - 1
    if p < 2 or (int(at[-1]) == 0 and not COLLECTIVES[call].silent):
        return
    if (
        setting.nodes is not None
        and len(setting.nodes) == p
        and by_nodes(w, setting, call, at, root)
    ):
        return

    def perform(inner: Writer, name: str, inner_at: Ints, inner_root: int) -> None:
        same = name in COLLECTIVES
        how = setting if same else replace(setting, blocking=False)
        write(inner, how, name if same else name.removeprefix("i"), inner_at, inner_root)

    chosen = choose(setting.library, call, at, setting.element, setting.blocking)
    job = Job(p, root, at, setting.element, chosen.segment, perform)
    COLLECTIVES[call].algorithms[chosen.algorithm](w, job)


def by_nodes(w: Writer, setting: Setting, call: str, at: Ints, root: int) -> bool:
    """Write a collective over nodes first if the library does so; tell whether it does."""
    library, element = setting.library, setting.element
    ruled = any(rule.call == call for rule in library.rules)
    if setting.nodes is None or ruled:
        return False

    def part(view: Writer, name: str, inner: Ints, inner_root: int, blocking: bool) -> None:
        write(view, Setting(library, element, blocking), name, inner, inner_root)

    levels = nodes.Levels(w, nodes.Layout.of(setting.nodes), part, setting.blocking)
    if library.family == MPICH:
        return nodes.mpich(levels, call, at, root)
    new = library.version >= (5, 0) and setting.blocking
    return new and nodes.han(levels, call, at, root, element)


def _setting(
    library: Library, call: str, sizes: Ints, node: Ints | None, blocking: bool
) -> tuple[Setting, Ints]:
    element = element_of(call, library, most_common(sizes))
    return (Setting(library, element, blocking, node), division(call, len(sizes), sizes, element))


def chosen_name(
    library: Library, call: str, sizes: Ints, *, node: Ints | None = None, blocking: bool = True
) -> str:
    """Return the name of the algorithm of a call, for people."""
    setting, at = _setting(library, call, sizes, node, blocking)
    if node is not None and by_nodes(Writer(len(sizes)), setting, call, at, 0):
        return "by node"
    return choose(library, call, at, setting.element, blocking).algorithm


def schedule(
    library: Library,
    call: str,
    sizes: Ints,
    root: int = 0,
    *,
    node: Ints | None = None,
    blocking: bool = True,
    writer: type[Writer] = Writer,
) -> Schedule:
    """Return the messages of a call; ``sizes``: bytes of each member as in a scaled trace.

    ``node``: of every member, where the library's choice depends on it.
    """
    setting, at = _setting(library, call, sizes, node, blocking)
    w = writer(len(sizes))
    write(w, setting, call, at, root)
    return w.finish()


#: Whose choice of algorithms is taken for a plan where no MPI is installed.
USUAL_LIBRARY = (OPENMPI, "4.1")


def library_of(family: str, version: str, overrides: str | Path = "") -> Library:
    """Return the library of a family and version as p3s.base.host.mpi tells them.

    ``overrides``: "allreduce=ring,bcast=pipeline:65536", or a TOML or JSON file. Raises P3SError.
    """
    if family not in (OPENMPI, MPICH):
        raise P3SError(
            f"no table of collective algorithms for the MPI library {family!r}; known:"
            f" {OPENMPI}, {MPICH}"
        )
    match = re.match(r"(\d+)(?:\.(\d+))?", version)
    if match is None:
        raise P3SError(
            f"version {version!r} of {family} has no number in front; say for example 4.1"
        )
    return Library(family, (int(match[1]), int(match[2] or 0)), rules_of(overrides))


def rules_of(overrides: str | Path) -> tuple[Rule, ...]:
    """Return the rules of an option or a file; see ``library_of``."""
    text = str(overrides).strip()
    if not text:
        return ()
    if "=" in text and not Path(text).is_file():
        return tuple(_rule_of_word(word) for word in text.split(",") if word.strip())
    return _rules_of_file(Path(text))


def _rule_of_word(word: str) -> Rule:
    call, _, rest = word.strip().partition("=")
    name, _, segment = rest.partition(":")
    if segment and not segment.isdigit():
        raise P3SError(
            f"collectives: {word.strip()!r}: the segment size {segment!r} is no number"
            " of bytes; write for example bcast=pipeline:65536"
        )
    return check_rule(Rule(call.strip().lower(), name.strip().lower(), int(segment or 0)))


def _rules_of_file(path: Path) -> tuple[Rule, ...]:
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as err:
        why = err.strerror if isinstance(err, OSError) else "not text"
        raise P3SError(f"collectives: {path}: {why}; give a file or CALL=ALGORITHM") from err
    try:
        content = parse_json(text.encode()) if path.suffix == ".json" else tomllib.loads(text)
    except ValueError as err:
        why = " ".join(str(err).split())[:120]
        raise P3SError(f"{path}: not {path.suffix.lstrip('.') or 'TOML'}: {why}") from err
    if not isinstance(content, Mapping):
        raise P3SError(f'{path}: not a table of calls; write for example allreduce = "ring"')
    rules = []
    for call, value in content.items():
        for entry in value if isinstance(value, list) else [value]:
            rules.append(_rule_of_entry(path, str(call).lower(), entry))
    return tuple(rules)


def _rule_of_entry(path: Path, call: str, entry: Any) -> Rule:
    fields = entry if isinstance(entry, Mapping) else {"algorithm": entry}
    try:
        rule = from_data(Rule, {**fields, "call": call})
    except ShapeError as err:
        raise P3SError(f'{path}: {call}: {err}; write for example {call} = "ring"') from err
    return check_rule(replace(rule, algorithm=rule.algorithm.lower()), f"{path}: ")


def check_rule(rule: Rule, where: str = "collectives: ") -> Rule:
    """Return a rule that names a known call and a known algorithm of it; else P3SError."""
    call = rule.call.removeprefix("mpi_")
    if call not in COLLECTIVES:
        raise P3SError(f"{where}no collective {rule.call!r}; known: {', '.join(COLLECTIVES)}")
    if rule.algorithm not in COLLECTIVES[call].algorithms:
        raise P3SError(
            f"{where}{call} has no algorithm {rule.algorithm!r}; known:"
            f" {', '.join(COLLECTIVES[call].algorithms)}"
        )
    return replace(rule, call=call)
