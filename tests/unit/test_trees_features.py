"""Variables of a run: of its workload, and of the caches that its threads share."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from p3s.base.errors import P3SError, UsageError
from p3s.methods.baseline.trees.features import Caches, counters, derived, read_caches


def regular(sockets: int, l3: int, l2: int, cores: int) -> Caches:
    """Return a node of equal parts: ``l3`` a socket, ``l2`` of each of them, ``cores`` of each."""
    at = np.arange(sockets * l3 * l2 * cores)
    return Caches(at // (l3 * l2 * cores), at // (l2 * cores), at // cores)


CLUSTER, NUMA = regular(1, 1, 2, 2), regular(4, 2, 4, 2)


def test_of_the_workload() -> None:
    found = derived(np.array([600.0]), np.array([3.0]), np.array([2.0]))
    assert {name: float(column[0]) for name, column in found.items()} == {
        "w2": 60000.0,
        "w1": 100.0,
        "workers": 3.0,
        "workload": 600.0,
        "local_workld": 200.0,
        "threads": 2.0,
    }


@pytest.mark.parametrize(
    ("threads", "far", "shared"),
    [(3, False, (2, 1)), (3, True, (2, 1)), (2, False, (2, 0)), (2, True, (1, 1))],
)
def test_four_cores_with_two_l2(threads: int, far: bool, shared: tuple[int, int]) -> None:
    found = counters(CLUSTER, 1, threads, far)
    assert (found["l2_0"], found["l2_1"]) == shared


def test_sixty_four_cores() -> None:
    """The NUMA node of section 5.3: twelve processes of two threads, four per socket."""
    found = counters(NUMA, 12, 2)
    assert [found[f"s{i}"] for i in range(4)] == [4, 4, 4, 0]
    assert [found[f"pl3_{i}"] for i in range(8)] == [2, 2, 2, 2, 2, 2, 0, 0]
    assert [found[f"tl3_{i}"] for i in range(8)] == [4, 4, 4, 4, 4, 4, 0, 0]
    assert [found[f"l2_{i}"] for i in range(0, 24, 2)] == [2] * 12, "a pair shares every level"
    far = counters(NUMA, 12, 2, far=True)
    assert [far[f"s{i}"] for i in range(4)] == [3] * 4
    assert max(far[f"l2_{i}"] for i in range(32)) == 1
    one_a_socket = counters(NUMA, 3, 16)
    assert [one_a_socket[f"s{i}"] for i in range(4)] == [1, 1, 1, 0]
    assert [one_a_socket[f"pl3_{i}"] for i in range(8)] == [1, 1, 1, 1, 1, 1, 0, 0]


def test_threads_that_find_no_core() -> None:
    with pytest.raises(UsageError, match="5 processes of 1 thread need 5 cores, the node has 4"):
        counters(CLUSTER, 5, 1)


def test_hwloc(tmp_path: Path) -> None:
    core = '<object type="L2Cache"><object type="Core"/><object type="Core"/></object>'
    part = f'<object type="L3Cache">{core * 2}</object>'
    text = f'<object type="Package">{part * 2}</object>'
    path = tmp_path / "n.xml"
    path.write_text(
        f'<topology version="2.0"><object type="Machine">{text * 2}</object></topology>'
    )
    found, same = read_caches(path), regular(2, 2, 2, 2)
    assert isinstance(found, Caches) and len(found) == 16
    for level in ("socket", "l3", "l2"):
        assert getattr(found, level).tolist() == getattr(same, level).tolist()
    path.write_text("<topology><object type='Core'/><object type='Core'/></topology>")
    assert read_caches(path).l2.tolist() == [0, 1], "a cache of its own each"
    with pytest.raises(P3SError, match="tells of no cores"):
        path.write_text("<topology/>")
        read_caches(path)
