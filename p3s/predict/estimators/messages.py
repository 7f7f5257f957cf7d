"""What messages cost for the dependency simulation, wherever the figures are from."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from p3s.base.arrays import Floats, Ints
from p3s.base.errors import P3SError
from p3s.base.study import Study
from p3s.base.text import quoted
from p3s.machine.cluster import cluster_of
from p3s.machine.machinefile import NAME, Machine
from p3s.predict import types
from p3s.predict.estimated import FROM_REPLAY, TYPICAL, Communication
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


def _alike(_nodes: int, _among: Ints | None = None) -> Ints | None:
    """Say nothing of distances: all nodes are equally far apart."""
    return None


class On(Protocol):
    """Costs on a number of nodes in a row; ``among``: those of them that are simulated, all."""

    def __call__(self, nodes: int, among: Ints | None = None, /) -> Costs: ...


class Distance(Protocol):
    """Distances between nodes in a row, as :class:`On`."""

    def __call__(self, nodes: int, among: Ints | None = None, /) -> Ints | None: ...


@dataclass(frozen=True)
class Messages:
    """What messages cost on a machine, and what is said of them.

    ``name``: of the estimator, ``machine``: that of the figures. ``library``: whose algorithms
    collectives take. ``cores``: ranks of a node, where nobody says it. ``on``: costs for a number
    of nodes; ``distance``: between nodes, where no topology is given. ``levels``: whether these
    costs know of switches. ``said``, ``of_runs``, ``ends``: notes, in this order. ``hosts``: where
    costs were measured. ``queues``: links of nodes have queues. ``why_not``: why times do not tell
    how fast a program is, "" if they do. ``own``: what making a communicator takes a rank by
    itself, ``packing``: what datatypes with gaps cost, where that was measured.
    """

    name: str
    machine: str
    library: Library
    cores: int
    on: On
    said: Callable[[Network], list[str]]
    of_runs: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    distance: Distance = _alike
    levels: bool = False
    hosts: tuple[str, ...] = ()
    queues: bool = True
    why_not: str = ""
    own: OwnPart | None = None
    packing: PackCosts | None = None


# ---- measured, and published ----------------------------------------------------------------
def machine_path(study: Study, machine: Path | None) -> Path:
    """Return the machine file to use: the given one, else the study's own."""
    return Path(machine) if machine is not None else study.root / NAME


def why_not(study: Study, machine: Path | None) -> str:
    """Return "" or why there are no costs to simulate with."""
    path = machine_path(study, machine)
    if not path.exists():
        return f"there is no machine file ({path}); run p3s machine measure -o {quoted(path)}"
    try:
        found = load_machine(path)
    except P3SError as err:
        return str(err)
    if not found.network:
        why = f" ({found.network_missing})" if found.network_missing else ""
        return f"{path} has no costs of messages{why}; run p3s machine measure -o {quoted(path)}"
    return ""


def load_machine(path: Path) -> Machine:
    """Return a machine file's content, imported where it is needed; P3SError as Machine.load."""
    return Machine.load(path)


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


def library_for(study: Study, machine: Machine | None, setting: Setting) -> Library:
    """Return the library whose collectives are taken: the told one, the machine's, the runs'."""
    network: Mapping[str, Any] = (machine.network if machine is not None else None) or {}
    told = [
        setting.library,
        str(network.get("mpi", "")),
        *(str(run.info.get("mpi", "")) for run in study.runs()),
    ]
    for text in told:
        family, _, version = text.strip().lower().partition(" ")
        if text == setting.library and text:
            return library_of(family, version, setting.collectives)
        try:
            return library_of(family, version, setting.collectives if text else "")
        except P3SError:
            continue
    return library_of(*USUAL_LIBRARY, setting.collectives)


def measured_messages(study: Study, machine: Path | None, setting: Setting) -> Messages:
    """Return what messages cost as it was measured between two ranks."""
    found = load_machine(machine_path(study, machine))
    costs = networks(found)
    hosts = tuple(map(str, (found.network or {}).get("hosts", ())))
    one_host = len(set(hosts)) == 1
    why = "the costs of messages were measured between two ranks of one host" if one_host else ""
    return Messages(
        "machine",
        found.name,
        library_for(study, found, setting),
        int(found.facts.cores or 1),
        lambda nodes, among=None: costs,
        said=lambda network: [f"message costs: {network.source}"],
        ends=tuple(
            f"the machine was disturbed when it was measured: {text}" for text in found.disturbed
        ),
        hosts=hosts,
        queues=math.isfinite(costs[0].rate),
        why_not=why,
        own=measured_creation(found.network or {}),
        packing=measured_packing(found.network or {}),
    )


def published_messages(study: Study, setting: Setting) -> Messages:
    """Return what messages cost on the typical cluster that a setting names."""
    cluster = cluster_of(setting.network)
    return Messages(
        TYPICAL,
        cluster.name,
        library_for(study, None, setting),
        cluster.cores_per_node,
        lambda nodes, among=None: (
            network_from_cluster(cluster, nodes, among=among),
            network_from_cluster(cluster, nodes, "low", among),
            network_from_cluster(cluster, nodes, "high", among),
        ),
        said=lambda network: [
            f"message costs: {network.source}, {cluster.cores_per_node} cores per node, from "
            "published figures"
        ],
        of_runs=(
            "computation is that of the traced machine; its run times are not compared, because "
            "its network is another one",
        ),
        distance=lambda nodes, among=None: cluster_distances(cluster, nodes, among),
        levels=True,
        queues=True,
    )


def messages_of(study: Study, estimator: str, machine: Path | None, setting: Setting) -> Messages:
    """Return what messages cost where they are simulated: as measured between two ranks.

    Published figures stand for it where nothing was measured, or the estimator takes them.
    """
    if estimator == TYPICAL or why_not(study, machine):
        return published_messages(study, setting)
    return measured_messages(study, machine, setting)


# ---- as prediction.json names it ------------------------------------------------------------
def network_of(
    study: Study, name: str, counts: Sequence[int], machine: Path | None, setting: Setting | None
) -> types.Network | None:
    """Return the network behind an estimator.

    Its source: typical (published figures), file (one like it that the user wrote), measured
    (between two hosts, or by a replay), or one machine. None where nothing is known.
    """
    if name == TYPICAL:
        return types.Network(**cluster_of((setting or Setting()).network).about())
    if name not in FROM_REPLAY:
        found = Machine.load(machine_path(study, machine))
        hosts = [str(host) for host in (found.network or {}).get("hosts", ())]
        return _of_hosts(found.name, hosts)
    replayed = [n for n in counts if n > 1 and study.replay_path(n).exists()]
    if not replayed:
        return None
    nodes = [str(node) for node in study.replay(max(replayed)).get("nodes", ()) if node]
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
    return replace(
        found,
        comm=found.comm + typical,
        low=found.low + (low if ends else typical),
        high=found.high + (high if ends else typical),
        software=found.software + typical,
        notes=(*found.notes, f"{what} {'was measured' if measured else 'is a typical figure'}"),
    )
