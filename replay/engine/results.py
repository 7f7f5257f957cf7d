"""What one program of a replay has measured, its file, and medians with an interval."""

from __future__ import annotations

import hashlib
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

import numpy as np
import numpy.typing as npt

from p3s.base.arrays import Floats, Ints
from p3s.base.artefacts import file_bytes, parse_json, write_bytes
from p3s.base.errors import P3SError
from p3s.base.tables import read_arrays


@dataclass(frozen=True)
class Estimate:
    """Cost in ns with a 95 % interval, from ``n_samples`` timed events."""

    cost_ns: float
    low_ns: float
    high_ns: float
    n_samples: int = 0

    @property
    def half_width(self) -> float:
        """Return the larger distance of the interval's ends from the cost, relative to it."""
        widest = max(self.high_ns - self.cost_ns, self.cost_ns - self.low_ns)
        return widest / self.cost_ns if self.cost_ns > 0 else 0.0 if widest == 0 else np.inf

    def plus(self, ns: float) -> Estimate:
        """Return the estimate moved by a constant; nothing becomes negative."""
        return Estimate(
            max(self.cost_ns + ns, 0.0),
            max(self.low_ns + ns, 0.0),
            max(self.high_ns + ns, 0.0),
            self.n_samples,
        )


NOTHING = Estimate(0.0, 0.0, 0.0, 0)


def median_interval(
    values: Sequence[float] | npt.ArrayLike, n_samples: int | None = None
) -> Estimate:
    """Return the median with the distribution-free 95 % interval of its order statistics.

    NaN is left out; of no value at all the estimate is 0 with 0 samples. Below 6 values there is
    no such interval: then it is the range of the values. ``n_samples``: timed events behind the
    values, where that is not their number.
    """
    ordered = np.asarray(values, dtype=np.float64).reshape(-1)
    ordered = np.sort(ordered[~np.isnan(ordered)])
    count = len(ordered)
    if count == 0:
        return NOTHING
    middle = float(np.median(ordered))
    skip = interval_rank(count)
    return Estimate(
        middle,
        float(ordered[skip]),
        float(ordered[count - 1 - skip]),
        count if n_samples is None else n_samples,
    )


def interval_rank(count: int) -> int:
    """Return how many values may be cut off each end: P(Binomial(count, 1/2) <= k - 1) <= 2.5 %."""
    if count >= 1000:
        return int(count / 2 - 0.98 * count**0.5) - 1
    below = np.cumsum([math.comb(count, k) * 0.5**count for k in range(count)])
    return max(int(np.searchsorted(below, 0.025, side="right")) - 1, 0)


def pass_medians(ns: Floats) -> Floats:
    """Return the median of every pass that has a sample; ``ns``: (passes, messages), NaN: none."""
    has = (~np.isnan(ns)).any(axis=1)
    return np.asarray(np.nanmedian(ns[has], axis=1) if has.any() else [], dtype=np.float64)


#: At the begin of every file; those of other versions are refused.
_MAGIC = b"p3s replay result 4\n"
_DIGEST_BYTES = hashlib.sha256().digest_size


@dataclass(frozen=True)
class Place:
    """Where a process ran: name of the node, identity of its kernel, the numbers of its cores.

    ``node``: the node's name as Slurm has it, empty outside of Slurm.
    """

    name: str
    kernel: str
    cores: tuple[int, ...]
    node: str = ""


@dataclass(frozen=True)
class ProgramResult:
    """Measurements of one program; times in ns, passes in the order they were made.

    ``pass_ns`` (passes, processes): from the start of the pass to the end of the process's last
    event. ``event``: positions in Program.events of the sampled events; ``event_ns`` (passes,
    sampled events): how long each took; ``begin_ns`` (sampled events): when it began after the
    start of the pass, median.
    ``transfer_ns`` (passes, messages of Program.pairing): completion minus the later start, NaN
    where nobody waited (replay/engine/collect.py). ``link_ns`` (passes, messages): when each
    message of a link program had arrived, after the first send began; LINK_RECV events in the
    order of Program.events. ``clock_error_ns``: how far clocks of two nodes may be
    off in this. ``work_error_ns``: what emulated computation took beyond its length, every one
    (thinned out evenly when there are very many). ``places``: where each process ran. Default:
    nothing was measured.
    """

    passes: int
    pass_ns: Floats
    event: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    event_ns: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    begin_ns: Floats = field(default_factory=lambda: np.zeros(0))
    transfer_ns: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    link_ns: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    clock_error_ns: float = 0.0
    work_error_ns: Floats = field(default_factory=lambda: np.zeros(0))
    places: tuple[Place, ...] = ()


_SCALARS = ("passes", "clock_error_ns")
_ARRAYS = tuple(
    each.name for each in fields(ProgramResult) if each.name not in (*_SCALARS, "places")
)


def array_bytes(columns: Mapping[str, np.ndarray]) -> bytes:
    """Return arrays of numbers as the bytes of a file, the same for the same arrays."""
    file = io.BytesIO()
    np.savez(file, **dict(columns))  # type: ignore[arg-type]
    return file.getvalue()


def save_result(path: Path, result: ProgramResult) -> None:
    """Write a result with its digest; completely, or not at all. Errors: P3SError."""
    columns = {name: np.asarray(getattr(result, name)) for name in (*_SCALARS, *_ARRAYS)}
    places = json.dumps([asdict(place) for place in result.places]).encode()
    data = array_bytes({**columns, "places": np.frombuffer(places, dtype=np.uint8)})
    write_bytes(path, _MAGIC + hashlib.sha256(data).digest() + data)


def read_result(path: Path) -> ProgramResult:
    """Read a result. Errors: P3SError in one line when it is missing or damaged."""
    try:
        content = file_bytes(path)
        head, data = content[: len(_MAGIC) + _DIGEST_BYTES], content[len(_MAGIC) + _DIGEST_BYTES :]
        if head != _MAGIC + hashlib.sha256(data).digest():
            raise ValueError("changed, or of another version of P3S")
        arrays = read_arrays(data, (*_SCALARS, *_ARRAYS, "places"))
        return ProgramResult(
            passes=int(arrays["passes"]),
            clock_error_ns=float(arrays["clock_error_ns"]),
            places=tuple(
                Place(**{**place, "cores": tuple(place["cores"])})
                for place in parse_json(arrays["places"].tobytes())
            ),
            **{name: arrays[name] for name in _ARRAYS},
        )
    except (OSError, TypeError, ValueError, KeyError, OverflowError) as err:
        why = " ".join(str(err).split())[:120]
        raise P3SError(f"{path}: missing or damaged ({why}); replay with --again") from err
