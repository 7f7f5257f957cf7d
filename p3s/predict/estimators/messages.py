"""What messages cost for the dependency simulation, wherever the figures are from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from p3s.base.arrays import Floats, Ints
from p3s.base.errors import P3SError
from p3s.base.records import Traces, read_replay, replay_path
from p3s.base.text import quote_word
from p3s.machine.cluster import Cluster, cluster_of
from p3s.machine.machinefile import NAME, Machine
from p3s.predict import types
from p3s.predict.estimated import COMM, FROM_REPLAY, HIGH, LOW, SOFTWARE, TYPICAL, Communication
from p3s.predict.estimators.settings import Setting
from p3s.program.collectives.choose import USUAL_LIBRARY, Library, library_of
from p3s.program.own_costs import (
    OwnPart,
    PackCosts,
    creation_ns,
    measured_creation,
    measured_packing,
    packing_ns,
)
from p3s.program.scaled import ScaledTrace
from p3s.simulate.network import (
    Network,
    cluster_distances,
    network_from_cluster,
    network_from_machine,
)
from p3s.simulate.switch_links import ANSWERS

#: Libraries that move large messages only while their rank is inside a call.
_NO_PROGRESS = ("openmpi", "mpich")
#: Typical costs, the least and the largest.
Costs = tuple[Network, Network, Network]


@dataclass(frozen=True)
class Messages:
    """What messages cost on a machine, and what is said of them.

    ``name``: of the estimator, ``machine``: that of the figures. ``library``: whose algorithms
    collectives take. ``cores``: ranks of a node, where nobody says it. ``figures``: costs between
    two ranks, or the cluster that they are of. ``said``: what is said of these figures,
    ``of_runs``, ``ends``: notes, in this order. ``hosts``: where costs were measured. ``queues``:
    links of nodes have queues. ``why_not``: why times do not tell how fast a program is, "" if they
    do. ``own``: what making a communicator takes a rank by itself, ``packing``: what datatypes with
    gaps cost, where that was measured.
    """

    name: str
    machine: str
    library: Library
    cores: int
    figures: Costs | Cluster
    said: str = ""
    of_runs: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    queues: bool = True
    why_not: str = ""
    own: OwnPart | None = None
    packing: PackCosts | None = None

    @property
    def levels(self) -> bool:
        """Whether these costs know of switches."""
        return isinstance(self.figures, Cluster)

    def on(self, nodes: int, among: Ints | None = None) -> Costs:
        """Return costs on a number of nodes in a row; ``among``: those that are simulated, all."""
        if not isinstance(self.figures, Cluster):
            return self.figures
        typical, low, high = (
            network_from_cluster(self.figures, nodes, end, among)
            for end in ("typical", "low", "high")
        )
        return typical, low, high

    def distance(self, nodes: int, among: Ints | None = None) -> Ints | None:
        """Return distances between nodes, as :meth:`on`; None: all are equally far apart."""
        if not isinstance(self.figures, Cluster):
            return None
        return cluster_distances(self.figures, nodes, among)


# ---- measured, and published ----------------------------------------------------------------
def machine_path(traces: Traces, machine: Path | None) -> Path:
    """Return the machine file to use: the given one, else the study's own."""
    return Path(machine) if machine is not None else traces.root / NAME


def why_not(traces: Traces, machine: Path | None) -> str:
    """Return "" or why there are no costs to simulate with."""
    path = machine_path(traces, machine)
    if not path.exists():
        return f"there is no machine file ({path}); run p3s machine measure -o {quote_word(path)}"
    try:
        found = Machine.load(path)
    except P3SError as err:
        return str(err)
    if not found.network:
        why = f" ({found.network_missing})" if found.network_missing else ""
        return (
            f"{path} has no costs of messages{why}; run p3s machine measure -o {quote_word(path)}"
        )
    return ""


def networks(machine: Machine) -> tuple[Network, Network, Network]:
    """Return the costs of messages, and their low and high ends.

    The typical cost is the median of the measured ones, the low end their least; the high end is
    as far above as the low one is below. Large messages move while ranks compute only if the
    machine file says so ("background") or its MPI is none of those that need a call for it.
    """
    found = dict(machine.network or {})
    mpi = str(found.get("mpi", "")).lower().replace(" ", "")
    background = bool(found.get("background", not mpi.startswith(_NO_PROGRESS)))
    try:
        made = [
            replace(
                network_from_machine({"name": machine.name, "network": table}),
                background=background,
                fair=True,
                back=ANSWERS,
            )
            for table in _ends(found)
        ]
    except (KeyError, TypeError, ValueError) as err:
        raise P3SError(
            f"machine {machine.name}: its network is damaged ({err}); measure it again"
        ) from err
    return made[0], made[1], made[2]


