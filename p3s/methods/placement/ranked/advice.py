"""Which counts and ranks per node are worth their cores and nodes."""

from __future__ import annotations

from collections.abc import Sequence

from p3s.methods.placement.advice import layers
from p3s.methods.placement.ranked.types import Advice, Configuration, Placements


def advice_of(found: Sequence[Placements]) -> Advice:
    """Return configurations with their layers, the fastest first.

    Cores are the ranks that run. ``breaks_at``: the count of the fastest one, None where that is
    the largest count of all.
    """
    best = [each.timed[0] for each in found]
    times = [one.time_s or 0.0 for one in best]
    nodes = [len(each.hosts) for each in found]
    cores = layers([each.n for each in found], times)
    shares = layers(nodes, times)
    rows = [
        Configuration(
            n=each.n,
            nodes=nodes[k],
            ppn=max(each.slots),
            placement=one.name,
            time_s=times[k],
            low_s=times[k] if one.low_s is None else one.low_s,
            high_s=times[k] if one.high_s is None else one.high_s,
            cores_front=int(cores[k]),
            nodes_front=int(shares[k]),
        )
        for k, (each, one) in enumerate(zip(found, best, strict=True))
    ]
    rows.sort(key=lambda row: (row.time_s, row.n, row.nodes))
    least = rows[0].n
    largest = max(row.n for row in rows)
    return Advice(
        configurations=tuple(rows),
        breaks_at=least if least < largest else None,
        placements=tuple(found),
    )
