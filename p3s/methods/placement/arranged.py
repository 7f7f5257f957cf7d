"""Groups of ranks on nodes, arranged so that those that talk much are near each other.

Halving a network says which ranks are together, not which half of a pair is nearer to the others.
"""

from __future__ import annotations

import numpy as np

from p3s.machine.topology.fabric import Fabric
from p3s.machine.topology.units import Floats, Ints

#: Tables of this many nodes squared are made at most.
MOST_NODES = 2048
#: Sums over nodes cubed that swaps take at most.
_WORK = 1 << 30
_SWEEPS = 8


def distances_of(fabric: Fabric, at: Ints) -> Floats:
    """Return the links between each two of some nodes of a network."""
    number = len(at)
    one, other = np.repeat(at, number), np.tile(at, number)
    return fabric.distances(one, other).reshape(number, number).astype(np.float64)


def nearer_changed(sent: tuple[Floats, Floats], halves: tuple[Ints, Ints], apart: Floats) -> bool:
    """Tell whether two groups of ranks are nearer to the rest if they change their nodes.

    ``sent``: bytes between each group and every node, now as far as ranks are spread evenly over
    their nodes. ``halves``: nodes of each group.
    """
    near = [apart[half].mean(axis=0) for half in halves]
    return bool((sent[0] - sent[1]) @ (near[0] - near[1]) > 0)


def swapped_nodes(between: Floats, apart: Floats, slots: Ints) -> Ints:
    """Return the node that all ranks of each node go to, for fewer bytes times links.

    ``between``: bytes from node to node, both ways together. Only nodes with as many slots change.
    """
    number = len(slots)
    goes = np.arange(number)
    sent = between.copy()
    for _ in range(min(_SWEEPS, _WORK // max(number, 1) ** 3)):
        moved = False
        for one in range(number):
            gain = _gains(sent, apart, one)
            gain[slots != slots[one]] = 0.0
            other = int(gain.argmax())
            if gain[other] > 1e-9 * max(float(sent[one].sum()), 1.0):
                pair = [one, other]
                sent[pair] = sent[pair[::-1]]
                sent[:, pair] = sent[:, pair[::-1]]
                goes[pair] = goes[pair[::-1]]
                moved = True
        if not moved:
            break
    return np.argsort(goes)


def _gains(sent: Floats, apart: Floats, one: int) -> Floats:
    """Return by how much bytes times links fall if a node changes its ranks with each other one."""
    change = np.einsum("bk,bk->b", sent[one] - sent, apart - apart[one])
    return np.asarray(-change - 2.0 * sent[one] * apart[one], dtype=np.float64)
