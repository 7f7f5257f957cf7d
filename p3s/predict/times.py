"""Time per rank and phase of a scaled trace, its communication, and the draws of a run time.

The predictive distribution of a run time is joint draws of all that is not known exactly. Each
source of uncertainty (a part) has two ends, multiples of the time with the part moved to the ends
of its own 90 % interval. A draw moves all parts at once, each by a split log-normal factor through
its ends; what no part knows is Student's t. A part moves the times of all counts, phases and
changes in the same draw by the same deviate, so that ratios and differences are of draws, too.
Draws are always the same: they follow from the ends and the names of the parts alone.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from statistics import NormalDist
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from p3s.base.arrays import Floats
from p3s.base.artefacts import LastRead, files_in
from p3s.base.errors import P3SError
from p3s.base.ops import INIT_OPS
from p3s.base.records import list_signatures
from p3s.base.tables import checked_columns, codes, known_tables, numbers, open_table
from p3s.laws.statistics import LOW_MEDIAN_HIGH
from p3s.predict.commands import NO_STUDY
from p3s.predict.estimated import COMM, HIGH, LOW, WAITING, Communication
from p3s.program.scaled import parts_of, read_order, scaled_head
from p3s.signature.clock import TIMES

_NS_PER_S = 1e9
_BATCH_ROWS = 1 << 18
#: What columns of a scaled trace hold; the others are numbers.
_KINDS = {"rank": int, "phase": int, "repeat": int, "slot": int, "op": str, "kind": str}
#: Kinds of rows that communicate.
_TALKING = ("send", "recv", "collective", "completion")


#: RootParts of an interval as multiples of its value; None: unknown.
Ends90 = tuple[float, float] | None


@dataclass(frozen=True)
class PhaseTimes:
    """Seconds per rank and phase at one process count; arrays of shape (ranks, phases).

    ``mpi``: communication, its columns those of ``phases``.
    ``work_rel_half_width`` is the relative half width of the work law per phase, NaN if unknown;
    it stands in where the phase has no interval of its time.
    ``ranks``: those that the rows are of, where they stand for all; None: they are of all.
    ``io``: seconds in files, shape as ``compute``, None where no call uses any; the ends of its sum
    are in the head.
    ``root_calls``: calls of every rank in the parts of phase 0 (see p3s.predict.times), (ranks, 3).
    """

    n: int
    phases: list[dict[str, Any]]
    compute: Floats
    mpi: Communication
    work_rel_half_width: Floats
    head: dict[str, Any]
    root_calls: Floats | None = None
    ranks: NDArray[np.int64] | None = None
    io: Floats | None = None

    @property
    def own(self) -> Floats:
        """Computation and files: what a rank does by itself."""
        return self.compute if self.io is None else self.compute + self.io

    @property
    def whole(self) -> Floats:
        """All that ranks do."""
        return self.own + self.mpi.comm

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of the phases."""
        return tuple(int(phase["phase"]) for phase in self.phases)

    @property
    def run_s(self) -> float:
        """The run time in s."""
        return total(self.whole, self.mpi.estimator)

    def io_ends(self) -> tuple[float, float]:
        """Return the ends of the time in files as multiples of it."""
        uses = self.head.get("files") or ()
        whole, low, high = (
            sum(float(use.get(key) or 0.0) for use in uses)
            for key in ("seconds", "low_s", "high_s")
        )
        return _around_one(low / whole, high / whole) if whole > 0 else (1.0, 1.0)

    def interval_of(self, slot: int) -> Ends90:
        """Return the ends of a phase's 90 % interval as multiples of its computation.

        None if unknown: no interval of its time, and none of its work.
        """
        return wider(self._given(slot), self._trend(slot))

    def _trend(self, slot: int) -> Ends90:
        """Return what laws that fit as well say of work without a clear trend; None: it has one."""
        about = self.phases[slot].get("no_trend")
        return _around_one(about["low"], about["high"]) if about else None

    def _given(self, slot: int) -> Ends90:
        """Return the ends of a phase's computation by the errors of its laws; None if unknown."""
        low, high = (self.phases[slot].get(key) for key in ("compute_low", "compute_high"))
        if low is not None and high is not None:
            return _around_one(low, high)
        width = float(self.work_rel_half_width[slot])
        return None if width != width else (max(0.0, 1.0 - width), 1.0 + width)

    def parts_of(self, slot: int) -> tuple[Ends90, Ends90]:
        """Return the ends from the work law alone and from its cost alone; None: unknown.

        Where a phase has an interval of its time, ``work_error`` says how much of it is the
        work's: both were joined in quadrature. Without that key all of it counts as the cost's.
        Where work has no clear trend its part holds all laws that fit.
        """
        ends, trend, phase = self._given(slot), self._trend(slot), self.phases[slot]
        if ends is None or phase.get("compute_low") is None:
            return wider(ends, trend), None
        error = phase.get("work_error")
        if error is None:
            return trend, ends
        below, above = (max(abs(end - 1.0) ** 2 - error**2, 0.0) ** 0.5 for end in ends)
        own = max(0.0, 1.0 - error), 1.0 + error
        return wider(own, trend), (1.0 - below, 1.0 + above)


