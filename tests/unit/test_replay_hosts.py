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


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a,,b",
        "n[0-3",
        "n0-3]",
        "n[[0]]",
        "n[]",
        "n[3-0]",
        "n[a-b]",
        "-x",
        "a b",
        "n[0-99999999]",
        "n[0-999]x[0-9999]",
        "a;rm",
        "$(a)",
        "n[1-]",
        ",",
        "n[0-1],[",
    ],
)
def test_what_is_no_list(text: str) -> None:
    with pytest.raises(P3SError, match="hosts") as error:
        expand_hosts(text)
    assert "\n" not in str(error.value)
