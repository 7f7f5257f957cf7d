"""`p3s phases --thesis`: the phases as the thesis finds them, beside the loops."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from commands import cli


@pytest.fixture
def study(named: Callable[[str], Path]) -> str:
    """A ring with a sum in each of 40 turns, at 2 and 4 ranks."""
    return str(named("ITERATED"))


def test_weights_are_those_of_the_loops(study: str) -> None:
    cli("phases", study, "--thesis", out="Phases of the thesis at 4 processes")
    data = cli("phases", study, "--thesis", "-n", "2", "--json").data
    assert data["schema"] == "p3s.phases.thesis" and data["np"] == 2
    relevant = [p for p in data["phases"] if p["relevant"]]
    assert sum(p["weight"] for p in relevant if p["loop_phase"] == 1) == 40
    assert sum(p["share"] for p in data["phases"]) == pytest.approx(1.0, abs=0.02)


def test_a_stricter_likeness_is_a_setting(study: str) -> None:
    data = cli("phases", study, "--thesis", "--similar", "0,50%,60,100%", "--json").data
    assert data["settings"] == {"volume": 0.0, "compute": 0.5, "events": 0.6, "relevance": 1.0}
    assert not any(p["relevant"] for p in data["phases"] if p["share"] < 1)