def total(seconds: Floats, estimator: str) -> float:
    """Return the run time from seconds per rank and phase, shape (ranks, phases).

    Where waiting is simulated, every delay is in the time of those that wait for it, so the run
    takes as long as the rank that needs longest. The thesis's sum knows no waiting: there every
    phase takes as long as the slowest rank in it (Eq. 8.1).
    """
    if not seconds.size:
        return 0.0
    if estimator == "thesis":
        return float(seconds.max(axis=0).sum())
    return float(seconds.sum(axis=1).max())


def _around_one(low: float, high: float) -> tuple[float, float]:
    """Return the ends of an interval of multiples, which holds 1."""
    return min(max(low, 0.0), 1.0), max(high, 1.0)


def wider(one: Ends90, other: Ends90) -> Ends90:
    """Return the interval that holds both; None where there is neither."""
    if one is None or other is None:
        return one or other
    return min(one[0], other[0]), max(one[1], other[1])


def read_head(scaled_dir: Path, n: int) -> dict[str, Any]:
    """Return scaled.json, its phases checked; raises P3SError when it is damaged."""
    path = scaled_dir / "scaled.json"
    head = scaled_head(scaled_dir)
    if head["n"] != n:
        raise P3SError(f"{path}: damaged: it is of n={head['n']}; run p3s scale again")
    unit = head.get("work_unit")
    # of work that is no time nothing but the column compute_ns says how long it takes
    if unit not in TIMES and not all("compute_ns" in phase for phase in head["phases"]):
        native = NO_STUDY.trace(sorted(list_signatures(scaled_dir.parent.parent)), work="cpu")
        raise P3SError(
            f"{path}: work is in {str(unit)[:40]}, and nothing says how long it takes; times need "
            f"a study in CPU or wall time, or native runs added to this one: {native}"
        )
    return head


def some_ranks(head: Mapping[str, Any]) -> NDArray[np.int64] | None:
    """Return the ranks that a scaled trace has rows of, ascending; None: it has those of all."""
    if not head.get("ranks"):
        return None
    return np.concatenate([np.arange(low, high + 1) for low, high in head["ranks"]])


def _positions(
    table: Any, path: Path, n: int, slot_of: dict[int, int], ranks: NDArray[np.int64] | None
) -> Any:
    """Return place of the rank * phases + phase slot per row, checked against n and the phases."""
    rank = numbers(table.column("rank")).astype(np.int64)
    phase = numbers(table.column("phase")).astype(np.int64)
    known = np.array(sorted(slot_of), dtype=np.int64)
    at = np.searchsorted(known, phase)
    at = np.minimum(at, max(len(known) - 1, 0))
    if len(phase) and (
        not len(known) or (known[at] != phase).any() or rank.min() < 0 or rank.max() >= n
    ):
        raise P3SError(f"{path}: damaged: a row has a rank or phase that is not in scaled.json")
    if ranks is not None:
        at_rank = np.minimum(np.searchsorted(ranks, rank), len(ranks) - 1)
        if (ranks[at_rank] != rank).any():
            raise P3SError(f"{path}: damaged: a row has a rank that is not in scaled.json")
        rank = at_rank
    slots = np.array([slot_of[int(number)] for number in known], dtype=np.int64)
    return rank * max(len(slot_of), 1) + (slots[at] if len(phase) else phase)


def _is_one_of(batch: Any, name: str, wanted: Collection[str]) -> NDArray[np.bool_]:
    """Tell of each row whether a column has one of some texts."""
    code, names = codes(batch.column(name))
    return np.asarray(np.array([each in wanted for each in names] or [False])[code])


