"""signature/phases.json as data that can be relied on: loops, calls, phases, accounts.

The artefact is described in docs/formats.md; whatever does not fit that description is damage.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from p3s.base.artefacts import unusable
from p3s.base.errors import UsageError
from p3s.signature.phase_file import read_phases

#: Parts of a run in the order they are shown; together they are all of it.
PARTS = ("start", "relevant", "rest", "end")
#: No program nests its loops deeper; a file that does is damaged.
_MAX_DEPTH = 100


#: What reading JSON of another shape raises.
_WRONG = (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RecursionError)


@dataclass(frozen=True)
class Trips:
    """Iterations of a loop at one count: of the rank with most and with fewest, and per entry."""

    turns: int
    turns_min: int
    entries: int
    per_entry: tuple[int, int]


@dataclass(frozen=True)
class Call:
    """One MPI call of the tree; ``ranks`` and all after it are by process count."""

    call: int
    site: str
    op: str
    when: str
    ranks: Mapping[int, int]
    count: Mapping[int, int]
    bytes: Mapping[int, tuple[int, int]]
    time_ns: Mapping[int, int]


@dataclass(frozen=True)
class Loop:
    """A loop, its iterations by process count, and what is in it in program order."""

    loop: int
    walk: str | None
    trips: Mapping[int, Trips]
    body: tuple[Loop | Call, ...]

    def calls(self) -> Iterator[Call]:
        """Yield all calls inside, however deep."""
        for item in self.body:
            if isinstance(item, Loop):
                yield from item.calls()
            else:
                yield item

    def loops(self) -> Iterator[Loop]:
        """Yield this loop and all inside."""
        yield self
        for item in self.body:
            if isinstance(item, Loop):
                yield from item.loops()


@dataclass(frozen=True)
class Cost:
    """A phase at one process count; sums are over all ranks."""

    weight: int
    weight_min: int
    ranks: int
    events: int
    bytes: int
    work: int
    elapsed_ns: int
    share: float
    relevant: bool
    operations: Mapping[str, int]


@dataclass(frozen=True)
class Phase:
    """A phase: the loop it is, and what it costs by process count."""

    phase: int
    loop: int
    parent: int | None
    depth: int
    name: str
    calls: tuple[int, ...]
    spread: float | None
    constant_work: bool
    varying: bool
    costs: Mapping[int, Cost]

    @property
    def relevant(self) -> bool:
        """Whether it is relevant at any of the counts."""
        return any(cost.relevant for cost in self.costs.values())


@dataclass(frozen=True)
class Account:
    """All events and all the time of one count, by part of the run: part -> (events, ns)."""

    events: int
    null_events: int
    failed_polls: int
    time_ns: int
    parts: Mapping[str, tuple[int, int]]


@dataclass(frozen=True)
class Phases:
    """The phases of a study, at one or more process counts."""

    counts: tuple[int, ...]
    work_unit: str
    sites: Mapping[str, tuple[str, ...]]
    tree: Loop
    phases: tuple[Phase, ...]
    accounts: Mapping[int, Account]
    raw: Mapping[str, Any] = field(repr=False, compare=False, default_factory=dict)

    def only(self, counts: Sequence[int], path: Path | str) -> Phases:
        """Return this at some of its counts; raises UsageError for one that is not there."""
        for count in counts:
            if count not in self.counts:
                raise UsageError(
                    f"-n {count}: {path} has no such count; it has "
                    f"{', '.join(map(str, self.counts))}"
                )
        return replace(self, counts=tuple(counts), raw=_only(self.raw, {str(n) for n in counts}))


def load(path: Path) -> Phases:
    """Read signature/phases.json; raises P3SError in one line when it is absent or damaged."""
    raw = read_phases(path)
    try:
        return _parsed(raw)
    except _WRONG as err:
        why = " ".join(str(err).split())[:100]
        what = f"no {why}" if isinstance(err, KeyError) else why
        raise unusable(path, what, "delete it and run p3s characterize again") from err


def _parsed(raw: Mapping[str, Any]) -> Phases:
    counts = tuple(_whole(n, least=1) for n in _list(raw["counts"]))
    if not counts or list(counts) != sorted(set(counts)):
        raise ValueError("counts are not ascending")
    tree = _loop(raw["tree"])
    phases = tuple(_phase(row) for row in _list(raw["phases"]))
    accounts = {n: _account(row) for n, row in _by_count(raw["accounting"]).items()}
    if set(accounts) != set(counts):
        raise ValueError("accounting is not of the counts")
    ids = {call.call for call in tree.calls()}
    loops = {loop.loop for loop in tree.loops()}
    for phase in phases:
        if phase.loop not in loops or not ids.issuperset(phase.calls):
            raise ValueError(f"phase {phase.phase} is not in the tree")
    sites = {
        _text(key): tuple(_text(frame) for frame in _list(frames))
        for key, frames in _dict(raw["sites"]).items()
    }
    return Phases(counts, _text(raw["work_unit"]), sites, tree, phases, accounts, raw)


def _loop(raw: Mapping[str, Any], depth: int = 0) -> Loop:
    if depth > _MAX_DEPTH:
        raise ValueError(f"loops are nested deeper than {_MAX_DEPTH}")
    walk = raw["walk"]
    if walk not in (None, "partners", "requests"):
        raise ValueError(f"unknown walk {walk!r:.40}")
    trips = {
        n: Trips(
            _whole(row["turns"]),
            _whole(row["turns_min"]),
            _whole(row["entries"]),
            _pair(row["per_entry"]),
        )
        for n, row in _by_count(raw["trips"]).items()
    }
    body = tuple(
        _loop(item, depth + 1) if "loop" in item else _call(item) for item in _list(raw["body"])
    )
    return Loop(_whole(raw["loop"]), walk, trips, body)


def _call(raw: Mapping[str, Any]) -> Call:
    return Call(
        _whole(raw["call"]),
        _text(raw["site"]),
        _text(raw["op"]),
        _text(raw["when"]),
        {n: _whole(value) for n, value in _by_count(raw["ranks"]).items()},
        {n: _whole(value) for n, value in _by_count(raw["count"]).items()},
        {n: _pair(value) for n, value in _by_count(raw["bytes"]).items()},
        {n: _whole(value, least=None) for n, value in _by_count(raw["time_ns"]).items()},
    )


def _phase(raw: Mapping[str, Any]) -> Phase:
    costs = {n: _cost(row) for n, row in _by_count(raw["per_count"]).items()}
    spread, parent = raw["total_work_spread"], raw["parent"]
    return Phase(
        _whole(raw["phase"]),
        _whole(raw["loop"]),
        None if parent is None else _whole(parent),
        _whole(raw["depth"]),
        _text(raw["name"]),
        tuple(_whole(call) for call in _list(raw["calls"])),
        None if spread is None else float(spread),
        bool(raw["constant_work"]),
        bool(raw["varying"]),
        costs,
    )


def _cost(raw: Mapping[str, Any]) -> Cost:
    return Cost(
        weight=_whole(raw["weight"]),
        weight_min=_whole(raw["weight_min"]),
        ranks=_whole(raw["ranks"]),
        events=_whole(raw["events"]),
        bytes=_whole(raw["bytes"]),
        work=_whole(raw["work"], least=None),
        elapsed_ns=_whole(raw["elapsed_ns"], least=None),
        share=_share(raw["share"]),
        relevant=bool(raw["relevant"]),
        operations={_text(op): _whole(n) for op, n in _dict(raw["operations"]).items()},
    )


def _account(raw: Mapping[str, Any]) -> Account:
    parts = {
        key: (_whole(raw[key]["events"]), _whole(raw[key]["time_ns"], least=None)) for key in PARTS
    }
    return Account(
        _whole(raw["events"]),
        _whole(raw["null_events"]),
        _whole(raw["failed_polls"]),
        _whole(raw["time_ns"], least=None),
        parts,
    )


# ---- what JSON may hold at a place -------------------------------------------------------------
def _whole(value: Any, least: int | None = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != int(value):
        raise ValueError(f"{value!r:.40} is no whole number")
    if least is not None and value < least:
        raise ValueError(f"{value!r:.40} is below {least}")
    return int(value)


def _share(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1.0001:
        raise ValueError(f"{value!r:.40} is no share")
    return float(value)


def _pair(value: Any) -> tuple[int, int]:
    low, high = value
    return _whole(low), _whole(high)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r:.40} is no text")
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{value!r:.40} is no list")
    return value


def _dict(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{value!r:.40} is no object")
    return value


def _by_count(value: Any) -> dict[int, Any]:
    return {_whole(int(key), least=1): entry for key, entry in _dict(value).items()}


_BY_COUNT = {"trips", "ranks", "count", "bytes", "time_ns", "per_count", "accounting"}


def _only(raw: Any, counts: set[str]) -> dict[str, Any]:
    """Return the artefact with the entries of some counts only."""

    def cut(value: Any, key: str) -> Any:
        if key in _BY_COUNT and isinstance(value, dict):
            return {n: entry for n, entry in value.items() if n in counts}
        if isinstance(value, dict):
            return {name: cut(entry, name) for name, entry in value.items()}
        if isinstance(value, list) and key in ("body", "phases"):
            return [cut(entry, "") for entry in value]
        return value

    out = {key: cut(value, key) for key, value in raw.items()}
    out["counts"] = [n for n in raw["counts"] if str(n) in counts]
    return out
