"""What advice is made of: objectives, chosen configurations, runs that would tell more."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from p3s.base.errors import UsageError
from p3s.base.text import plural
from p3s.machine.topology.inside import Node
from p3s.methods.threads.places import same_places
from p3s.methods.threads.types import Uses, uses
from p3s.predict.types import Reason

#: Numbers of nodes are tried in steps of a quarter of a doubling (1, 2, 3, 4, 5, 6, 7, 8, 10, ...).
_STEPS = 4
#: Nodes may be left empty in parts: by halves, down to this share.
_EMPTIEST = 8
Accepted = Collection[int] | Callable[[int], bool] | None


@dataclass(frozen=True, order=True)
class Configuration:
    """Processes with threads each, so many of them on a node, on so many nodes; far: threads of a
    process lie far from each other (p3s.methods.threads.places)."""

    processes: int
    threads: int
    per_node: int
    nodes: int
    far: bool = False


@dataclass(frozen=True)
class Limits:
    """What bounds configurations.

    nodes: how many there are; cores: how many may be used in all (None: all); smt: whether hardware
    threads may be used; threads: those of a process to choose from (empty: powers of two and
    what fills a domain, a socket, the node); accepted: process counts that the program takes, or
    what says whether it takes one; footprint: bytes of a process of n processes, which the
    node's memory must hold.
    """

    node: Node
    nodes: int = 1
    cores: int | None = None
    smt: bool = False
    threads: tuple[int, ...] = ()
    accepted: Accepted = None
    footprint: Callable[[int], float] | None = None


def admissible(limits: Limits) -> tuple[Configuration, ...]:
    """Return all configurations within limits, in a fixed order.

    Errors: UsageError, in one line, for limits that no configuration can meet.
    """
    _check(limits)
    configurations = dict.fromkeys(
        each
        for threads in _threads(limits)
        for per_node in _per_node(limits, threads)
        for each in _fill_nodes(limits, threads, per_node)
    )
    if not configurations:
        raise UsageError(f"no configuration of {_bounds(limits)} is admissible; {_loosen(limits)}")
    return tuple(sorted(configurations))


def uses_of(configurations: Sequence[Configuration]) -> Uses:
    """Return configurations as columns of uses of nodes."""
    rows = [(c.processes, c.threads, c.per_node, c.far) for c in configurations]
    n, threads, per_node, far = zip(*rows, strict=True)
    return uses(n, threads, per_node, far)


def _check(limits: Limits) -> None:
    room = limits.node.slots if limits.smt else limits.node.cores
    if limits.nodes < 1 or (limits.cores is not None and limits.cores < 1):
        raise UsageError("the advisor needs one node and one core at least; give more")
    if any(t < 1 for t in limits.threads):
        raise UsageError("threads of a process are 1 and more; leave the others out")
    if limits.threads and min(limits.threads) > room:
        more = "" if limits.smt or limits.node.smt == 1 else "; hardware threads may be allowed"
        raise UsageError(
            f"{min(limits.threads)} threads do not fit on a node of {limits.node.cores} cores{more}"
        )
    if limits.footprint is not None and limits.node.memory is None:
        raise UsageError(
            f"{limits.node.source}: memory of a node is not known; say how much it has"
        )


def _bounds(limits: Limits) -> str:
    cores = "" if limits.cores is None else f", {plural(limits.cores, 'core')} in all"
    return f"{plural(limits.nodes, 'node')} of {limits.node.text}{cores}"


def _loosen(limits: Limits) -> str:
    if limits.footprint is not None:
        return "allow more nodes, or nodes with more memory"
    return "allow more nodes or other process counts"


def _threads(limits: Limits) -> list[int]:
    """Return threads of a process to choose from."""
    node = limits.node
    room = node.slots if limits.smt else node.cores
    sockets = int(node.socket_of.tolist().count(0))
    fills = {node.domains[0], sockets, node.cores, room}
    candidates = limits.threads or sorted({1 << k for k in range(room.bit_length())} | fills)
    return [t for t in candidates if t <= room]


def _per_node(limits: Limits, threads: int) -> list[int]:
    """Return processes on a node: full ones, and halves of it; with hardware threads twice."""
    out = {limits.node.cores // threads}
    if limits.smt:
        out.add(limits.node.slots // threads)
    part = 2
    while part <= _EMPTIEST:
        out.add(limits.node.cores // (threads * part))
        part *= 2
    return sorted(out - {0})


def _fill_nodes(limits: Limits, threads: int, per_node: int) -> Iterator[Configuration]:
    """Yield the configurations with so many processes on each node, perhaps fewer on the last."""
    for n in _counts(limits, per_node):
        nodes = -(-n // per_node)
        on_node = min(per_node, n)
        if nodes > limits.nodes or not _takes(limits.accepted, n):
            continue
        if limits.cores is not None and n * threads > limits.cores:
            continue
        if not _has_room(limits, n, on_node):
            continue
        yield Configuration(n, threads, on_node, nodes)
        if not same_places(limits.node, on_node, threads):
            yield Configuration(n, threads, on_node, nodes, far=True)


def _counts(limits: Limits, per_node: int) -> list[int]:
    if isinstance(limits.accepted, Collection):
        return sorted({int(n) for n in limits.accepted if n >= 1})
    numbers, k = {limits.nodes}, 1
    while k <= limits.nodes:
        numbers |= {k + k * step // _STEPS for step in range(_STEPS)}
        k *= 2
    return [per_node * m for m in sorted(numbers) if m <= limits.nodes]


def _takes(accepted: Accepted, n: int) -> bool:
    return accepted(n) if callable(accepted) else accepted is None or n in accepted


def _has_room(limits: Limits, n: int, on_node: int) -> bool:
    memory = limits.node.memory
    if limits.footprint is None or memory is None:
        return True
    return on_node * limits.footprint(n) <= memory


class Objective(StrEnum):
    """What is to be least.

    TIME: of the run. INDEX: the efficiency index, time over efficiency, n t^2 / T_c with T_c the
    computation of all ranks (thesis, eq. 4.9 and 4.10). CORE_INDEX: the same over cores, with the
    busy time of all threads. CORE_HOURS: of the nodes that are taken.
    """

    TIME = "time"
    INDEX = "efficiency-index"
    CORE_INDEX = "core-index"
    CORE_HOURS = "core-hours"


@dataclass(frozen=True)
class Asked:
    """What advice is asked for: within which limits, for which values of the input.

    nodes, cores: at most (0: no limit of cores); threads: to choose from, empty: all that fit.
    """

    nodes: int
    cores: int
    rest: str = ""
    threads: tuple[int, ...] = ()
    counts: tuple[int, ...] = ()
    node: Node | None = None
    smt: bool = False
    objective: Objective = Objective.TIME
    top: int = 3


def of_advice(reasons: Sequence[Reason], own_codes: Collection[str] = ()) -> Iterator[Reason]:
    """Yield reasons of predictions that are ones of advice, too.

    own_codes: codes of which an advisor has its own. Configurations whose input grows with the
    processes cannot be compared by their times.
    """
    for reason in reasons:
        if reason.code == "same-work":
            yield replace(reason, untrustworthy=True)
        elif reason.code not in own_codes:
            yield reason


class Interval(NamedTuple):
    """A value and the ends of its 90 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Choice:
    """A configuration with what is expected of it.

    objective, seconds: with intervals; computing, messages: seconds of the parts; efficiency: T_c /
    (n t), index: t / efficiency; core_hours: of whole nodes; regret: by how much the objective is
    expected to be above the best one's, relative; chance: that it is the best of all. reasons:
    what is doubtful of it.
    """

    configuration: Configuration
    objective: Interval
    seconds: Interval
    computing: float
    messages: float
    efficiency: float
    index: float
    core_hours: float
    regret: float
    chance: float
    reasons: tuple[Reason, ...] = ()

    @property
    def trusted(self) -> bool:
        """Whether nothing speaks against it."""
        return not any(each.untrustworthy for each in self.reasons)


@dataclass(frozen=True)
class Advice:
    """The best configurations by an objective, the best first, of so many that were considered."""

    objective: Objective
    choices: tuple[Choice, ...]
    considered: int

    @property
    def best(self) -> Choice:
        """The configuration that is advised."""
        return self.choices[0]


@dataclass(frozen=True)
class NextRun:
    """A run that would narrow the decision: regret expected now, and after it; spread: of the best
    few configurations' objectives, relative (standard deviation); core_hours: what it costs."""

    configuration: Configuration
    workload: float | None
    regret: float
    regret_after: float
    spread: float
    spread_after: float
    core_hours: float

    @property
    def gain(self) -> float:
        """By how much the expected regret falls."""
        return self.regret - self.regret_after


class Cell(NamedTuple):
    """A field of the heat map: the best configuration with so many processes and threads."""

    processes: int
    threads: int
    configuration: Configuration
    value: float
    regret: float
