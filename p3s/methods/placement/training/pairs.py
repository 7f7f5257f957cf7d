"""Traffic of random pairs of ranks (Papadopoulou 2017), which models are trained on."""

from __future__ import annotations

import numpy as np

from p3s.machine.topology.units import Ints
from p3s.methods.placement.traffic import Traffic, together, traffic


def random_pairs(
    node_of: Ints, messages: int, nbytes: int, inside: float, seed: int
) -> tuple[Traffic, list[Ints]]:
    """Return the traffic of random pairs, and the partner of each rank in each round.

    Each of the ``messages`` rounds pairs all ranks at random, with probability ``inside`` only
    ranks of the same node; both send ``nbytes``. A rank that is left over (an odd number of them)
    is its own partner, and sends nothing. ``seed``: the same pairs again.
    """
    rng = np.random.default_rng(seed)
    rounds = [_round(node_of, bool(rng.random() < inside), rng) for _ in range(messages)]
    ranks = np.arange(len(node_of))
    parts = [
        traffic(len(node_of), ranks[pair != ranks], pair[pair != ranks], nbytes) for pair in rounds
    ]
    return (together(parts) if parts else traffic(len(node_of), [], [], [])), rounds


def _round(node_of: Ints, inside: bool, rng: np.random.Generator) -> Ints:
    partner = np.arange(len(node_of))
    groups = [np.flatnonzero(node_of == node) for node in np.unique(node_of)]
    for group in groups if inside else [partner.copy()]:
        mixed = rng.permutation(group)
        half = len(mixed) // 2
        one, other = mixed[:half], mixed[half : 2 * half]
        partner[one], partner[other] = other, one
    return partner
