"""From a machine to its communication model: checks, measurements, ways to tell times, the best."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from p3s.base.arrays import Ints
from p3s.base.errors import P3SError, UsageError
from p3s.machine.topology.fabric import Fabric
from p3s.machine.topology.read import read_fabric
from p3s.machine.topology.trees import one_switch
from p3s.methods.placement.costs import network_id
from p3s.methods.placement.features import CLASS_A
from p3s.methods.placement.learned import LearnedModel, Settings, Way, cross_validated, learn
from p3s.methods.placement.lines import Product, fit_nonnegative
from p3s.methods.placement.ranking import Agreement, agreement
from p3s.methods.placement.simulated import SIMULATED, simulated_features
from p3s.methods.placement.training import platform
from p3s.methods.placement.training.campaign import Settings as CampaignSettings
from p3s.methods.placement.training.campaign import shapes
from p3s.methods.placement.training.costs import hockney_of, network_of, seconds_of
from p3s.methods.placement.training.dataset import Dataset, DatasetHeader, Say, measure_dataset
from p3s.methods.placement.training.jobs import Machine, SimulatedMachine, real_machine
from p3s.methods.placement.trees import require_sklearn
from p3s.simulate.network import Network

#: Codes of the ways, in the order of the card.
ALPHA_BETA, MAX_BYTES, SIMULATION = "alpha-beta", "max-bytes", "simulation"
A, B, C, CORRECTED = "A", "B", "C", "corrected"
LEARNED = (A, B, C, CORRECTED)
#: Lines of the source: of one feature, and of several in three ranges. Sets of features of SC13
#: (table 3), whose counters of switches are simulated.
SV, MV = "SV", "MV"
HYBRID = {
    "H1": ("avg bytes", "max bytes", "max FIFO"),
    "H2": ("avg bytes", "max bytes", "sum dilation AO", "max FIFO"),
    "H3": ("avg bytes", "max bytes", "avg buffer", "max FIFO"),
    "H4": ("avg bytes", "max bytes", "avg buffer TO"),
    "H5": ("avg bytes TO", "avg buffer TO", "avg delay AO", "sum hops AO", "max FIFO"),
    "H6": (
        "avg bytes TO",
        "avg buffer AO",
        "avg delay TO",
        "avg delay AO",
        "sum hops AO",
        "max FIFO",
    ),
}
NAMES = (*LEARNED, SV, MV, *HYBRID)
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


#: Trees of ways that are lines: one leaf, the middle of what the line misses.
_LEAF = Settings(trees=1, rate=1.0, depth=1, leaf=1 << 30)


def ways(names: Sequence[str], settings: Settings = TREES) -> dict[str, Way]:
    """Return what each learned way uses of the features that are not simulated, and of these."""
    b = [x for x in names if x in ("TD", "TM") or x.partition("(")[0] in _CLASS_B]
    a = [*CLASS_A]
    c = [x for x in names if x not in (*a, *b)]
    out = [x for x in c if x.endswith(("D(max)", "M(max)"))]
    first = (*_FIRST_B, *(x for x in _FIRST_C if x in c), *out)
    trees_by_way = {
        **{code: Way(each) for code, each in HYBRID.items()},
        A: Way(tuple(a)),
        B: Way((*a, *b)),
        C: Way((*a, *b, *c), _line(first)),
        CORRECTED: Way((*a, *b, *c, SIMULATED), _line((SIMULATED,))),
    }
    lines = {SV: Way((*a, *b, *c), (), "single", _LEAF), MV: _several((*a, *b, *c))}
    return lines | {code: replace(each, settings=settings) for code, each in trees_by_way.items()}


def _several(names: tuple[str, ...]) -> Way:
    """Return the line of several features in three ranges: the products of tables 4.2 to 4.4."""
    shape = [x for x in names if re.fullmatch(r"\w+/\w+\(avg\)", x)]
    named = {
        "l": "l(max)", "D": "ND(avg)", "M": "NM(avg)", "T": "TD", "p": "ppn",
        "s": re.split(r"[/(]", shape[0])[1] if shape else "",
        "r": re.split(r"[/(]", shape[-1])[1] if shape else "", "q": shape[-1] if shape else "",
    }  # fmt: skip
    short, few = ("l(max)<=4096", "l(max)>4096"), ("ND(avg)<=131072", "ND(avg)>131072")
    ranges = {
        (few[0], short[0]): " pD lD rD pM lM rM plD prD lrD prM plrD".split(" "),
        (few[0], short[1]): " l q lq D T lD qD lT qT lqD lqT".split(" "),
        (few[1],): " l pl sl pls D pD lD sD plD psD lsD plsD".split(" "),
    }
    products = [
        (*where, *(named[letter] for letter in term))
        for where, terms in ranges.items()
        for term in terms
    ]
    return Way(names, tuple(each for each in products if "" not in each), "robust", _LEAF)


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
) -> LearnedModel:
    """Return the communication model of measured phases, the errors of all ways on its card.

    ``way``: code of a learned one; by default the better one of class C and of the simulation
    corrected by it. Errors: P3SError with too few phases.
    """
    network = network_of(data.probes, machine)
    rows = with_simulation(data, fabric, network)
    ways_known = ways(list(data.rows[0]), settings)
    table = _plain(data, fabric, network, rows)
    for code in dict.fromkeys((*LEARNED, *filter(None, [way]))):
        table[code] = cross_validated(rows, data.seconds, data.execution, ways_known[code])
    chosen = way or (CORRECTED if table[CORRECTED].mmre < table[C].mmre else C)
    model = learn(
        rows,
        data.seconds,
        data.execution,
        ways_known[chosen],
        machine=machine,
        network=network_name,
        **differences(rows),
    )
    simulated = not set(model.names) <= set(data.rows[0])
    counters = {"switch counters": "simulated"} if simulated and chosen in HYBRID else {}
    card = replace(
        model.card,
        features=chosen,
        compared={code: scores for code, scores in table.items() if np.isfinite(scores.score)},
        facts={**facts, **counters},
    )
    return replace(model, card=card, network=network if simulated else None)


def differences(rows: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Return the options of ``learn`` for what applications differ from random pairs in.

    That is their allocation, counts and lengths of messages; in nodes and data they go beyond.
    """
    apart = [_group_rows(rows, "PM(max)", 0), _group_rows(rows, "l(max)", _OCTAVES)]
    return {"apart": apart, "beyond": _BEYOND}


