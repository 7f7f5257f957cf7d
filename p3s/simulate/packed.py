"""Steps as the core of the simulation takes them: checked, and all that is known of each together.

The core waits for memory more than it computes. Steps that are simulated again therefore lie in the
order in which they began the first time."""

from __future__ import annotations

import ctypes
import threading
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from p3s.base.arrays import Bools, Floats, Ints
from p3s.base.errors import P3SError
from p3s.simulate.core import (
    APART,
    FLAWED,
    FLAWS,
    NO_ROOM,
    SIZE,
    STEP,
    Columns,
    Input,
    Packing,
    pointer,
)
from p3s.simulate.network import Network, rough_network
from p3s.simulate.steps import Instances, Op, Steps, instances

#: Fields of Steps that do not have an entry per step.
_OTHER = ("n", "ranks", "start", "done_start", "done", "calls", "members")
#: Steps from which on it is worth while to put them in order.
MANY = 20_000
#: Packed steps, and networks and tallies of each, that are kept.
_KEPT, _NETWORKS, _TALLIES = 1, 4, 2
#: Different costs of messages for which there is room at first.
_SIZES = 256


@dataclass(frozen=True, eq=False)
class Tally:
    """What times of steps are added up to.

    ``cell``: of each step one of ``cells``, to which its times are added as often as its ``weight``
    says. ``group``: of each step the sum of whole times of its rank that it is in, 1 to ``groups``,
    0: none; None: there are no such sums.
    """

    cell: Ints
    weight: Floats
    cells: int
    group: np.ndarray | None = None
    groups: int = 0


#: Weights and groups of steps, by place; another thread may let go of them in the meantime.
Weighed = tuple[np.ndarray, np.ndarray | None]


@dataclass(frozen=True, eq=False)
class CoreInput:
    """What the core is told of steps on a network, and the arrays that this points into."""

    network: Network
    inputs: Input
    keep: list[Any]


@dataclass(eq=False)
class PackedSteps:
    """Steps that were found to fit together, packed.

    ``step``, ``done``, ``first``, ``size``: as in state.h. ``place``: of each step its place in
    ``step``; ``order``: of each place its step, None: they are the same, and ``place`` is empty.
    ``columns``, ``cell``, ``node_of``, ``distance``, ``distances``: what they were made of.
    ``calls``: the collective calls. ``begun``: the steps as they began in a simulation of all.
    ``on``: what the core is told besides, by network.
    """

    columns: tuple[Any, ...]
    cell: Any
    node_of: Ints
    distance: Any
    distances: tuple[int, ...]
    calls: Instances
    step: np.ndarray
    done: np.ndarray
    place: np.ndarray
    first: np.ndarray
    size: np.ndarray
    longest: int
    order: np.ndarray | None = None
    begun: np.ndarray | None = None
    on: list[CoreInput] = field(default_factory=list)
    _weighed: list[tuple[Tally, Any, Weighed]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.step)

    def are(self, steps: Steps, node_of: Ints, distance: Any, network: Network, cell: Any) -> bool:
        """Tell whether they were made of these very columns, and of the same nodes and paths."""
        return (
            self.cell is cell
            and all(mine is its for mine, its in zip(self.columns, columns_of(steps), strict=True))
            and self.distances == tuple(sorted(network.paths))
            and _are_equal(self.node_of, node_of)
            and _are_equal(self.distance, distance)
        )

    def moved(self, column: np.ndarray) -> np.ndarray:
        """Return a column with an entry of each step in the order that they are packed in."""
        return np.ascontiguousarray(column if self.order is None else column[self.order])

    def number_of(self, places: Ints) -> Ints:
        """Return the steps at some places."""
        return places if self.order is None else self.order[places]

    def place_of(self, numbers: Ints) -> Ints:
        """Return the places of some steps."""
        return numbers if self.order is None else self.place[numbers]

    def by_number(self, column: np.ndarray) -> np.ndarray:
        """Return a column of the core in the order of the steps."""
        return column if self.order is None else column[self.place]

    def in_order(self) -> PackedSteps:
        """Return the same steps as they began in a simulation of all of them."""
        from p3s.simulate.core import library

        order = self.begun  # another thread may have another one in a moment
        assert order is not None
        mine = (self.step, self.done, order, self.first)
        out = tuple(np.empty_like(column) for column in mine)
        before, after = (Packing(*(column.ctypes.data for column in side)) for side in (mine, out))
        library().p3s_reorder(
            ctypes.c_int64(len(self)),
            ctypes.c_int64(len(self.first)),
            ctypes.byref(before),
            ctypes.c_void_p(order.ctypes.data),
            ctypes.byref(after),
        )
        step, done, place, first = out
        return replace(
            self, step=step, done=done, place=place, first=first, order=order, on=[], _weighed=[]
        )

    def weighed(self, tally: Tally, only: Bools | None) -> Weighed:
        """Return weights and groups by place; steps that are not among ``only`` are APART."""
        for one in self._weighed:
            if one[0] is tally and one[1] is only:
                self._weighed = [*(other for other in self._weighed if other is not one), one]
                return one[2]
        cell, group = tally.cell, tally.group
        if len(cell) and not 0 <= cell.min() <= cell.max() < tally.cells:
            raise P3SError(f"simulation: cells {cell.min()} to {cell.max()} of {tally.cells}")
        if only is not None:
            group = np.where(only, np.uint8(0) if group is None else group, np.uint8(APART))
        weight = self.moved(np.asarray(tally.weight, dtype=np.float64))
        group = None if group is None else self.moved(group.astype(np.uint8, copy=False))
        self._weighed = [*self._weighed[1 - _TALLIES :], (tally, only, (weight, group))]
        return weight, group

    def known_on(self, network: Network) -> CoreInput | None:
        """Return what the core was told of these steps on a network, None: nothing yet."""
        return next((each for each in self.on if each.network is network), None)

    def keep_on(self, network: Network, inputs: Input, keep: list[Any]) -> CoreInput:
        """Keep what the core was told, for the next simulation on the same network."""
        core_input = CoreInput(network, inputs, keep)
        self.on = [*self.on[1 - _NETWORKS :], core_input]
        return core_input