def _sums(
    scaled_dir: Path, n: int, slot_of: dict[int, int], ends: RootParts | None
) -> tuple[Floats, Floats, Floats | None]:
    """Return seconds per rank and phase, the calls of parts of the root phase, seconds in files.

    Computation is the sum of repeat x time (Eq. 8.1). The time before one call is the column
    compute_ns; in a trace without it, of a study without compute.json, it is the work. What comes
    before the end of MPI_Init is left out. Streams the parts, so that memory does not grow with
    the number of rows.

    With ``ends``, rows of the root phase count in the columns of the part they belong to; calls:
    those that communicate, shape (ranks, 3).
    """
    head = scaled_head(scaled_dir)
    ranks = some_ranks(head)
    rows, width = n if ranks is None else len(ranks), max(len(slot_of), 1)
    total, calls, files = np.zeros(rows * width), np.zeros(rows * 3), np.zeros(rows * width)
    any_files = False
    for part in parts_of(scaled_dir, head):
        try:
            with open_table(part, known_tables(head), ("op", "kind")) as file:
                once = "compute_ns" if "compute_ns" in file.schema_arrow.names else "work"
                spent = "io_ns" in file.schema_arrow.names
                any_files |= spent
                columns = ["rank", "phase", "op", "repeat", once, *(["io_ns"] if spent else [])]
                columns += [] if ends is None else ["slot", "kind"]
                kinds = {name: _KINDS.get(name, float) for name in columns}
                for batch in file.iter_batches(_BATCH_ROWS, columns=columns, use_threads=False):
                    checked_columns(batch, kinds, part.name)
                    where = _positions(batch, part, n, slot_of, ranks)
                    work = numbers(batch.column(once)).astype(np.float64)
                    times = numbers(batch.column("repeat")).astype(np.float64)
                    cost = np.where(_is_one_of(batch, "op", INIT_OPS), 0.0, work * times)
                    if not np.isfinite(cost).all() or (cost < 0).any():
                        raise P3SError(
                            f"{part}: damaged: {once} or repeat is negative or no number; "
                            "run p3s scale again"
                        )
                    if ends is not None:
                        rank, slot = where // width, where % width
                        root = slot == slot_of[ends.root]
                        place = ends.place(numbers(batch.column("slot")).astype(np.int64))
                        column = np.array([slot_of[number] for number in (ends.root, START, END)])
                        where = np.where(root, rank * width + column[place], where)
                        made = root & _is_one_of(batch, "kind", _TALKING)
                        calls += np.bincount(
                            rank * 3 + place, weights=times * made, minlength=rows * 3
                        )
                    total += np.bincount(where, weights=cost, minlength=rows * width)
                    if spent:
                        each = numbers(batch.column("io_ns"))
                        files += np.bincount(where, weights=each * times, minlength=rows * width)
        except (pa.ArrowException, OSError, KeyError, ValueError) as err:
            why = " ".join(str(err).split())[:120]
            raise P3SError(f"{part}: damaged ({why}); run p3s scale again") from err
    return (
        total.reshape(rows, width) / _NS_PER_S,
        calls.reshape(rows, 3),
        files.reshape(rows, width) / _NS_PER_S if any_files else None,
    )


def computation(scaled_dir: Path) -> PhaseTimes:
    """Return the time per rank and phase of a scaled trace without any communication.

    Where the order of the calls is known, phase 0 is divided into the start of the program (what
    comes before its first loop, phase -1), its end (phase -2) and the rest between its loops.
    """
    read_head(scaled_dir, int(scaled_dir.name.removeprefix("np")))
    return _last_computation(scaled_dir)


def _computation(scaled_dir: Path) -> PhaseTimes:
    head = scaled_head(scaled_dir)
    n = head["n"]
    phases = [
        {**phase, "kind": "loop" if phase.get("parent", 0) is not None else "rest"}
        for phase in head["phases"]
    ]
    ends = root_parts_of(scaled_dir, phases)
    if ends is not None:
        phases = ends.divided(phases)
    slot_of = {phase["phase"]: slot for slot, phase in enumerate(phases)}
    compute, calls, io = _sums(scaled_dir, n, slot_of, ends)
    widths = [phase.get("work_rel_half_width") for phase in phases]
    return PhaseTimes(
        n,
        phases,
        compute,
        Communication.none("simulation", n, tuple(slot_of), len(compute)),
        np.array([np.nan if w is None else w for w in widths] or [0.0]),
        head,
        root_calls=None if ends is None else calls,
        ranks=some_ranks(head),
        io=io,
    )