def _group_rows(rows: Sequence[Mapping[str, float]], name: str, octaves: int) -> Ints:
    """Return groups of rows by a feature: each value, or so many doublings together."""
    values = np.array([row[name] for row in rows])
    return np.asarray(np.log2(values + 1) // octaves if octaves else values, dtype=np.int64)


def with_simulation(data: Dataset, fabric: Fabric, network: Network) -> list[dict[str, float]]:
    """Return the features of all phases with what the simulation says."""
    return [
        {**row, **simulated_features(*phase, fabric, network)}
        for row, phase in zip(data.rows, data.phases, strict=True)
    ]


def _plain(
    data: Dataset, fabric: Fabric, network: Network, rows: Sequence[Mapping[str, float]]
) -> dict[str, Agreement]:
    """Return how good the ways without learning are."""
    simple = replace(hockney_of(data.probes, network), gamma=0.0)
    busiest = {"max bytes": np.array([row["max bytes"] for row in rows])}
    fitted = fit_nonnegative(_line(("max bytes",)), busiest, data.seconds)
    estimates = {
        ALPHA_BETA: np.array([seconds_of(simple, *p, fabric) for p in data.phases]),
        MAX_BYTES: fitted.seconds(busiest),
        SIMULATION: np.array([row[SIMULATED] for row in rows]),
    }
    return {code: agreement(data.seconds, seconds) for code, seconds in estimates.items()}


@dataclass(frozen=True, eq=False)
class Ready:
    """A machine that can be measured, and its network.

    ``named``: whether somebody said what it is called. ``topology``: its network as described.
    """

    told: DatasetHeader
    fabric: Fabric
    machine: Machine
    facts: Mapping[str, str]
    named: bool = True
    topology: str = ""


def prepare_machine(
    simgrid: Path | None,
    hosts: tuple[str, ...],
    launcher: tuple[str, ...],
    topology: str,
    name: str,
    settings: CampaignSettings,
) -> Ready:
    """Return a machine, after everything about it has been checked; nothing is measured yet.

    ``simgrid``: platform that SimGrid simulates, else ``hosts`` are started with ``launcher`` (this
    machine's by default). ``topology``: its network, "" as far as the platform says; ``name``: what
    it is called, "": nobody has said it. Errors: UsageError, P3SError: one line.
    """
    require_sklearn("learning a machine")
    machine: Machine
    if simgrid is None:
        machine = real_machine(launcher)
        measured = known_as = f"{machine.mpi.family} {machine.mpi.version}"
    else:
        machine, hosts_known = SimulatedMachine(simgrid), platform.hosts_of(simgrid)
        if missing := [host for host in hosts if host not in hosts_known]:
            raise P3SError(f"{simgrid}: has no host {missing[0]}; correct --hosts")
        measured, known_as = f"SimGrid, {simgrid.name}", simgrid.stem
        hosts, topology = hosts or hosts_known, topology or platform.network_of(simgrid)
    twice = next((host for k, host in enumerate(hosts) if host in hosts[:k]), None)
    if twice is not None:
        raise UsageError(f"--hosts: {twice} is named twice; --ppn says how many ranks it has")
    fabric = read_fabric(topology, len(hosts)) if topology else one_switch(len(hosts))
    nodes = fabric.numbers(hosts if fabric.about.hosts else [""] * len(hosts))
    if len(set(nodes.tolist())) < len(nodes):
        raise P3SError(f"{fabric.about.source}: two of the hosts are one of its nodes")
    shapes(len(hosts), settings)
    order = np.argsort(nodes)
    header = DatasetHeader(
        name or known_as,
        network_id(fabric),
        tuple(nodes[order].tolist()),
        tuple(hosts[k] for k in order.tolist()),
        settings,
    )
    return Ready(header, fabric, machine, {"measured with": measured}, bool(name), topology)


def learn_machine(
    ready: Ready, directory: Path, way: str = "", say: Say = lambda _: None
) -> LearnedModel:
    """Return the model of a machine; its phases are measured into a directory, as far as they are
    not there yet.

    Errors: P3SError, in one line.
    """
    data = measure_dataset(directory, ready.told, ready.fabric, ready.machine, say)
    say("training")
    header = ready.told
    facts = {**ready.facts}
    if header.settings.patterns:
        facts["patterns beside random pairs"] = ", ".join(header.settings.patterns)
    model = train(data, ready.fabric, header.machine, header.network, way=way, facts=facts)
    return replace(model, card=replace(model.card, named=ready.named, topology=ready.topology))
