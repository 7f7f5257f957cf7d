"""Host lists."""

from __future__ import annotations

import pytest

from p3s.base.errors import P3SError
from p3s.base.host.hosts import expand_hosts


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("a", ["a"]),
        ("n0, n1", ["n0", "n1"]),
        ("n[0-3,7]", ["n0", "n1", "n2", "n3", "n7"]),
        ("n[008-011]", ["n008", "n009", "n010", "n011"]),
        ("r[0-1]n[0,2].local,x", ["r0n0.local", "r0n2.local", "r1n0.local", "r1n2.local", "x"]),
        ("a,a", ["a", "a"]),
        ("[1-2]x", ["1x", "2x"]),
        ("10.0.0.1,fe80::1", ["10.0.0.1", "fe80::1"]),
    ],
)
def test_lists(text: str, hosts: list[str]) -> None:
    assert expand_hosts(text) == hosts


def test_no_host_at_all_is_no_list() -> None:
    with pytest.raises(P3SError, match="hosts"):
        expand_hosts("")