#: Seconds of ranks and phases, and counts, that are remembered: a prediction and what changes save
#: in it rest on the same.
_FEW_TIMES, _COUNTS = 1 << 16, 16
_last_computation = LastRead(
    _computation, _COUNTS, files_in, lambda times: times.compute.size <= _FEW_TIMES
)


def with_communication(times: PhaseTimes, found: Communication) -> PhaseTimes:
    """Return computation with the communication of an estimator.

    What it says of phase 0 is divided between start, rest and end as each rank's calls are.
    """
    slot_of = {number: slot for slot, number in enumerate(times.numbers)}
    unknown = [number for number in found.phases if number not in slot_of or number < REST]
    if unknown or found.n != times.n or found.comm.shape != (len(times.compute), len(found.phases)):
        raise P3SError(
            f"n={times.n}: what the {found.estimator} says is not of this scaled trace; "
            "run p3s predict again"
        )
    share = None
    if times.root_calls is not None:
        whole = times.root_calls.sum(axis=1, keepdims=True)
        share = np.where(whole > 0, times.root_calls / np.maximum(whole, 1e-300), [[1.0, 0, 0]])

    seconds, longer = found.seconds.copy(), found.longer
    if found.beside is not None:
        computed = np.stack([computed_in(times, number) for number in found.phases], axis=1)
        longer = found.beside - computed
    if longer is not None:
        seconds[[COMM, WAITING, LOW, HIGH]] += _waited_instead(found.waiting, longer)
    seconds[LOW] = np.maximum(seconds[LOW], 0.0)
    placed = np.zeros((len(seconds), *times.compute.shape))
    for column, number in enumerate(found.phases):
        if share is not None and times.phases[slot_of[number]].get("kind") == "rest":
            for part, into in enumerate((number, START, END)):
                placed[:, :, slot_of[into]] = seconds[:, :, column] * share[:, part]
        else:
            placed[:, :, slot_of[number]] = seconds[:, :, column]
    placed[LOW] = np.minimum(placed[LOW], placed[COMM])
    placed[HIGH] = np.maximum(placed[HIGH], placed[COMM])
    return replace(
        times, mpi=replace(found, phases=times.numbers, seconds=placed, beside=None, longer=None)
    )


def _waited_instead(waiting: Floats, longer: Floats) -> Floats:
    """Return what is added to the waiting of ranks that compute by ``longer`` less than simulated.

    Seconds, (ranks, phases). No phase is waited for less than not at all: what a rank does not
    wait in one, it waits less in the others.
    """
    wanted = waiting + longer
    there = np.maximum(wanted, 0.0)
    whole = there.sum(axis=1, keepdims=True)
    left = np.maximum(wanted.sum(axis=1, keepdims=True), 0.0)
    return np.asarray(
        there * np.divide(left, whole, out=np.ones_like(whole), where=whole > 0) - waiting
    )


def computed_in(times: PhaseTimes, number: int) -> Floats:
    """Return what every rank computes in a phase, start and end with the rest between them."""
    divided = {START, END, number} if number == REST else {number}
    mine = [slot for slot, one in enumerate(times.numbers) if one in divided]
    return np.asarray(times.compute[:, mine].sum(axis=1))


# ---- start, end and rest of a program: before, after and between its loops ----------------------
#: Phase numbers of the parts of phase 0, which is what lies in no loop.
REST, START, END = 0, -1, -2
_BETWEEN, _BEFORE, _AFTER = 0, 1, 2
#: What is of the whole of phase 0, not of one of its parts.
_WHOLE = ("crm_i_ns", "crm_c_ns", "compute_ns", "work")


