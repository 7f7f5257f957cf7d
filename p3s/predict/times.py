"""Time per rank and phase of a scaled trace: computation from its rows, communication measured."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from p3s.errors import P3SError
from p3s.study import Study, read_json

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]

#: Units of work that are times already; others need a cost per unit (column compute_ns).
_NS_UNITS = frozenset({"cpu_ns", "wall_ns"})
_NS_PER_S = 1e9
_BATCH_ROWS = 1 << 18
#: Run time begins at the end of MPI_Init: what comes before it is not part of it.
INIT_OPS = ("MPI_Init", "MPI_Init_thread")


@dataclass(frozen=True)
class PhaseTimes:
    """Seconds per rank and phase at one process count; arrays of shape (ranks, phases).

    ``comm_low`` and ``comm_high`` bound ``comm`` by the confidence interval of the measurement.
    ``work_rel_half_width`` is the relative half width of the work law per phase, NaN if unknown;
    it stands in where the phase has no interval of its time.
    """

    n: int
    phases: list[dict[str, Any]]
    compute: FloatArray
    comm: FloatArray
    comm_low: FloatArray
    comm_high: FloatArray
    work_rel_half_width: FloatArray
    head: dict[str, Any]

    def interval_of(self, slot: int) -> tuple[float, float] | None:
        """Return the ends of a phase's 90 % interval as multiples of its computation.

        None if unknown: no interval of its time, and none of its work.
        """
        low, high = (self.phases[slot].get(key) for key in ("compute_low", "compute_high"))
        if isinstance(low, (int, float)) and isinstance(high, (int, float)):
            return min(max(float(low), 0.0), 1.0), max(float(high), 1.0)
        width = float(self.work_rel_half_width[slot])
        return None if width != width else (max(0.0, 1.0 - width), 1.0 + width)


def read_head(scaled_dir: Path, n: int) -> dict[str, Any]:
    """Return scaled.json, its phases checked; raises P3SError when it is damaged."""
    path = scaled_dir / "scaled.json"
    head = read_json(path, "p3s.scaled")
    phases = head.get("phases")
    if head.get("n") != n or not isinstance(phases, list):
        raise P3SError(f"{path}: damaged: n or phases is missing; run p3s scale again")
    numbers = []
    for phase in phases:
        number = phase.get("phase") if isinstance(phase, dict) else None
        weight = phase.get("weight") if isinstance(phase, dict) else None
        if not isinstance(number, int) or not isinstance(weight, (int, float)) or weight < 0:
            raise P3SError(f"{path}: damaged: a phase has no number or weight; run p3s scale again")
        numbers.append(number)
    if len(set(numbers)) != len(numbers):
        raise P3SError(f"{path}: damaged: a phase is listed twice; run p3s scale again")
    unit = head.get("work_unit")
    if unit not in _NS_UNITS and not all("compute_ns" in phase for phase in phases):
        raise P3SError(
            f"{path}: work is in {str(unit)[:40]}, and nothing says how long it takes; times need "
            "a study in CPU or wall time, or native runs added to this one: p3s characterize "
            f"--work cpu -n COUNTS -o {scaled_dir.parent.parent} -- LAUNCHER"
        )
    return head


def _positions(table: Any, path: Path, n: int, slot_of: dict[int, int]) -> Any:
    """Return rank * phases + phase slot per row, checked against n and the list of phases."""
    import numpy as np

    rank = table.column("rank").to_numpy().astype(np.int64)
    phase = table.column("phase").to_numpy().astype(np.int64)
    known = np.array(sorted(slot_of), dtype=np.int64)
    at = np.searchsorted(known, phase)
    at = np.minimum(at, max(len(known) - 1, 0))
    if len(phase) and (
        not len(known) or (known[at] != phase).any() or rank.min() < 0 or rank.max() >= n
    ):
        raise P3SError(f"{path}: damaged: a row has a rank or phase that is not in scaled.json")
    slots = np.array([slot_of[int(number)] for number in known], dtype=np.int64)
    return rank * max(len(slot_of), 1) + (slots[at] if len(phase) else phase)


def compute_seconds(scaled_dir: Path, n: int, slot_of: dict[int, int]) -> FloatArray:
    """Return the computation per rank and phase in seconds: the sum of repeat x time (Eq. 8.1).

    The time before one call is the column compute_ns; in a trace without it, of a study without
    compute.json, it is the work. Shape (n, phases). What comes before the end of MPI_Init is left
    out. Streams the parts, so that memory does not grow with the number of rows.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    start_up = pa.array(INIT_OPS)

    width = max(len(slot_of), 1)
    total = np.zeros(n * width)
    parts = sorted(scaled_dir.glob("*.parquet"))
    if not parts:
        raise P3SError(f"{scaled_dir}: holds no part-*.parquet; run p3s scale again")
    for part in parts:
        try:
            with pq.ParquetFile(part) as file:
                once = "compute_ns" if "compute_ns" in file.schema_arrow.names else "work"
                batches = file.iter_batches(
                    batch_size=_BATCH_ROWS, columns=["rank", "phase", "op", "repeat", once]
                )
                for batch in batches:
                    where = _positions(batch, part, n, slot_of)
                    work = batch.column(once).to_numpy(zero_copy_only=False).astype(np.float64)
                    times = batch.column("repeat").to_numpy().astype(np.float64)
                    early = pc.is_in(batch.column("op").cast(pa.string()), value_set=start_up)
                    cost = np.where(early.to_numpy(zero_copy_only=False), 0.0, work * times)
                    if not np.isfinite(cost).all() or (cost < 0).any():
                        raise P3SError(
                            f"{part}: damaged: {once} or repeat is negative or no number; "
                            "run p3s scale again"
                        )
                    total += np.bincount(where, weights=cost, minlength=n * width)
        except (pa.ArrowException, OSError, KeyError) as err:
            why = " ".join(str(err).split())[:120]
            raise P3SError(f"{part}: damaged ({why}); run p3s scale again") from err
    return total.reshape(n, width) / _NS_PER_S


