"""Laws of the thesis for its programs, found again from small counts (tables 5.2 to 5.6)."""

from __future__ import annotations

import pytest

from p3s.laws.lawfinder import EXACT, find_law
from p3s.laws.worklaws import fit_work

#: BT class D, phase 1: processes -> weight, and instructions of a process in one turn.
BT_WEIGHT = {16: 1255, 25: 1506, 36: 1757, 49: 2008, 64: 2259, 81: 2510, 100: 2761}
BT_INSTRUCTIONS = {16: 1_539_358_893, 64: 213_799_791, 100: 111_953_973}


def test_weight_of_bt():
    found = find_law(BT_WEIGHT, kind="count")
    assert found.verdict == EXACT
    assert [found.value(n) for n in (1024, 1600, 1681)] == [8283, 10_291, 10_542]


def test_work_of_bt_is_the_same_at_every_count():
    total = [n * BT_WEIGHT[n] * per_turn for n, per_turn in BT_INSTRUCTIONS.items()]
    law = fit_work(list(BT_INSTRUCTIONS), total)
    assert float(law.value(1024)) == pytest.approx(3.091e13, rel=1e-3)
    assert [(a, b) for _, a, b in law.terms] == [(0, 0)]


@pytest.mark.parametrize(
    ("points", "far", "value"),
    [
        ({16: 159, 32: 318, 64: 636}, 512, 5088),  # N-Body, weight
        ({16: 8_000_000, 32: 4_000_000, 64: 2_000_000}, 512, 250_000),  # N-Body, bytes
        ({16: 1200, 32: 1400, 64: 1600, 128: 1800}, 4096, 2800),  # Sweep3D, weight
        ({16: 2, 64: 3, 256: 4}, 4096, 6),  # CG, partners of a rank
    ],
    ids=["N-Body weight", "N-Body bytes", "Sweep3D weight", "CG partners"],
)
def test_laws_of_the_other_programs(points, far, value):
    found = find_law(points, kind="count")
    assert found.value(far) == value
