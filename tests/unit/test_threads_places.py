"""Where threads lie, and what they share there."""

from __future__ import annotations

import numpy as np

from p3s.machine.topology.inside import read_node
from p3s.methods.threads.places import cores_of, places, same_places
from p3s.methods.threads.types import uses

NODE = read_node("2x2x4+smt2")


def test_close_threads_are_packed_and_far_ones_spread() -> None:
    assert cores_of(NODE, 2, 2, False).tolist() == [[0, 1], [2, 3]]
    assert cores_of(NODE, 2, 2, True).tolist() == [[0, 4], [8, 12]]
    assert cores_of(NODE, 32, 1, False).ravel().tolist() == [k // 2 for k in range(32)]
    assert same_places(NODE, 8, 2) and not same_places(NODE, 2, 4)


def test_threads_share_domains_sockets_and_cores() -> None:
    found = places(
        uses([2, 2, 1, 32], [2, 2, 16, 1], [2, 2, 1, 32], [False, True, False, False]), NODE
    )
    assert found.crowd.tolist() == [4, 1, 4, 8] and found.node_crowd.tolist() == [4, 4, 16, 32]
    assert found.share.tolist() == [1, 1, 1, 2] and found.active.tolist() == [0.5, 0.25, 1, 1]
    np.testing.assert_allclose(found.remote, [0, 0.5, 0.75, 0])
    np.testing.assert_allclose(found.remote_socket, [0, 0, 0.5, 0])


def test_fewer_processes_than_fit_on_a_node() -> None:
    few, many = places(uses([2, 4], [1, 1], [16, 16]), NODE).node_crowd
    assert (few, many) == (2, 4)
