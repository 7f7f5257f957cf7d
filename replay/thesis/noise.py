"""How many messages of the full run share the network with those of the loaded ranks (Eq. 7.1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from replay.scaled import RECV, SEND, Ints, ScaledTrace
from replay.thesis.match import Matches

#: Sweeps of the logical clock over all ranks; a longer chain of dependencies is cut off here,
#: which only makes the number of messages in transit less exact.
MAX_SWEEPS = 200
#: Ticks in one program; a phase with more is thinned out evenly.
MAX_TICKS = 32


@dataclass(frozen=True)
class Transit:
    """Messages between nodes in one phase: ranges of their ends and ticks on the way."""

    source: Ints
    target: Ints
    sent: Ints
    taken: Ints
    bytes: Ints
    ticks: int


def logical_clock(trace: ScaledTrace, matches: Matches) -> Ints:
    """Return the logical time of every row, in ticks from the start of its phase.

    An event comes at least one tick after the event before it on its rank, and a receive at
    least one tick after its send (Lamport; thesis A.4.2 counts receives a tick earlier).
    """
    rows = trace.rows
    if rows == 0:
        return np.zeros(0, dtype=np.int64)
    new = np.ones(rows, dtype=bool)
    new[1:] = (trace.rank[1:] != trace.rank[:-1]) | (trace.phase[1:] != trace.phase[:-1])
    begin = np.maximum.accumulate(np.where(new, np.arange(rows), 0))
    place = np.arange(rows) - begin
    group = np.cumsum(new) - 1
    receives = np.flatnonzero(trace.is_kind(RECV) & (matches.partner >= 0))
    # slack = time - place never falls along a rank, so a running maximum keeps the order.
    # Groups are told apart by an offset that no slack reaches.
    slack = np.zeros(rows, dtype=np.int64)
    step = np.int64(4 * rows + 4)
    for _ in range(MAX_SWEEPS):
        time = slack + place
        wanted = slack.copy()
        at_least = time[matches.partner[receives]] + 1 - place[receives]
        wanted[receives] = np.minimum(np.maximum(wanted[receives], at_least), step - 1)
        wanted = np.maximum.accumulate(wanted + group * step) - group * step
        if np.array_equal(wanted, slack):
            break
        slack = wanted
    return slack + place


def transits(trace: ScaledTrace, matches: Matches, cores_per_node: int) -> dict[int, Transit]:
    """Return the messages between nodes of each phase."""
    time = logical_clock(trace, matches)
    sends = np.flatnonzero(trace.is_kind(SEND) & (matches.partner >= 0) & matches.executed())
    source = trace.rank[sends] // cores_per_node
    target = trace.peer[sends] // cores_per_node
    away = source != target
    sends, source, target = sends[away], source[away], target[away]
    found = {}
    for phase in np.unique(trace.phase[sends]).tolist():
        here = trace.phase[sends] == phase
        sent = time[sends[here]]
        taken = np.maximum(time[matches.partner[sends[here]]], sent + 1)
        ticks = int(time[trace.phase == phase].max()) + 2
        found[int(phase)] = Transit(source[here], target[here], sent, taken,
                                    trace.bytes[sends[here]], ticks)
    return found


def noise_of(transit: Transit, loaded: tuple[int, int], limit: int) -> tuple[list[int], int, float]:
    """Return the messages of the noise pair per tick, their size, and the wanted mean number.

    noise = messages in transit in the full run - those that the loaded ranks send or receive
    themselves. ``limit`` bounds the number at one tick: two processes cannot stand in for
    thousands.
    """
    own = np.isin(transit.source, loaded) | np.isin(transit.target, loaded)
    if own.all():
        return [], 0, 0.0
    change = np.zeros(transit.ticks + 1, dtype=np.int64)
    np.add.at(change, transit.sent[~own], 1)
    np.add.at(change, np.minimum(transit.taken[~own], transit.ticks), -1)
    series = np.cumsum(change[:-1])
    wanted = float(series.mean())
    if len(series) > MAX_TICKS:
        series = series[np.linspace(0, len(series) - 1, MAX_TICKS).astype(np.int64)]
    nbytes = int(transit.bytes[~own].mean())
    return np.minimum(series, limit).tolist(), nbytes, wanted
