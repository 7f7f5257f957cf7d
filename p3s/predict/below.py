"""Counts below the traced ones whose computation does not go on from theirs.

The computation of all ranks together changes little with the count, or as it does between the
traced counts. A model that says something else where no run was traced has lost some of it, or
counts some twice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

#: By what factor the computation of all ranks may leave what the traced counts lead to expect.
LIMIT = 2.0
#: How many of the smallest traced counts are looked at.
_SMALLEST = 3


def below_traced(
    totals_s: Mapping[int, float], traced_s: Mapping[int, float]
) -> dict[int, tuple[float, float]]:
    """Return count -> the total there, and the nearest that the traced counts lead to expect.

    Both are mappings from the count to the computation of all ranks together, in s: of the
    prediction, and of the traced counts. What these lead to expect reaches from the total of the
    smallest one to where powers of the count through it and the next ones lead.
    """
    points = sorted((n, total) for n, total in traced_s.items() if total > 0)[:_SMALLEST]
    if len(points) < 2:
        return {}
    (first, least), *others = points
    slopes = [math.log(total / least) / math.log(n / first) for n, total in others]
    found = {}
    for n, total in totals_s.items():
        ends = [least, *(least * (n / first) ** slope for slope in slopes)]
        nearest = min(max(total, min(ends)), max(ends))
        if n < first and not nearest / LIMIT <= total <= nearest * LIMIT:
            found[n] = (total, nearest)
    return found
