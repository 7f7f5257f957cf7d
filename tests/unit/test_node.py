"""Nodes as threads see them: from short texts and from what hwloc writes."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_inside import xml

from p3s.base.errors import P3SError, UsageError
from p3s.machine.topology.inside import Node, read_node


def test_short_texts_say_sockets_domains_and_cores() -> None:
    node = read_node("2x4x8+smt2+256GB")
    assert (node.cores, node.slots, node.smt) == (64, 128, 2)
    assert node.domains == (8,) * 8 and node.sockets == (4, 4) and node.memory == 256 * 2**30
    assert node.domain_of.tolist()[::8] == list(range(8)) and node.socket_of.tolist()[31:33] == [
        0,
        1,
    ]
    assert read_node("2x32").domains == (32, 32) and read_node("2x32").memory is None
    assert [read_node(text).text for text in ("2x32", "2x4x8+smt2")] == ["2x32", "2x4x8+smt2"]


@pytest.mark.parametrize("text", ["0x4", "2x0x8", "2x4+smt0", "2x4x8 cores", "999999x999999"])
def test_texts_that_are_no_node(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_node(text)
    assert "\n" not in str(caught.value) and "2x4x8" in str(caught.value)


def test_hwloc_tells_domains_caches_hardware_threads_and_memory(tmp_path: Path) -> None:
    path = tmp_path / "n.xml"
    text = xml(2, 2, 3).replace(
        '<object type="NUMANode"', '<object type="NUMANode" local_memory="512"'
    )
    path.write_text(text)
    node = read_node(str(path))
    assert node.domains == (6, 6) and node.caches == (3,) * 4 and node.sockets == (1, 1)
    assert node.smt == 2 and node.memory == 1024.0


def test_memory_inside_of_which_cores_are_as_hwloc_1_has_it(tmp_path: Path) -> None:
    core = '<object type="Core"><object type="PU"/></object>'
    domain = f'<object type="NUMANode" local_memory="8">{core * 2}</object>'
    socket = f'<object type="Socket">{domain * 2}</object>'
    path = tmp_path / "o.xml"
    path.write_text(f"<topology><object type='Machine'>{socket * 2}</object></topology>")
    node = read_node(str(path))
    assert node.domains == (2,) * 4 and node.sockets == (2, 2) and node.memory == 32.0


def test_parts_of_a_node_hold_the_same_cores() -> None:
    with pytest.raises(P3SError, match="do not hold the same cores"):
        Node("n", (4, 4), (2,), (4, 3))
    assert Node("n", (4, 3), (1, 1), (4, 3)).text == "7 cores in 2 memory domains"
