"""What links between switches carry: as measured by floods of one or two nodes, or as stated.

A flood over the same links from k nodes at once is limited by them where it carries clearly less
than k nodes could send. Else they carry at least that much: with four nodes in the replay, links
with room for more than two nodes are told apart from unlimited ones by the topology file only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from p3s.base.arrays import Floats, Ints
from p3s.machine.topology.switches import Topology
from p3s.machine.topology.trees import common, heights, links_between
from p3s.replay.costs.link import SHARED, Flood, Link, carried
from p3s.replay.engine.results import ProgramResult
from p3s.replay.plan.program import Code, Program
from p3s.replay.plan.world import World
from p3s.simulate.network import Network
from p3s.simulate.switch_links import Trunks

if TYPE_CHECKING:
    from p3s.replay.plan.types import ReplayPlan

#: What is stated and what is measured may differ by this share.
_APART = 0.25


@dataclass(frozen=True)
class Fabric:
    """Where nodes hang in a tree of switches.

    ``nodes``: switch of every node of the run; ``used``: pairs of switches that exchange messages
    (pairs x 2). ``programs``: per program, switches of the four nodes of the replay;
    none where they are not known.
    """

    topology: Topology
    nodes: Ints
    used: Ints
    programs: tuple[Ints, ...]

    def place(self, program: int, network: Network) -> Network:
        """Return the network with the nodes that a program ran on."""
        if network.trunks is None:
            return network
        switches = self.programs[program]
        here = network.trunks.on(switches.tolist()) if len(switches) else None
        return replace(network, trunks=here)


@dataclass(frozen=True)
class Flow:
    """A flood of ``nodes`` nodes over the ``links`` above these switches.

    ``limited``: they are what limits it; else they carry at least ``link.rate``.
    """

    links: tuple[int, ...]
    nodes: int
    link: Link
    limited: bool


@dataclass(frozen=True)
class Known:
    """What is known of the link above each switch; arrays, one entry per switch.

    ``rate``, ``low``, ``high``: bytes per ns, inf where no limit is known; ``burst``: bytes;
    ``least``: bytes per ns that it carries at least, measured with ``tried`` nodes (0: not).
    ``why``: what the rate rests on. ``notes``: what is not known and could matter.
    """

    fabric: Fabric
    rate: Floats
    low: Floats
    high: Floats
    burst: Floats
    least: Floats
    tried: Ints
    why: tuple[str, ...]
    notes: tuple[str, ...] = field(default=())

    def trunks(self, which: str = "cost_ns") -> Trunks | None:
        """Return the links for the simulation of the run, None where none is a limit.

        ``which``: "cost_ns", or "low_ns" and "high_ns", the ends of what they may carry.
        """
        rate = {"low_ns": self.high, "high_ns": self.low}.get(which, self.rate)
        if not np.isfinite(rate).any():
            return None
        return Trunks(
            tuple(self.fabric.nodes.tolist()),
            tuple(self.fabric.topology.up.tolist()),
            tuple(rate.tolist()),
            tuple(self.burst.tolist()),
        )


def fabric_of(plan: ReplayPlan) -> Fabric | None:
    """Return where the nodes of a plan hang; None where no tree of switches is known."""
    topology = plan.topology
    if topology.flat or not len(topology.up):
        return None
    nodes = topology.switches_of(plan.mapping.names)
    pairs = [
        np.unique(np.stack([nodes[t.source], nodes[t.target]], axis=1), axis=0)
        for t in (whole.transit for whole in plan.wholes)
    ]
    used = np.unique(np.concatenate([np.zeros((0, 2), dtype=np.int64), *pairs]), axis=0)
    placed = [
        topology.switches_of(placement.hosts) if placement.hosts else np.zeros(0, dtype=np.int64)
        for placement in plan.placements
    ]
    return Fabric(topology, nodes, used, tuple(placed[number] for number in plan.placement_of))


def flood_of(program: Program, result: ProgramResult, world: World) -> tuple[Flood, int] | None:
    """Return the arrivals of a flood from several nodes, and how many; None: nothing measured.

    Only as long as something still comes to every node: then all of them send. Medians over the
    passes, each sorted by time.
    """
    codes = program.events["code"]
    sends, receives = (np.flatnonzero(codes == code) for code in (Code.LINK_SEND, Code.LINK_RECV))
    if not result.passes or not len(receives) or not result.link_ns.size:
        return None
    node = np.array([process.node for process in world.processes])
    owner = np.searchsorted(program.start, np.arange(len(codes)), side="right") - 1
    number = program.events["number"][receives]
    if result.link_ns.shape[1] != int(number.sum()):
        return None
    to = np.repeat(node[owner[receives]], number)
    nbytes = float(program.events["bytes"][receives[0]])
    last = np.stack([result.link_ns[:, to == one].max(axis=1) for one in np.unique(to)], axis=1)
    until = last.min(axis=1)[:, None]
    ns = np.sort(np.where(result.link_ns <= until, result.link_ns, np.inf), axis=1)
    here = int(np.isfinite(ns).sum(axis=1).min())
    sent = np.asarray(nbytes * np.arange(1, here + 1), dtype=np.float64)
    median = np.asarray(np.median(ns[:, :here], axis=0), dtype=np.float64)
    first = (nbytes, float(ns[:, 0].min()))
    return Flood(len(sends), sent, median, first), len(np.unique(node[owner[sends]]))


def flows_of(
    fabric: Fabric,
    programs: Sequence[Program],
    results: Mapping[int, ProgramResult],
    world: World,
    alone: float,
) -> list[Flow]:
    """Return what floods have shown of links between switches.

    ``alone``: bytes per ns that one node can send, 0 where it is not known.
    """
    found: dict[tuple[tuple[int, ...], int], list[Flood]] = {}
    for number, result in sorted(results.items()):
        if programs[number].what != "trunk":
            continue
        flood = flood_of(programs[number], result, world)
        first, second = fabric.programs[number][:2].tolist()
        if flood is not None:
            links = tuple(links_between(fabric.topology.chain, first, second))
            found.setdefault((links, flood[1]), []).append(flood[0])
    flows = []
    for (links, nodes), floods in sorted(found.items(), key=lambda entry: len(entry[0][0])):
        link = carried(floods)
        if link is not None:
            flows.append(Flow(links, nodes, link, link.rate < SHARED * nodes * alone))
    return flows


def known(fabric: Fabric, flows: Sequence[Flow], burst: float) -> Known:
    """Return what is known of all links; ``burst``: of a node's link, for those that are stated.

    A measured link stands for all of its level with the same stated speed, as the links of nodes
    do for each other, and goes before what is stated.
    """
    topology = fabric.topology
    number = len(topology.up)
    stated = topology.speed if len(topology.speed) else np.full(number, np.nan)
    has = ~np.isnan(stated)
    rate = np.where(has, stated, np.inf)
    low, high = rate.copy(), rate.copy()
    bursts = np.where(has, burst, 0.0)
    least, tried = np.zeros(number), np.zeros(number, dtype=np.int64)
    measured = np.zeros(number, dtype=bool)
    why = [f"stated in {topology.source}" if yes else "" for yes in has.tolist()]
    level = heights(topology.chain)
    notes: list[str] = []
    for flow in flows:
        links = np.array(flow.links, dtype=np.int64)
        value = flow.link.rate
        explained = measured[links] & (rate[links] <= (1 + _APART) * value)
        wider = ~measured[links] & (least[links] > (1 + _APART) * value)
        narrow = links[~measured[links] & ~wider]
        limited = flow.limited and not explained.any()
        if limited:
            # Not what the file says to be wider, if it may be others.
            may = narrow[~(stated[narrow] > (1 + _APART) * value)]
            narrow = may if len(may) else narrow
        if limited and not len(narrow):
            narrow = links[level[links] == level[links].max()]
        for link in narrow.tolist():
            alike = (level == level[link]) & (
                (stated == stated[link]) | (np.isnan(stated) & np.isnan(stated[link]))
            )
            if limited:
                notes += _differs(topology, link, stated[link], value)
                rate[alike], low[alike], high[alike] = value, flow.link.low, flow.link.high
                bursts[alike], measured[alike] = flow.link.burst, True
                why = [
                    f"{flow.link.why} over {flow.nodes} node{'s'[: flow.nodes != 1]} to others"
                    if yes
                    else text
                    for yes, text in zip(alike.tolist(), why, strict=True)
                ]
                continue
            least[alike] = np.maximum(least[alike], value)
            tried[alike] = np.maximum(tried[alike], flow.nodes)
            if stated[link] < (1 - _APART) * value:
                notes += _differs(topology, link, stated[link], value)
                rate[alike] = low[alike] = high[alike] = np.inf
    notes += _unknown(fabric, rate, least, tried)
    return Known(
        fabric, rate, low, high, bursts, least, tried, tuple(why), tuple(dict.fromkeys(notes))
    )


def link_name(topology: Topology, switch: int) -> str:
    """Return the names of the two switches that a link connects."""
    above = int(topology.up[switch])
    return f"{topology.switches[switch]} - {topology.switches[above] if above >= 0 else 'others'}"


def _differs(topology: Topology, link: int, stated: float, value: float) -> list[str]:
    if math.isnan(stated) or abs(stated - value) <= _APART * value:
        return []
    return [
        f"{topology.source} says {1e3 * stated:,.1f} MB/s of {link_name(topology, link)}, but "
        f"{1e3 * value:,.1f} MB/s went over it: what was measured is taken"
    ]


def _unknown(fabric: Fabric, rate: Floats, least: Floats, tried: Ints) -> list[str]:
    """Say which links could be a limit of the run without anybody knowing."""
    chain = fabric.topology.chain
    hanging = np.bincount(_switches(chain[fabric.nodes]), minlength=len(rate))
    sides = [chain[fabric.used[:, end]] for end in (0, 1)]
    both = common(*sides)
    passed = {int(s) for side in sides for s in np.unique(side[~both])}
    found: dict[tuple[int, float], list[tuple[int, int]]] = {}
    for link in range(len(rate)):
        if math.isfinite(rate[link]) or link not in passed:
            continue
        mine = int(hanging[link])
        share = min(mine, len(fabric.nodes) - mine)
        if share > max(int(tried[link]), 1):
            found.setdefault((int(tried[link]), float(least[link])), []).append((share, link))
    notes = []
    for (nodes, carries), links in found.items():
        share, link = max(links)
        name = link_name(fabric.topology, link)
        more = f" and {len(links) - 1} more" if len(links) > 1 else ""
        what = (
            "it was not measured"
            if not nodes
            else (
                f"{nodes} node{'s'[: nodes != 1]} at once had {1e3 * carries:,.1f} MB/s over it "
                "and were not slowed down by it, more were not tried"
            )
        )
        notes.append(
            f"up to {share} nodes share the link between switches {name}{more}; {what}, so no "
            "limit of it is simulated: state it in the topology file (LinkSpeed=100Gbit/s)"
        )
    return notes


def _switches(chain: Ints) -> Ints:
    return chain[chain >= 0]


def nothing_known(topology: Topology) -> tuple[str, ...]:
    """Say that links between switches are not simulated where the network is no tree."""
    if topology.flat or len(topology.up):
        return ()
    return (
        f"{topology.source}: the switches are no tree, which links a message passes is not "
        "known: no limit between switches is simulated",
    )
