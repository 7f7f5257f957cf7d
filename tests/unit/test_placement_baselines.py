"""Baselines by hand, and the first method as a whole on a network of packets."""

from __future__ import annotations

import numpy as np
import pytest

from p3s.base.errors import P3SError
from p3s.machine.topology.read import read_fabric
from p3s.methods.placement.allocation import allocation
from p3s.methods.placement.baselines import (
    Hockney,
    best_variant,
    fit_ping_pong,
    seconds_of,
    variants,
)
from p3s.methods.placement.candidates import random_on
from p3s.methods.placement.patterns import halo
from p3s.methods.placement.traffic import traffic
from p3s.program.mapping import block

PLAIN = Hockney(2.0, 0.5, 10.0)
TREE = read_fabric("fat-tree:2,1,2", 4)


def test_ping_pong() -> None:
    nbytes = np.array([8.0, 1024.0, 65536.0, 1 << 22])
    found = fit_ping_pong(nbytes, (2e-6 + nbytes / 5e9) * [1.01, 0.99, 1.01, 0.99])
    assert (found.alpha, found.beta) == pytest.approx((2e-6, 2e-10), rel=0.03)
    with pytest.raises(P3SError, match="several sizes"):
        fit_ping_pong(np.array([8.0, 8.0]), np.ones(2))


def test_costs_by_hand() -> None:
    # Rank 0 sends 3 messages of 4 bytes two switches further, rank 1 (its node) one of 20 bytes.
    sent = traffic(8, [0, 1], [4, 5], [4, 20], [3, 1])
    placed = block(8, 2)
    assert seconds_of(Hockney(2.0, 0.5), sent, placed, TREE) == max(3 * 2 + 6, 2 + 10)
    assert seconds_of(PLAIN, sent, placed, TREE) == max(3 * 22 + 6, 22 + 10)
    # Two ranks of the node send: twice the latency. 32 bytes on the node's link for both.
    both = Hockney(2.0, 0.5, 10.0, shared_latency=True, shared_links=True)
    assert seconds_of(both, sent, placed, TREE) == 3 * 44 + 16
    assert seconds_of(both, traffic(8, [], [], []), placed, TREE) == 0
    # Inside a node nothing is shared and nothing is far.
    inside = traffic(8, [0, 1], [1, 0], 4)
    assert seconds_of(both, inside, placed, TREE) == 4
    assert [x.name for x in variants(PLAIN)[:4]] == [
        "alpha-beta-gamma", "alpha-beta_p-gamma", "alpha_p-beta-gamma", "alpha_p-beta_p-gamma",
    ]  # fmt: skip
    assert len(variants(PLAIN)) == 8 and len(variants(Hockney(1, 1))) == 4


def test_penalties_are_chosen_where_links_are_shared() -> None:
    phases, seconds = [], []
    for seed in range(8):
        placed = random_on(8, allocation(4, 2), seed)
        sent = halo((2, 2, 2), (64, 64, 64))
        phases.append((sent, placed))
        seconds.append(seconds_of(Hockney(1e-6, 1e-9, 0, False, True), sent, placed, TREE))
    assert best_variant(Hockney(1e-6, 1e-9), phases, np.array(seconds), TREE).shared_links
