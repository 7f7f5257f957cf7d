"""No package has more lines than ARCHITECTURE.md's table allows."""

from __future__ import annotations

import budgets
import pytest
from budgets import Size


def test_no_package_exceeds_its_budget() -> None:
    table, there = budgets.budgets(), budgets.sizes(parsed=False)
    assert list(table) == list(there), "make budgets"
    over = {
        name: f"{size.lines - table[name].lines} lines too many: delete as many"
        for name, size in there.items()
        if size.lines > table[name].lines
    }
    assert not over


def test_the_tool_only_lowers(monkeypatch: pytest.MonkeyPatch) -> None:
    there = {"p3s.model": Size(90, 40), "p3s.base.text": Size(30, 12), "p3s.fresh": Size(7, 3)}
    monkeypatch.setattr(budgets, "sizes", lambda: there)
    monkeypatch.setattr(
        budgets, "budgets", lambda: {"p3s.model": Size(100, 39), "p3s.base.text": Size(20, 12)}
    )
    lowered = {"p3s.model": Size(90, 39), "p3s.base.text": Size(20, 12), "p3s.fresh": Size(7, 3)}
    assert budgets.lowered() == lowered
