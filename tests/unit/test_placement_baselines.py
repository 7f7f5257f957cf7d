"""Baselines by hand."""

from __future__ import annotations

import numpy as np
import pytest

from p3s.base.errors import P3SError
from p3s.machine.topology.read import read_fabric
from p3s.methods.placement.phases import traffic
from p3s.methods.placement.training.costs import Hockney, fit_ping_pong, seconds_of
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
    assert seconds_of(PLAIN, traffic(8, [], [], []), placed, TREE) == 0
    # Inside a node nothing is far.
    assert seconds_of(PLAIN, traffic(8, [0, 1], [1, 0], 4), placed, TREE) == 4
