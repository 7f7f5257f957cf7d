"""Features of traffic, mapping and topology that predict the time of a communication phase.

Class A needs the messages alone, class B also the node of each rank, class C also the levels of the
network (switches, racks, groups) that the nodes are in. All count what is sent, in bytes or
messages; min, avg and max are over all components of a level that the allocation is in, also those
that send nothing. Source: Papadopoulou, "Communication performance prediction on large-scale
systems", NTUA 2017, chapter 3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from p3s.base.arrays import Bools, Floats, Ints
from p3s.base.errors import P3SError
from p3s.machine.topology.fabric import Level
from p3s.methods.placement.phases import NodeTraffic, Traffic, between_nodes, sums
from p3s.program.mapping import RankMap

#: Names of the features of class A.
CLASS_A = ("n", "ppn", "l(max)", "PD(max)", "PM(max)")
_ALL = ("min", "avg", "max")
_STATISTIC: Mapping[str, Callable[[Floats], Any]] = {"min": np.min, "avg": np.mean, "max": np.max}


def class_a(traffic: Traffic, placed: RankMap) -> dict[str, float]:
    """Return nodes, ranks of a node (the most), largest message, and most data and messages sent.

    Data and messages are those of one rank, in bytes; 0 where nothing is sent.
    """
    data = sums(traffic.source, traffic.volume, traffic.ranks)
    messages = sums(traffic.source, traffic.messages, traffic.ranks)
    longest = float(traffic.nbytes.max()) if len(traffic) else 0.0
    counts = (placed.nodes, placed.sizes.max(), longest, data.max(), messages.max())
    return dict(zip(CLASS_A, map(float, counts), strict=True))


def class_b(traffic: Traffic, placed: RankMap) -> dict[str, float]:
    """Return what nodes send to others (ND, NM), keep inside (iND, iNM), and in all (TD, TM)."""
    between = between_nodes(traffic, placed)
    apart = between.source != between.dest
    features: dict[str, float] = {}
    for inside, prefix in ((apart, "N"), (~apart, "iN")):
        features |= _traffic_statistics(prefix, between, between.source, placed.nodes, inside)
    features["TD"] = float(between.nbytes[apart].sum())
    features["TM"] = float(between.messages[apart].sum())
    return features


def class_c(
    traffic: Traffic, placed: RankMap, levels: Sequence[Level], pairs: bool = False
) -> dict[str, float]:
    """Return the shape of the allocation, and what components of each level send and keep.

    ``levels``: of the allocation's nodes, in their order, the lowest first. Columns of a level with
    name sw and letter S: sw, n/sw, SD, SM (out of one), iSD, iSM (inside, between its parts).
    ``pairs``: also the most between two of the highest level (joined one by one), with letter G:
    GGD, GGM. Errors: P3SError where levels are not nested or are those of other nodes.
    """
    _check_nested(levels, placed.nodes)
    between = between_nodes(traffic, placed)
    shape: dict[str, float] = {}
    sent: dict[str, float] = {}
    below, below_name = np.arange(placed.nodes), "n"
    for depth, level in enumerate(levels):
        names, of = np.unique(level.of, return_inverse=True)
        of = of.ravel()
        number = len(names)
        shape[level.name] = float(number)
        parts = np.unique(np.stack([below, of]), axis=1)[1]
        counts_of_parts = sums(parts, np.ones(len(parts)), number)
        shape |= _summarise(f"{below_name}/{level.name}", counts_of_parts, ("avg", "max"))
        source, dest = of[between.source], of[between.dest]
        leaves = source != dest
        inside = ~leaves & (below[between.source] != below[between.dest])
        for rows, prefix in ((leaves, level.letter), (inside, f"i{level.letter}")):
            sent |= _traffic_statistics(prefix, between, source, number, rows)
        if pairs and depth == len(levels) - 1:
            sent |= _largest_pair(level.letter, between, source * number + dest, leaves)
        below, below_name = of, level.name
    return shape | sent


def _traffic_statistics(
    prefix: str, between: NodeTraffic, component: Ints, number: int, rows: Bools
) -> dict[str, float]:
    """Return statistics of the data and the messages of some rows, summed up by component."""
    features: dict[str, float] = {}
    for letter, column in (("D", between.nbytes), ("M", between.messages)):
        features |= _summarise(prefix + letter, sums(component[rows], column[rows], number), _ALL)
    return features


def _largest_pair(letter: str, between: NodeTraffic, pair: Ints, leaves: Bools) -> dict[str, float]:
    """Return the most data and the most messages that one component sends to another."""
    _, place = np.unique(pair[leaves], return_inverse=True)
    return {
        f"{letter}{letter}{kind}": float(
            np.bincount(place.ravel(), weights=column[leaves], minlength=1).max()
        )
        for kind, column in (("D", between.nbytes), ("M", between.messages))
    }


def _summarise(name: str, values: Floats, statistics: Sequence[str]) -> dict[str, float]:
    return {f"{name}({kind})": float(_STATISTIC[kind](values)) for kind in statistics}


def _check_nested(levels: Sequence[Level], nodes: int) -> None:
    """Raise P3SError where a level is not for ``nodes`` nodes, or splits one that is below it."""
    for level in levels:
        if len(level.of) != nodes:
            raise P3SError(
                f"level {level.name}: says where {len(level.of)} nodes are, there are {nodes}"
            )
    for low, high in zip(levels[:-1], levels[1:], strict=True):
        pairs = np.unique(np.stack([low.of, high.of]), axis=1)
        if pairs.shape[1] != low.number:
            raise P3SError(
                f"level {high.name}: nodes of one {low.name} are in several {high.name}; "
                "give levels from the lowest to the highest"
            )
