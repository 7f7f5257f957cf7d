"""Whether the times of a capture run forward."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Int64s = NDArray[np.int64]

#: Calls are numbered as they return; up to this the clock and its readers may disagree.
_SLACK_NS = 1_000_000


def backwards(
    start_ns: Int64s, elapsed_ns: Int64s, thread: NDArray[np.integer] | None = None
) -> str:
    """Say where on a thread a call returned before the one recorded before it; empty if nowhere.

    The times of no machine do this: the clock of a capture only runs forward.
    """
    import numpy as np

    if not len(start_ns):
        return ""
    where = np.arange(len(start_ns))
    ends = start_ns + elapsed_ns
    if thread is not None and len(thread):
        where = np.argsort(thread, kind="stable")
        same = np.diff(thread[where]) == 0
    else:
        same = np.ones(len(ends) - 1, dtype=bool)
    # Halves: differences of times near the ends of their range do not fit into 64 bits.
    steps = np.diff(ends[where] // 2)
    at = np.flatnonzero(same & (steps < -_SLACK_NS // 2))
    if not len(at):
        return ""
    seconds = -2e-9 * float(steps[at[0]])
    times = f" ({len(at)} times)" if len(at) > 1 else ""
    return f"its time goes backwards by {seconds:.3g} s at event {where[at[0] + 1]}{times}"
