"""The knee of the efficiency and the count to run at."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from p3s.predict.types import Count, Recommended

#: Efficiency below which more processes are not worth it.
KNEE_EFFICIENCY = 0.5


def knee(rows: Sequence[Count], threshold: float) -> int | None:
    """Return the smallest count from which the efficiency stays below the threshold."""
    found = None
    for row in reversed(rows):
        if row.efficiency >= threshold:
            break
        found = row.n
    return found


def recommended(
    rows: Sequence[Count], threshold: float, admits: Callable[[int], bool] | None = None
) -> Recommended | None:
    """Return the largest count on the curve that is efficient enough, its efficiency and why.

    Only counts that were predicted or measured and that the program takes (``admits``). None
    with a single count, and where times rest on communication that is not representative: they
    do not tell how fast the program is.
    """
    if len(rows) < 2 or any(
        row.time_from != "measured" and not row.model_representative for row in rows
    ):
        return None
    good = [
        row for row in rows if row.efficiency >= threshold and (admits is None or admits(row.n))
    ]
    if not good:
        return None
    best, limit = good[-1], f"{100 * threshold:.0f} %"
    why = f"the largest of the counts with an efficiency of {limit} or more"
    behind = [row for row in rows if row.n > best.n]
    if not behind:
        why += "; larger ones were not predicted"
    elif (at := crossing(best, behind[0], threshold)) is not None:
        why += f"; between {best.n} and {behind[0].n} it falls to {limit} at about {at}"
    return Recommended(best.n, best.efficiency, why)


def crossing(one: Count, other: Count, threshold: float) -> int | None:
    """Return the count at which the efficiency reaches a threshold between two rows.

    Straight in the efficiency over the logarithm of the count; None where it does not.
    """
    high, low = one.efficiency, other.efficiency
    if not high >= threshold > low:
        return None
    share = (high - threshold) / (high - low)
    result: int | None = round(one.n * math.exp(share * math.log(other.n / one.n)))
    return result