@dataclass(frozen=True)
class RootParts:
    """Where the rows of the root phase belong: ``of_slot`` is 0 between, 1 before, 2 after loops.

    By the rows' column ``slot``; ``root``: number of the root phase.
    """

    root: int
    of_slot: NDArray[np.int64]

    def place(self, slot: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return 0, 1 or 2 per row; rows of slots that are not known lie between the loops."""
        known = (slot >= 0) & (slot < len(self.of_slot))
        of = self.of_slot[np.where(known, slot, 0)] if len(self.of_slot) else np.zeros_like(slot)
        return np.asarray(np.where(known, of, _BETWEEN))

    def divided(self, phases: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the phases with the start in front and the end at the end."""
        whole = next(phase for phase in phases if phase["phase"] == self.root)
        part = {key: value for key, value in whole.items() if key not in _WHOLE}
        rest = [part if phase is whole else phase for phase in phases]
        return [
            {**part, "phase": START, "name": "start", "kind": "start"},
            *rest,
            {**part, "phase": END, "name": "end", "kind": "end"},
        ]


def root_parts_of(scaled_dir: Path, phases: list[dict[str, Any]]) -> RootParts | None:
    """Return where the rows of the phase without a parent belong; None where nothing says it.

    From order.json: an item's first position against those of the outermost loops that iteration
    (walks from partner to partner are none). None without an order, and without loops.
    """
    roots = [phase["phase"] for phase in phases if phase.get("kind") == "rest"]
    path = scaled_dir / "order.json"
    if len(roots) != 1 or roots[0] != REST or not path.exists():
        return None
    order = read_order(scaled_dir)
    loops = [
        loop.at[0]
        for loop in order.loops or ()
        if not loop.parent and loop.walk is None and loop.at
    ]
    if not loops:
        return None
    first, last = min(loops), max(loops)
    places = []
    for item in order.items:
        where = _BETWEEN
        if item.at:
            where = _BEFORE if item.at[0] < first else _AFTER if item.at[0] > last else _BETWEEN
        places += [where] * len(item.slots)
    return RootParts(roots[0], np.array(places, dtype=np.int64))


#: Low and high end as multiples of the value: low <= 1 <= high.
Factors = tuple[float, float]
#: The same of a value; None: not known.
Ends = Factors | tuple[None, None]
#: Parts that are known of one estimate alone, and all of them.
OWN = ("work", "cost", "replay", "files")
RESIDUAL = "residual"
PARTS = (*OWN, RESIDUAL)
#: Joint draws.
NUMBER = 1024
#: 95 % quantile of Student's t with 4 degrees of freedom.
T90 = 2.1318
#: Ends of a 90 % interval, as shares of the draws.
_ENDS = LOW_MEDIAN_HIGH[0], LOW_MEDIAN_HIGH[2]
#: A low end of nothing, as a multiple.
_LEAST = 0.01
#: What messages take that are not those of the model: half to twice as long.
_RIVAL = (0.5, 2.0)


# ---- draws ---------------------------------------------------------------------------------
@dataclass(frozen=True)
class Rival:
    """Another explanation of the traced runs: its reason, and how likely it is.

    share: of the run time, what it has in another way.
    """

    code: str
    chance: float
    share: float

    def factors(self) -> Floats:
        """Return the multiple of the time of each draw: 1 where the model is right, (NUMBER,)."""
        chosen = (_order(f"chosen {self.code}") + 0.5) / NUMBER < self.chance
        moved = _draw_factors(f"rival {self.code}", _RIVAL)
        return np.where(chosen, 1.0 + min(self.share, 1.0) * (moved - 1.0), 1.0)


def draws(parts: Mapping[str, Factors | None], rivals: Iterable[Rival] = ()) -> Floats:
    """Return joint draws of a time as multiples of it, (NUMBER,)."""
    found = np.ones(NUMBER)
    for name, ends in parts.items():
        if ends is not None:
            found *= _draw_factors(name, ends)
    for rival in rivals:
        found *= rival.factors()
    return found


def ends_of(found: Floats, value: float = 1.0) -> Factors:
    """Return the 90 % interval of draws, which holds the value."""
    low, high = np.quantile(found, _ENDS, method="hazen")
    return min(float(low), value), max(float(high), value)


def known_ends(found: Floats | None, value: float = 1.0) -> Ends:
    """Return the interval of draws as :func:`ends_of`; None: they are not known."""
    return (None, None) if found is None else ends_of(found, value)


def ratio(one: Floats | None, other: Floats | None, factor: float = 1.0) -> Floats | None:
    """Return draws of a factor times one time over another; None: either is not known."""
    if one is None or other is None:
        return None
    return np.asarray(factor * one / np.maximum(other, 1e-300))


def evenly(low: float, high: float) -> Floats:
    """Return draws that lie evenly between two times, (NUMBER,)."""
    return np.asarray(low + (high - low) * (_order("repeats") + 0.5) / NUMBER)


def _draw_factors(name: str, ends: Factors) -> Floats:
    """Return the factors of a part's draws, (NUMBER,)."""
    low, high = (math.log(max(end, _LEAST)) for end in ends)
    deviate = _deviates(name)
    return np.exp(np.where(deviate > 0, high, -low) * deviate)


@cache
def _deviates(name: str) -> Floats:
    """Return the deviates of a part, 1 and -1 at the ends of its 90 % interval, (NUMBER,)."""
    shares = (np.arange(NUMBER) + 0.5) / NUMBER
    if name == RESIDUAL:
        square = np.sqrt(4.0 * shares * (1.0 - shares))  # the quantile of 4 degrees of freedom
        size = 2.0 * np.sqrt(np.maximum(np.cos(np.arccos(square) / 3.0) / square - 1.0, 0.0))
        sorted_ = np.sign(shares - 0.5) * size
    else:
        normal = NormalDist()
        sorted_ = np.array([normal.inv_cdf(share) for share in shares.tolist()])
    return np.asarray(sorted_[_order(name)] / np.quantile(sorted_, _ENDS[1], method="hazen"))


@cache
def _order(name: str) -> np.ndarray:
    """Return the numbers of all draws in an order of a part's own, (NUMBER,)."""
    return np.random.Generator(np.random.PCG64(crc32(name.encode()))).permutation(NUMBER)


# ---- parts of an estimate ------------------------------------------------------------------
def own_parts(
    times: PhaseTimes, rank: int | None = None, slot: int | None = None
) -> dict[str, Factors | None] | None:
    """Return the parts that follow from the estimate itself: of the run, or of one phase of a rank.

    A part is null where nothing is known of it in any phase; the result is None where a phase
    that computes has neither an interval of its work nor of its time.
    """
    ranks = slice(None) if rank is None else slice(rank, rank + 1)
    slots = list(range(len(times.phases))) if slot is None else [slot]
    io = np.zeros_like(times.compute) if times.io is None else times.io
    compute, io = (part[ranks][:, slots] for part in (times.compute, io))
    mpi = times.mpi.seconds[:, ranks][:, :, slots] + io
    comm = mpi[COMM]
    parts = [times.parts_of(number) for number in slots]
    busy = np.asarray((compute > 0.0).any(axis=0))
    if any(there and part == (None, None) for there, part in zip(busy, parts, strict=True)):
        return None

    def moved(*ends: Floats) -> Factors:
        low, high = (total(each, times.mpi.estimator) for each in ends)
        return factors(total(compute + comm, times.mpi.estimator), low, high)

    found: dict[str, Factors | None] = dict.fromkeys(OWN)
    for k, name in enumerate(("work", "cost")):
        if any(part[k] is not None for part in parts):
            low, high = np.array([part[k] or (1.0, 1.0) for part in parts]).T
            found[name] = moved(compute * low + comm, compute * high + comm)
    if times.n > 1:
        found["replay"] = moved(compute + mpi[LOW], compute + mpi[HIGH])
    if io.any():
        low, high = times.io_ends()
        found["files"] = moved(
            compute + comm + (low - 1.0) * io, compute + comm + (high - 1.0) * io
        )
    return found


def factors(value: float, low: float, high: float) -> Factors:
    """Return two ends as multiples of a value; of nothing, 1 and 1."""
    if value <= 0.0:
        return 1.0, 1.0
    return min(low / value, 1.0), max(high / value, 1.0)


# ---- what no part knows --------------------------------------------------------------------
def residual_ends(
    communication: float, doublings: float, residual: float, hold_out: float
) -> Factors:
    """Return the ends of what no part knows: of Student's t, 90 %.

    Its scale is of what is known of a program's errors at a count, as shares of the run time there:
    communication: all time in calls; doublings: of the count, beyond the traced ones; residual:
    what runs took beyond what the parts allow; hold_out: how far computation was off where the
    model was checked, beyond what its own interval allows.
    """
    known = coefficients()
    scale = T90 * math.hypot(
        known["floor"],
        known["messages"] * communication,
        known["doubling"] * communication * doublings,
        known["residual"] * residual,
        known["hold_out"] * hold_out,
    )
    return math.exp(-scale), math.exp(scale)


@cache
def coefficients() -> Mapping[str, float]:
    """Return the coefficients of the scale; scale.toml says where they are from."""
    text = files("p3s.predict").joinpath("scale.toml").read_text(encoding="utf-8")
    found: Mapping[str, float] = tomllib.loads(text)["scale"]
    return found