@dataclass(eq=False)
class Packs:
    """The steps that were packed last, for simulations in any thread."""

    kept: list[PackedSteps] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(
        self, steps: Steps, node_of: Ints, distance: Any, network: Network, cell: Any
    ) -> PackedSteps:
        """Return packed steps, in order where it is known; arguments as of ``pack``."""
        with self._lock:
            made_of = (steps, node_of, distance, network, cell)
            earlier = next((one for one in self.kept if one.are(*made_of)), None)
            if earlier is not None and (earlier.begun is None or earlier.order is not None):
                return earlier
            packed = pack(*made_of) if earlier is None else earlier.in_order()
            others = [one for one in self.kept if one is not earlier]
            self.kept = [*others[len(others) + 1 - _KEPT :], packed]
            return packed


def columns_of(steps: Steps) -> tuple[Any, ...]:
    """Return all that steps are but for how long they compute."""
    return tuple(getattr(steps, each.name) for each in fields(steps) if each.name != "work_ns")


def _are_equal(one: Any, other: Any) -> bool:
    return one is other or (one is not None and other is not None and np.array_equal(one, other))


def pack(
    steps: Steps, node_of: Ints, distance: Any, network: Network, cell: Any = None
) -> PackedSteps:
    """Return steps packed; nodes, distances and network as in p3s.simulate.simulate.

    ``cell``: of each step the sum that its times belong to, None: there are none. ``order``: the
    steps in the order in which they shall lie in memory. Errors: P3SError when steps refer to what
    is not there.
    """
    from p3s.simulate.core import library

    _check(steps, node_of)
    if cell is not None and len(cell) != len(steps):
        raise P3SError(f"simulation: {len(cell)} cells of {len(steps)} steps")
    calls = instances(steps)
    keep: list[Any] = []
    columns = _columns(keep, steps, calls, np.asarray(node_of), distance, network)
    if cell is not None:
        columns.cell = pointer(keep, cell, np.int32)
    step, place = np.empty(len(steps), STEP), np.empty(0, np.int32)
    requests, first = np.empty(len(steps.done), np.int32), np.empty(len(steps.ranks), np.int32)
    room, result = _SIZES, NO_ROOM
    while result == NO_ROOM:
        size = np.empty(room, SIZE)
        where = (step, requests, place, first, size)
        out = Packing(*(column.ctypes.data for column in where), 0, room)
        result = library().p3s_pack(ctypes.byref(columns), ctypes.byref(out))
        room *= 4
    if result == FLAWED:
        rank = steps.ranks[int(np.searchsorted(steps.start, out.where, side="right")) - 1]
        raise P3SError(f"simulation: step {out.where} of rank {rank}: {FLAWS[out.flaw]}")
    if result:
        raise P3SError(f"not enough memory to simulate {len(steps):,} steps; take fewer iterations")
    return PackedSteps(
        columns_of(steps),
        cell,
        node_of,
        distance,
        tuple(sorted(network.paths)),
        calls,
        *(step, requests, place, first),
        size[: out.sizes].copy(),
        int(out.longest),
    )


