"""What is said of placements, as placement/npNNNNNN.json has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from p3s.base.arrays import Bools, Floats, Ints
from p3s.base.artefacts import write_json
from p3s.base.serialise import FileFormat
from p3s.methods.placement.ranking import Values
from p3s.predict.types import Reason


@dataclass(frozen=True, kw_only=True)
class PhaseUnder:
    """Seconds of a phase under a placement, those of the rank that needs longest in all."""

    phase: int
    name: str
    time_s: float
    comm_s: float


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """A placement, and what is predicted of it.

    ``name``: how it was made. ``cost_s``: communication by the cost that sorted all candidates.
    ``time_s``: run time, with its 90 % interval; None: not simulated, others were cheaper.
    ``regret``: by what share of the least time it is expected to miss it; ``chance``: of being the
    fastest one of those simulated. ``node_of``: node of each rank, empty where it has no time.
    ``busiest``: bytes on the busiest link. ``outside``: features that a learned cost has not seen.
    """

    name: str
    cost_s: float
    time_s: float | None
    low_s: float | None
    high_s: float | None
    regret: float | None
    chance: float | None
    busiest: float
    node_of: tuple[int, ...]
    phases: tuple[PhaseUnder, ...]
    outside: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Gain:
    """By what share of the time under ``over`` the first placement is faster, and its interval."""

    over: str
    middle: float
    low: float | None
    high: float | None


@dataclass(frozen=True, kw_only=True)
class Placements:
    """Placements of ``n`` ranks on nodes, the fastest first; those without a time after them.

    ``hosts``: names of the nodes, "" where nobody has said them; ``slots``: ranks each has room
    for. ``network``: its form; ``topology``: what it was read from, as it was given. ``estimator``:
    whose costs of messages. ``cost``: what sorted the candidates. ``matters``: whether those with
    a time differ by 5 % or more. ``left_out``: share of the calls that communicate whose messages
    are not known.
    """

    n: int
    hosts: tuple[str, ...]
    slots: tuple[int, ...]
    topology: str
    network: str
    estimator: str
    cost: str
    matters: bool
    ranked: tuple[Ranked, ...]
    gains: tuple[Gain, ...]
    left_out: float
    reasons: tuple[Reason, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def timed(self) -> tuple[Ranked, ...]:
        """Those that have a time."""
        return tuple(one for one in self.ranked if one.time_s is not None)

    def named(self, name: str) -> Ranked | None:
        """Return the placement of a name, None where there is none."""
        return next((one for one in self.ranked if one.name == name), None)


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """A count on nodes, and the time of the best placement there that was tried.

    ``cores_front``, ``nodes_front``: layer by (cores, time) and (nodes, time), 0: nothing costs no
    more and is faster.
    """

    n: int
    nodes: int
    ppn: int
    placement: str
    time_s: float
    low_s: float
    high_s: float
    cores_front: int
    nodes_front: int


@dataclass(frozen=True, kw_only=True)
class Advice:
    """Configurations, the fastest first; ``breaks_at``: the count above which none is faster."""

    configurations: tuple[Configuration, ...]
    breaks_at: int | None
    placements: tuple[Placements, ...]


PLACEMENTS = FileFormat("p3s.placement", 2, Placements, again="run p3s place again")


def path_of(root: Path, n: int) -> Path:
    """Return where placements of n processes of a study are: placement/np000064.json."""
    return root / "placement" / f"np{n:06d}.json"


def save(root: Path, placements_found: Placements) -> None:
    """Write placements into a study's directory."""
    path = path_of(root, placements_found.n)
    path.parent.mkdir(exist_ok=True)
    write_json(path, PLACEMENTS.data(placements_found))


#: Placements whose slowest is less than this times the fastest are all as good.
MATTERS = 1.05


def layers(cost: Values, seconds: Values) -> Ints:
    """Return the layer of each configuration: 0 is the front, 1 the front without it, and so on."""
    c, t = np.asarray(cost, dtype=np.float64), np.asarray(seconds, dtype=np.float64)
    layer_of = np.full(len(c), -1, dtype=np.int64)
    number = 0
    while (unassigned := np.flatnonzero(layer_of < 0)).size:
        layer_of[unassigned[~_is_dominated(c[unassigned], t[unassigned])]] = number
        number += 1
    return layer_of


def matters(seconds: Values, least: float = MATTERS) -> bool:
    """Return whether placements differ enough in time for the choice to matter."""
    t = np.asarray(seconds, dtype=np.float64)
    return len(t) > 1 and bool(t.max() >= least * t.min())


def _is_dominated(cost: Floats, seconds: Floats) -> Bools:
    c, t = cost[:, None], seconds[:, None]
    better = (cost <= c) & (seconds <= t) & ((cost < c) | (seconds < t))
    return np.asarray(better.any(axis=1), dtype=bool)


def advice_of(rankings: Sequence[Placements]) -> Advice:
    """Return configurations with their layers, the fastest first.

    Cores are the ranks that run. ``breaks_at``: the count of the fastest one, None where that is
    the largest count of all.
    """
    best = [each.timed[0] for each in rankings]
    times = [one.time_s or 0.0 for one in best]
    nodes = [len(each.hosts) for each in rankings]
    cores = layers([each.n for each in rankings], times)
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
        for k, (each, one) in enumerate(zip(rankings, best, strict=True))
    ]
    rows.sort(key=lambda row: (row.time_s, row.n, row.nodes))
    least = rows[0].n
    largest = max(row.n for row in rows)
    return Advice(
        configurations=tuple(rows),
        breaks_at=least if least < largest else None,
        placements=tuple(rankings),
    )
