"""What a phase costs under a placement: quickly from the loads of links, or by a learned model.

Also what a learned model needs of a phase, and networks told apart.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from p3s.base.arrays import Floats, Ints
from p3s.machine.topology.direct import Dragonfly
from p3s.machine.topology.fabric import Fabric
from p3s.methods.placement.features import class_a, class_b, class_c
from p3s.methods.placement.learned import LearnedModel, load
from p3s.methods.placement.links import link_features, paths
from p3s.methods.placement.phases import PhaseTraffic, Traffic, sums
from p3s.methods.placement.simulated import simulated_features
from p3s.program.mapping import RankMap
from p3s.simulate.network import Network

#: A phase, and where its ranks are.
Phase = tuple[Traffic, RankMap]


def row_of(phase: Phase, fabric: Fabric, network: Network | None = None) -> dict[str, float]:
    """Return the features of a phase: classes A, B and C, links, with ``network`` simulated ones.

    Errors: P3SError for nodes that the network does not have.
    """
    traffic, placed = phase
    levels = [level.at(fabric.numbers(placed.names)) for level in fabric.levels()]
    features = class_a(traffic, placed) | class_b(traffic, placed)
    features |= class_c(traffic, placed, levels, isinstance(fabric, Dragonfly))
    features |= link_features(traffic, placed, fabric)
    if network is not None:
        features |= simulated_features(traffic, placed, fabric, network)
    return features


def network_id(fabric: Fabric) -> str:
    """Return what tells networks apart: form, and a number made of their cables' speeds.

    Of forms that are cut to a run's nodes, as fat trees may be, the number of nodes says nothing.
    """
    speed = getattr(fabric, "speed", None)
    parts = [speed] if speed is not None else [fabric.cables().ravel(), fabric.rate]
    crc = 0
    for part in parts:
        crc = zlib.crc32(np.round(np.asarray(part, dtype="<f8"), 9).tobytes(), crc)
    return f"{fabric.text} ({crc:08x})"


#: What the other links add to the busiest one: tells placements apart whose busiest are alike.
_OTHERS = 0.05
_NS_PER_S = 1e9


@dataclass(frozen=True)
class Seconds:
    """Time of a phase, and the ends of its interval, None where nobody says them.

    ``outside``: features of it that a learned model has not seen.
    """

    middle: float
    low: float | None = None
    high: float | None = None
    outside: tuple[str, ...] = ()


class CostModel(Protocol):
    """Says how long the communication of a phase takes in the whole run."""

    @property
    def name(self) -> str:
        """What it is, for people."""

    def of(self, phase: PhaseTraffic, placed: RankMap, fabric: Fabric) -> Seconds:
        """Return the time of a phase with its ranks on nodes of a network.

        Errors: P3SError for nodes that the network does not have.
        """


@dataclass(frozen=True, eq=False)
class QuickCost:
    """The busiest link, and the rank with the most messages; sorts placements, no more.

    ``network``: what messages cost. All bytes of a phase pass their links at the same time, every
    rank starts one message after the other.
    """

    network: Network

    @property
    def name(self) -> str:
        """What it is, for people."""
        return "busiest link and busiest rank"

    def of(self, phase: PhaseTraffic, placed: RankMap, fabric: Fabric) -> Seconds:
        """Return the time of a phase; see CostModel."""
        sent = phase.traffic
        messages = paths(sent, placed, fabric)
        loads = fabric.loads(messages.source, messages.dest, messages.nbytes)
        busy = loads / np.repeat(link_rates(fabric, self.network), 2)
        used = busy[loads > 0]
        links = float(used.max() + _OTHERS * used.mean()) if len(used) else 0.0
        passed = fabric.distances(messages.source, messages.dest)[messages.row]
        message_ns = sent.messages * self._message_ns(passed, sent)
        ranks = sums(sent.source, message_ns, sent.ranks) + sums(sent.dest, message_ns, sent.ranks)
        return Seconds((links + float(ranks.max(initial=0.0)) / 2) / _NS_PER_S)

    def _message_ns(self, passed: Ints, sent: Traffic) -> Floats:
        """Return what each row's messages take beside their bytes on links."""
        cost_ns = np.zeros(len(sent))
        for distance in np.unique(passed).tolist():
            rows = passed == distance
            path = self.network.path(int(distance))
            size = sent.nbytes[rows] if not path.linked else np.zeros(int(rows.sum()))
            cost_ns[rows] = path.transfer.at(size) + path.send.at(sent.nbytes[rows])
        return cost_ns


def link_rates(fabric: Fabric, network: Network) -> Floats:
    """Return bytes per ns of each cable: as stated, else and at most what a node's link carries."""
    rate = np.where(np.isnan(fabric.rate), network.rate, fabric.rate)
    rate[: fabric.nodes] = np.minimum(rate[: fabric.nodes], network.rate)
    return np.asarray(rate, dtype=np.float64)


@dataclass(frozen=True, eq=False)
class LearnedCost:
    """A model that was learned from measured phases."""

    model: LearnedModel

    @property
    def name(self) -> str:
        """What it is, for people."""
        return f"times learned on {self.model.card.machine}"

    def of(self, phase: PhaseTraffic, placed: RankMap, fabric: Fabric) -> Seconds:
        """Return the time of a phase; see CostModel."""
        parts = [(part, times) for part, times in iterations_of(phase) if len(part)]
        if not parts:
            return Seconds(0.0, 0.0, 0.0)
        rows = [row_of((part, placed), fabric, self.model.network) for part, _ in parts]
        estimate = self.model.predict(rows)
        times = np.array([times for _, times in parts])
        names = sorted({name for one in estimate.outside for name in one})
        low, high = float(estimate.low @ times), float(estimate.high @ times)
        return Seconds(float(estimate.seconds @ times), low, high, tuple(names))


def cost_of(file: Path | str | None) -> LearnedCost | None:
    """Return the cost by the model in a file, None without one. Errors: as of load."""
    return None if file is None else LearnedCost(load(Path(file)))


def iterations_of(phase: PhaseTraffic) -> Iterator[tuple[Traffic, float]]:
    """Yield what one iteration sends and how many there are; rare messages are a part of their own.

    Messages that are sent in fewer than half of the iterations are together in as many as the most
    frequent of them needs.
    """
    sent, times = phase.traffic, max(phase.iterations, 1.0)
    rare = sent.messages < times / 2
    most = float(sent.messages[rare].max(initial=0))
    for rows, number in ((~rare, times), (rare, most)):
        if rows.any():
            each = np.maximum(np.rint(sent.messages[rows] / number), 1).astype(np.int64)
            columns = (sent.source[rows], sent.dest[rows], each, sent.nbytes[rows])
            yield Traffic(sent.ranks, *columns), number


def whole_cost(
    model: CostModel, phases: Sequence[PhaseTraffic], placed: RankMap, fabric: Fabric
) -> Seconds:
    """Return the time of all phases together; no interval where one of them has none."""
    parts = [model.of(phase, placed, fabric) for phase in phases]
    lows, highs = [part.low for part in parts], [part.high for part in parts]
    return Seconds(
        sum(part.middle for part in parts),
        None if None in lows else sum(low for low in lows if low is not None),
        None if None in highs else sum(high for high in highs if high is not None),
        tuple(sorted({name for part in parts for name in part.outside})),
    )
