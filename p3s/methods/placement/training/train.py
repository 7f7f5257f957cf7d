"""The communication model of a machine: ways to tell the times of its phases, and the best one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from p3s.machine.topology.fabric import Fabric
from p3s.machine.topology.units import Floats, Ints
from p3s.methods.placement.baselines import best_variant, seconds_of
from p3s.methods.placement.communication import SIMULATED
from p3s.methods.placement.features import CLASS_A
from p3s.methods.placement.learned import Learned, Settings, cross_validated, learn
from p3s.methods.placement.lines import Product, fit_nonnegative
from p3s.methods.placement.ranking import Agreement, agreement
from p3s.methods.placement.simulated import simulated_seconds
from p3s.methods.placement.training.costs import hockney_of, network_of
from p3s.methods.placement.training.dataset import Dataset
from p3s.simulate.network import Network

#: Codes of the ways, in the order of the card.
ALPHA_BETA, PENALISED, MAX_BYTES, SIMULATION = "alpha-beta", "penalised", "max-bytes", "simulation"
A, B, C, CORRECTED = "A", "B", "C", "corrected"
LEARNED = (A, B, C, CORRECTED)
#: Class B has these beside those of class A.
_CLASS_B = ("ND", "NM", "iND", "iNM")
#: Features that a line goes first of in class C, beside what leaves the levels: what grows with the
#: work of the busiest rank, node and link. Classes A and B do not know which of them is the limit:
#: a line of theirs would carry that of random pairs over to neighbours.
_FIRST_B = ("PD(max)", "PM(max)", "ND(max)", "NM(max)", "iND(max)", "iNM(max)")
_FIRST_C = ("max bytes", "max FIFO", "max dilation")
#: What applications go beyond the random pairs in.
_BEYOND = ("n", "TD", "PD(max)", "PM(max)")
#: Doublings of the length of messages that are left out together.
_OCTAVES = 3
TREES = Settings(trees=100, rate=0.1, depth=5, leaf=3, share=(0.5, 0.3))


@dataclass(frozen=True)
class Way:
    """Features of a learned way, and products of them of which a line goes first."""

    names: tuple[str, ...]
    first: tuple[Product, ...]


def ways(names: Sequence[str]) -> dict[str, Way]:
    """Return what each learned way uses of the features that there are."""
    b = [x for x in names if x in ("TD", "TM") or x.partition("(")[0] in _CLASS_B]
    a = [*CLASS_A]
    c = [x for x in names if x not in (*a, *b, SIMULATED)]
    out = [x for x in c if x.endswith(("D(max)", "M(max)"))]
    return {
        A: Way(tuple(a), ()),
        B: Way((*a, *b), ()),
        C: Way((*a, *b, *c), _line((*_FIRST_B, *(x for x in _FIRST_C if x in c), *out))),
        CORRECTED: Way((*a, *b, *c, SIMULATED), _line((SIMULATED,))),
    }


def _line(names: Sequence[str]) -> tuple[Product, ...]:
    return ((), *((name,) for name in names))


def train(
    data: Dataset,
    fabric: Fabric,
    machine: str,
    network_name: str,
    *,
    way: str = "",
    settings: Settings = TREES,
    facts: Mapping[str, str] = {},
) -> Learned:
    """Return the communication model of measured phases, the errors of all ways on its card.

    ``way``: code of a learned one; by default the better one of class C and of the simulation
    corrected by it. Errors: P3SError with too few phases.
    """
    network = network_of(data.probes, machine)
    rows = with_simulation(data, fabric, network)
    known = ways(list(rows[0]))
    table = _plain(data, fabric, network, rows)
    for code, each in known.items():
        table[code] = cross_validated(
            rows, data.seconds, data.execution, each.names, settings=settings, first=each.first
        )
    chosen = way or (CORRECTED if table[CORRECTED].mmre < table[C].mmre else C)
    model = learn(
        rows,
        data.seconds,
        data.execution,
        known[chosen].names,
        machine=machine,
        network=network_name,
        **options(rows, known[chosen], settings),
    )
    card = replace(
        model.card,
        features=chosen,
        compared={code: found for code, found in table.items() if np.isfinite(found.score)},
        facts=dict(facts),
    )
    return replace(model, card=card, network=network if chosen == CORRECTED else None)


def options(
    rows: Sequence[Mapping[str, float]], way: Way, settings: Settings = TREES
) -> dict[str, Any]:
    """Return the options of ``learn`` for random pairs.

    Applications differ from them in their allocation, in counts and lengths of messages, and go
    beyond them in nodes and data.
    """
    return {
        "settings": settings,
        "first": way.first,
        "apart": [_whole(rows, "PM(max)", 0), _whole(rows, "l(max)", _OCTAVES)],
        "beyond": _BEYOND,
    }


def _whole(rows: Sequence[Mapping[str, float]], name: str, octaves: int) -> Ints:
    """Return groups of rows by a feature: each value, or so many doublings together."""
    values = np.array([row[name] for row in rows])
    return np.asarray(np.log2(values + 1) // octaves if octaves else values, dtype=np.int64)


def with_simulation(data: Dataset, fabric: Fabric, network: Network) -> list[dict[str, float]]:
    """Return the features of all phases with what the simulation says."""
    return [
        {**row, SIMULATED: simulated_seconds(*phase, fabric, network)}
        for row, phase in zip(data.rows, data.phases, strict=True)
    ]


def _plain(
    data: Dataset, fabric: Fabric, network: Network, rows: Sequence[Mapping[str, float]]
) -> dict[str, Agreement]:
    """Return how good the ways without learning are."""
    t = data.seconds
    hockney = hockney_of(data.probes, network)
    simple = replace(hockney, gamma=0.0)
    best = best_variant(hockney, data.phases, t, fabric)
    told: dict[str, Callable[[], Floats]] = {
        ALPHA_BETA: lambda: np.array([seconds_of(simple, *p, fabric) for p in data.phases]),
        PENALISED: lambda: np.array([seconds_of(best, *p, fabric) for p in data.phases]),
        MAX_BYTES: lambda: _of_max_bytes(rows, t),
        SIMULATION: lambda: np.array([row[SIMULATED] for row in rows]),
    }
    return {code: agreement(t, say()) for code, say in told.items()}


def _of_max_bytes(rows: Sequence[Mapping[str, float]], t: Floats) -> Floats:
    columns = {"max bytes": np.array([row["max bytes"] for row in rows])}
    return fit_nonnegative(_line(("max bytes",)), columns, t).seconds(columns)
