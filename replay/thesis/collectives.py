"""Cost of a collective on many ranks, put together from rounds of point-to-point messages.

Each round takes as long as its slowest message: between nodes if any pair of the round is on two
nodes. Two primitives are measured for it: a *message* one way, and an *exchange* in which both
processes send and receive at once. The arithmetic of reductions is not part of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from p3s.trace.ops import blocking_of
from replay.scaled import Bools, Ints

MESSAGE = "message"
EXCHANGE = "exchange"

#: Switch points of MPICH 4 (src/mpi/coll): above this many bytes an all-reduce reduces halves,
#: and an all-gather of this many bytes in total goes around a ring.
RABENSEIFNER_BYTES = 2048
RING_BYTES = 81920


@dataclass(frozen=True)
class Round:
    """``times`` equal rounds of one primitive with this many bytes, between nodes or inside."""

    primitive: str
    bytes: int
    inter: bool
    times: int = 1


@dataclass(frozen=True)
class Composition:
    """The named algorithm and its rounds, one after the other."""

    algorithm: str
    rounds: tuple[Round, ...]


def compose(op: str, nbytes: int, nodes: Ints, root: int = 0) -> Composition | None:
    """Return the rounds of a collective; None for a call without a known algorithm.

    ``nodes`` holds the node of each member, in the order of the communicator. ``nbytes`` is the
    number of the trace: own contribution, all members together for MPI_Alltoall(v/w), all
    results together for MPI_Reduce_scatter. ``root`` is a position in the communicator. A
    nonblocking or persistent collective costs what its blocking twin costs: that it may overlap
    with computation is not part of it.
    """
    p = len(nodes)
    name = blocking_of(op).removeprefix("MPI_")
    if p < 2:
        return Composition("nothing to do for one member", ())
    if name == "Barrier":
        return Composition("dissemination", _shifts(nodes, 0, growing=False))
    if name in ("Bcast", "Reduce"):
        return Composition("binomial tree", _tree(nodes, nbytes, root, growing=False))
    if name in ("Gather", "Gatherv", "Scatter", "Scatterv"):
        return Composition("binomial tree", _tree(nodes, nbytes, root, growing=True))
    if name in ("Scan", "Exscan"):
        return Composition("recursive doubling", _doubling(nodes, nbytes))
    if name == "Allreduce":
        if nbytes <= RABENSEIFNER_BYTES:
            return Composition("recursive doubling", _doubling(nodes, nbytes))
        halves = _halving(nodes, nbytes)
        return Composition("Rabenseifner (reduce-scatter, all-gather)", halves + halves[::-1])
    if name in ("Reduce_scatter", "Reduce_scatter_block"):
        return Composition("recursive halving", _halving(nodes, nbytes))
    if name in ("Allgather", "Allgatherv"):
        if nbytes * p <= RING_BYTES:
            return Composition("Bruck", _shifts(nodes, nbytes, growing=True))
        ring = Round(EXCHANGE, nbytes, bool((nodes != np.roll(nodes, 1)).any()), p - 1)
        return Composition("ring", (ring,))
    if name in ("Alltoall", "Alltoallv", "Alltoallw"):
        return Composition("pairwise exchange", _pairwise(nodes, nbytes // p))
    return None


def _crosses(nodes: Ints, partner: Ints, takes_part: Bools) -> bool:
    """Tell whether any member that takes part has its partner on another node."""
    return bool((nodes[takes_part] != nodes[partner[takes_part]]).any())


def _shifts(nodes: Ints, nbytes: int, *, growing: bool) -> tuple[Round, ...]:
    """Rounds to the member 1, 2, 4, ... further on; growing: with all that was collected."""
    p = len(nodes)
    rounds = []
    distance = 1
    while distance < p:
        size = nbytes * min(distance, p - distance) if growing else nbytes
        inter = bool((nodes != np.roll(nodes, -distance)).any())
        rounds.append(Round(EXCHANGE, size, inter))
        distance *= 2
    return tuple(rounds)


def _tree(nodes: Ints, nbytes: int, root: int, *, growing: bool) -> tuple[Round, ...]:
    """Rounds of a binomial tree; growing: a message carries the data of its whole subtree."""
    p = len(nodes)
    turned = np.roll(nodes, -root)
    member = np.arange(p)
    rounds = []
    distance = 1
    while distance < p:
        partner = np.minimum(member + distance, p - 1)
        sends = (member % (2 * distance) == 0) & (member + distance < p)
        size = nbytes * min(distance, p - distance) if growing else nbytes
        rounds.append(Round(MESSAGE, size, _crosses(turned, partner, sends)))
        distance *= 2
    return tuple(rounds)


def _fold(nodes: Ints, nbytes: int) -> tuple[int, Ints, tuple[Round, ...]]:
    """Fold the members above a power of two into others: (power, nodes left, extra round)."""
    p = len(nodes)
    power = 1 << (p.bit_length() - 1)
    rest = p - power
    if rest == 0:
        return power, nodes, ()
    even, odd = nodes[0:2 * rest:2], nodes[1:2 * rest:2]
    extra = Round(MESSAGE, nbytes, bool((even != odd).any()))
    return power, np.concatenate((odd, nodes[2 * rest:])), (extra,)


def _doubling(nodes: Ints, nbytes: int) -> tuple[Round, ...]:
    power, left, extra = _fold(nodes, nbytes)
    member = np.arange(power)
    every = np.ones(power, dtype=bool)
    rounds = []
    distance = 1
    while distance < power:
        rounds.append(Round(EXCHANGE, nbytes, _crosses(left, member ^ distance, every)))
        distance *= 2
    return extra + tuple(rounds) + extra


def _halving(nodes: Ints, nbytes: int) -> tuple[Round, ...]:
    power, left, extra = _fold(nodes, nbytes)
    member = np.arange(power)
    every = np.ones(power, dtype=bool)
    rounds = []
    distance, size = power // 2, nbytes
    while distance >= 1:
        size = -(-size // 2)
        rounds.append(Round(EXCHANGE, size, _crosses(left, member ^ distance, every)))
        distance //= 2
    return extra + tuple(rounds)


def _pairwise(nodes: Ints, nbytes: int) -> tuple[Round, ...]:
    """p - 1 rounds; a round inside of nodes only is one that no pair leaves its node in."""
    p = len(nodes)
    inter = 0
    for distance in range(1, p):
        inter += bool((nodes != np.roll(nodes, -distance)).any())
    rounds = []
    if inter:
        rounds.append(Round(EXCHANGE, nbytes, True, inter))
    if p - 1 - inter:
        rounds.append(Round(EXCHANGE, nbytes, False, p - 1 - inter))
    return tuple(rounds)