def surely_end(steps: Steps) -> bool:
    """Tell whether it is certain that all ranks come to their last step if sends return at once.

    False: that is not so, or a simulation must tell, or steps refer to what is not there. Costs do
    not matter.
    """
    from p3s.simulate.core import library

    node_of = np.zeros(steps.n, dtype=np.int64)
    work = np.asarray(steps.work_ns)
    if work.size and not (work.min() >= 0 and np.isfinite(work.max())):
        return False
    try:
        _check(steps, node_of)
        calls, keep = instances(steps), list[Any]()
        columns = _columns(keep, steps, calls, node_of, None, rough_network())
    except P3SError:
        return False
    each = (calls.call_instance, calls.expected, calls.member_start, calls.member)
    where = [ctypes.c_void_p(pointer(keep, column, np.int64)) for column in each]
    number = ctypes.c_int64(len(calls.kind))
    return bool(library().p3s_ends(ctypes.byref(columns), number, *where))


def _columns(
    keep: list[Any], steps: Steps, calls: Instances, node_of: Ints, distance: Any, network: Network
) -> Columns:
    """Return steps as the core packs them; ``keep`` holds the arrays that they point into."""

    def column(name: str, dtype: type) -> int:
        return pointer(keep, _narrow(getattr(steps, name), name, dtype), dtype)

    nodes = int(node_of.max(initial=0)) + 1
    distances = sorted(network.paths)
    if not distances:
        raise P3SError("simulation: the network has no path")
    number = {d: distances.index(network.nearest(d)) for d in (0, 1)}
    path_of = 0
    if distance is not None:
        table = np.asarray(distance)
        if table.ndim != 2 or table.shape[0] != table.shape[1] or table.shape[0] < nodes:
            raise P3SError(f"simulation: distances are {table.shape}, not {nodes} x {nodes} nodes")
        nodes = len(table)
        values, index = np.unique(table, return_inverse=True)
        picked = np.array([distances.index(network.nearest(int(d))) for d in values])
        path_of = pointer(keep, picked[index].reshape(table.shape), np.uint8)
    both, waits_some = bool((steps.op == Op.SENDRECV).any()), bool((steps.op == Op.WAITSOME).any())
    return Columns(
        len(steps),
        len(steps.ranks),
        steps.n,
        nodes,
        column("ranks", np.int64),
        column("start", np.int64),
        column("op", np.uint8),
        column("peer", np.int32),
        column("bytes", np.int64),
        column("peer2", np.int32) if both else 0,
        column("bytes2", np.int64) if both else 0,
        column("number", np.int32) if waits_some else 0,
        column("done_start", np.int64),
        column("done", np.int32),
        column("to", np.int32),
        column("source", np.int32),
        0,
        pointer(keep, node_of, np.int64),
        path_of,
        number[0],
        number[1],
        len(calls.call_step),
        pointer(keep, calls.call_step, np.int64),
    )


def _narrow(values: Ints, name: str, dtype: type) -> Ints:
    """Return a column in the type that the core reads; itself where it has it already."""
    if values.dtype != dtype and values.size:
        room = np.iinfo(dtype)
        if int(values.min()) < room.min or int(values.max()) > room.max:
            where = int(np.flatnonzero((values < room.min) | (values > room.max))[0])
            raise P3SError(f"simulation: {name} of step {where} is {values[where]}")
    return np.ascontiguousarray(values, dtype=dtype)


def _check(steps: Steps, node_of: Ints) -> None:
    """Raise P3SError where the columns do not fit together; the core looks at every step."""
    size, ranks = len(steps), len(steps.ranks)
    if len(node_of) < steps.n or (len(node_of) and int(np.min(node_of)) < 0):
        raise P3SError(f"simulation: nodes of {len(node_of)} ranks given, {steps.n} needed")
    if size >= 2**31:
        raise P3SError(f"simulation: {size:,} steps are too many; take fewer iterations")
    if ranks >= 2**24:
        raise P3SError(f"simulation: {ranks:,} ranks are too many")
    if (
        len(steps.start) != ranks + 1
        or steps.start[0] != 0
        or steps.start[-1] != size
        or (np.diff(steps.start) < 0).any()
    ):
        raise P3SError("simulation: the steps are not cut into ranks")
    if ranks and not (0 <= int(np.min(steps.ranks)) <= int(np.max(steps.ranks)) < steps.n):
        raise P3SError(f"simulation: a rank is not in 0..{steps.n - 1}")
    if (
        len(steps.done_start) != size + 1
        or steps.done_start[-1] != len(steps.done)
        or (np.diff(steps.done_start) < 0).any()
    ):
        raise P3SError("simulation: the lists of requests do not belong to the steps")
    for each in fields(steps):
        column = getattr(steps, each.name)
        if each.name not in _OTHER and len(column) != size:
            raise P3SError(f"simulation: {len(column)} entries of {each.name}, {size} steps")