def _ends(found: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    """Return a measurement with its typical, its least and its largest costs."""
    sizes = dict(found["sizes"])
    typical, high = dict(sizes), dict(sizes)
    for name, median in (
        ("one_way_ns", "one_way_median_ns"),
        ("send_ns", "send_median_ns"),
        ("receive_ns", "receive_median_ns"),
    ):
        if median in sizes:
            pairs = list(zip(sizes[name], sizes[median], strict=True))
            typical[name] = [low if m is None else m for low, m in pairs]
            high[name] = [low if m is None or low is None else 2 * m - low for low, m in pairs]
    inside = _ends(found["inside"]) if found.get("inside") else (None,) * 3
    return tuple(
        {**found, "sizes": table, "inside": own}
        for table, own in zip((typical, sizes, high), inside, strict=True)
    )


def library_for(traces: Traces, machine: Machine | None, setting: Setting) -> Library:
    """Return the library whose collectives are taken: the machine's, else the runs'."""
    network: Mapping[str, Any] = (machine.network if machine is not None else None) or {}
    told = [str(network.get("mpi", "")), *(str(run.info.get("mpi", "")) for run in traces.runs)]
    for text in told:
        family, _, version = text.strip().lower().partition(" ")
        with suppress(P3SError):
            return library_of(family, version, setting.collectives if text else "")
    return library_of(*USUAL_LIBRARY, setting.collectives)


def measured_messages(traces: Traces, machine: Path | None, setting: Setting) -> Messages:
    """Return what messages cost as it was measured between two ranks."""
    found = Machine.load(machine_path(traces, machine))
    costs = networks(found)
    hosts = tuple(map(str, (found.network or {}).get("hosts", ())))
    one_host = len(set(hosts)) == 1
    why = "the costs of messages were measured between two ranks of one host" if one_host else ""
    return Messages(
        "machine",
        found.name,
        library_for(traces, found, setting),
        int(found.facts.cores or 1),
        costs,
        ends=tuple(
            f"the machine was disturbed when it was measured: {text}" for text in found.disturbed
        ),
        hosts=hosts,
        queues=math.isfinite(costs[0].rate),
        why_not=why,
        own=measured_creation(found.network or {}),
        packing=measured_packing(found.network or {}),
    )


def published_messages(traces: Traces, setting: Setting) -> Messages:
    """Return what messages cost on the typical cluster that a setting names."""
    cluster = cluster_of(setting.network)
    return Messages(
        TYPICAL,
        cluster.name,
        library_for(traces, None, setting),
        cluster.cores_per_node,
        cluster,
        said=f", {cluster.cores_per_node} cores per node, from published figures",
        of_runs=(
            "computation is that of the traced machine; its run times are not compared, because "
            "its network is another one",
        ),
    )


def messages_of(traces: Traces, estimator: str, machine: Path | None, setting: Setting) -> Messages:
    """Return what messages cost where they are simulated: as measured between two ranks.

    Published figures stand for it where nothing was measured, or the estimator takes them.
    """
    if estimator == TYPICAL or why_not(traces, machine):
        return published_messages(traces, setting)
    return measured_messages(traces, machine, setting)


# ---- as prediction.json names it ------------------------------------------------------------
def network_of(
    traces: Traces, name: str, counts: Sequence[int], machine: Path | None, setting: Setting | None
) -> types.Network | None:
    """Return the network behind an estimator.

    Its source: typical (published figures), file (one like it that the user wrote), measured
    (between two hosts, or by a replay), or one machine. None where nothing is known.
    """
    if name == TYPICAL:
        return types.Network(**cluster_of((setting or Setting()).network).about())
    if name not in FROM_REPLAY:
        found = Machine.load(machine_path(traces, machine))
        hosts = [str(host) for host in (found.network or {}).get("hosts", ())]
        return _of_hosts(found.name, hosts)
    replayed = [n for n in counts if n > 1 and replay_path(traces.root, n).exists()]
    if not replayed:
        return None
    nodes = [str(node) for node in read_replay(traces.root, max(replayed)).get("nodes", ()) if node]
    return _of_hosts("replay", nodes)


def _of_hosts(name: str, hosts: Sequence[str]) -> types.Network | None:
    """Return the network between hosts: none where they are one machine."""
    different = list(dict.fromkeys(hosts))
    if not different:
        return None
    source = "measured" if len(different) > 1 else "one machine"
    return types.Network(name, ", ".join(different), source)


_NS_PER_S = 1e9


def with_packing(
    found: Communication, trace: ScaledTrace, costs: PackCosts, ends: bool = True
) -> Communication:
    """Return communication with packing as software time; without ``ends`` of no interval.

    That others wait for a rank that packs is not in it.
    """
    if not trace.packed:
        return found
    parts = packing_ns(trace, found.phases, costs)
    what = "the cost of packing non-contiguous datatypes"
    return _with_software(found, parts, what, costs.measured, ends)


def with_creation(
    found: Communication, trace: ScaledTrace, costs: OwnPart, ends: bool = True
) -> Communication:
    """Return communication with what ranks do by themselves when they make communicators."""
    parts = creation_ns(trace, found.phases, costs)
    what = "what making a communicator costs a rank itself"
    return _with_software(found, parts, what, costs.measured, ends)


def _with_software(
    found: Communication, parts_ns: Floats, what: str, measured: bool, ends: bool
) -> Communication:
    """Return communication with more software time; its low end, typical value and high end."""
    low, typical, high = parts_ns / _NS_PER_S
    if not high.any():
        return found
    seconds = found.seconds.copy()
    seconds[[COMM, SOFTWARE]] += typical
    seconds[LOW] += low if ends else typical
    seconds[HIGH] += high if ends else typical
    note = f"{what} {'was measured' if measured else 'is a typical figure'}"
    return replace(found, seconds=seconds, notes=(*found.notes, note))