def comm_seconds(
    path: Path, n: int, slot_of: dict[int, int]
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return measured communication per rank and phase in seconds: value, low, high.

    Each of shape (n, phases), from the replay's table.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    width = max(len(slot_of), 1)
    try:
        table = pq.read_table(path)
        where = _positions(table, path, n, slot_of)
        columns = []
        for name in ("comm_ns", "comm_low_ns", "comm_high_ns"):
            values = table.column(name).to_numpy().astype(np.float64)
            if not np.isfinite(values).all() or (values < 0).any():
                raise P3SError(f"{path}: damaged: {name} is negative or no number")
            summed = np.bincount(where, weights=values, minlength=n * width)
            columns.append(summed.reshape(n, width) / _NS_PER_S)
    except (pa.ArrowException, OSError, KeyError) as err:
        why = " ".join(str(err).split())[:120]
        raise P3SError(f"{path}: damaged ({why}); run p3s replay again") from err
    return columns[0], columns[1], columns[2]


def phase_times(study: Study, n: int) -> PhaseTimes:
    """Return the time per rank and phase at ``n`` from the scaled trace and its replay."""
    import numpy as np

    scaled_dir = study.scaled_dir(n)
    head = read_head(scaled_dir, n)
    phases = head["phases"]
    slot_of = {phase["phase"]: slot for slot, phase in enumerate(phases)}
    compute = compute_seconds(scaled_dir, n, slot_of)
    if n == 1:  # one process communicates with nobody: nothing to replay
        comm = low = high = np.zeros_like(compute)
    else:
        comm, low, high = comm_seconds(study.replay_table(n), n, slot_of)
    widths = [phase.get("work_rel_half_width") for phase in phases]
    return PhaseTimes(
        n,
        phases,
        compute,
        comm,
        np.minimum(low, comm),
        np.maximum(high, comm),
        np.array([float(w) if isinstance(w, (int, float)) else np.nan for w in widths] or [0.0]),
        head,
    )
