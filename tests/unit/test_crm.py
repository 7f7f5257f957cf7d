"""The thesis's own numbers of chapter 6 (BT) and section 9.2.1 (N-Body) reproduce.

Every table is transcribed as printed, with what in it contradicts itself. Computation times of the
initial signatures are not printed, so CRM_i cannot be fitted again: what is tested is what the
printed equations give, and what the rounding of their coefficients allows.
"""

from __future__ import annotations

import numpy as np
import pytest

from p3s.base.serialise import from_data, to_data
from p3s.costs.points import Point
from p3s.costs.types import (
    FALLING,
    REACHED,
    STEADY,
    UNKNOWN,
    FarPoint,
    PowerLaw,
    crm,
    fit_power,
    least_cost,
)

#: Table 6.4, class B: processes, instructions, cycles, L2 misses, CPI, ns.
TABLE_6_4 = (
    (16, 34_356_426, 27_621_512, 20_241, 0.803, 17_263_445),
    (25, 17_836_224, 14_324_977, 10_275, 0.803, 8_953_111),
    (36, 9_915_863, 7_861_580, 5_479, 0.792, 4_913_488),
    (64, 4_027_761, 3_104_163, 1_467, 0.770, 1_940_102),
    (81, 2_392_021, 1_721_033, 865, 0.719, 1_075_646),
    (100, 1_759_558, 1_265_527, 695, 0.719, 790_954),
)
#: Tables 6.5 and 6.7: name, count, measured ns, predicted ns, printed error in percent,
#: coefficient (digit, power of ten), exponent.
TABLE_6_5 = (
    ("BT 1", 1024, 1_941_784, 1_982_934, 2.11, 9, 10, -1.547),
    ("BT 2", 1024, 35_960_361, 39_114_740, 8.77, 1, 11, -1.132),
    ("BT 3", 1024, 165_862_020, 160_857_620, 3.01, 2, 11, -1.028),
    ("BT 4", 1024, 451_140, 480_522, 6.51, 3, 10, -1.593),
    ("BT 5", 1024, 2_214_673, 2_096_107, 5.35, 8, 10, -1.522),
    ("BT 6", 1024, 36_062_311, 39_114_740, 8.46, 1, 11, -1.132),
)
TABLE_6_7 = (
    ("CG 1", 4096, 2_698_523, 2_796_674, 3.63, 2, 10, -1.067),
    ("CG 2", 4096, 137_928, 149_985, 8.74, 3, 7, -0.637),
    ("CG 3", 4096, 344_297, 375_251, 8.99, 2, 7, -0.478),
    ("CG 4", 4096, 601_238, 562_501, 6.44, 8, 7, -0.596),
    ("LU 1", 4096, 51_549, 49_647, 3.83, 2, 8, -0.998),
    ("LU 2", 4096, 34_645, 32_573, 6.36, 4, 8, -1.132),
    ("SP 1", 1024, 165_110_327, 163_103_109, 1.21, 4, 11, -0.926),
    ("SP 2", 1024, 561_715, 598_590, 6.56, 4, 10, -1.635),
    ("SP 3", 1024, 240_359, 260_203, 8.25, 2, 10, -1.623),
    ("N-Body 1", 4096, 449_150, 430_921, 4.23, 2, 10, -0.975),
    ("QCDMPI 1", 2048, 16_428_976, 17_724_522, 7.88, 3, 13, -2.039),
    ("QCDMPI 2", 2048, 26_478_907, 25_170_124, 4.94, 5, 10, -0.996),
)
#: Table 9.5, the phase of N-Body at 512 processes, likewise.
TABLE_9_5 = ("N-Body 9.5", 512, 3_761_982_365, 3_825_096_457, 1.65, 8, 16, -2.702)
ROWS = {row[0]: row for row in (*TABLE_6_5, *TABLE_6_7, TABLE_9_5)}
#: Printed predictions that do not follow from the printed equation, whatever was rounded away, and
#: the coefficient that would give them: equation or prediction is misprinted.
NOT_BY_EQUATION = {"SP 1": 1.0e11, "SP 2": 5.0e10, "N-Body 1": 1.434e9, "QCDMPI 1": 1.0e14}
#: Printed errors that are relative to the predicted time; all others are to the measured one.
OF_PREDICTED = {"LU 1", "LU 2", "N-Body 1", "N-Body 9.5"}


def law_of(name: str) -> PowerLaw:
    _, _, _, _, _, digit, ten, b = ROWS[name]
    return PowerLaw(digit * 10.0**ten, b)


def allowed(digit: float, ten: int, b: float, n: int) -> tuple[float, float]:
    """Return the values at ``n`` that the rounding of "d*10^t" and of three decimals allows."""
    return (
        (digit - 0.5) * 10.0**ten * n ** (b - 0.0005),
        (digit + 0.5) * 10.0**ten * n ** (b + 0.0005),
    )


# ------------------------------------------------------------------ BT: weights and the far point


def test_the_walk_of_table_6_4_ends_at_100_processes():
    runs = [(row[0], row[2] / row[1]) for row in TABLE_6_4]
    assert [round(c, 3) for _, c in runs] == pytest.approx([row[4] for row in TABLE_6_4], abs=2e-3)
    assert least_cost(*zip(*runs, strict=True)) == (REACHED, 100)
    assert least_cost([row[0] for row in TABLE_6_4], [row[4] for row in TABLE_6_4]) == (
        REACHED,
        100,
    )
    # without the run at 100 the minimum is not known to be one
    assert least_cost(*zip(*runs[:5], strict=True)) == (FALLING, 81)


# ------------------------------------------------------------------ BT: the regressions


def test_crm_i_and_crm_c_at_1024_processes():
    # Table 6.6 gives the measured time as 1,941,754, Table 6.5 as 1,941,784: the source contradicts
    # itself; no error changes by more than 0.002 percent points.
    initial, calibrated = PowerLaw(7e10, -1.494), PowerLaw(9e10, -1.547)
    assert int(initial.value(1024)) == 2_226_947
    assert int(calibrated.value(1024)) == 1_982_934
    for measured in (1_941_754, 1_941_784):
        assert calibrated.value(1024) / measured - 1 == pytest.approx(0.0211, abs=0.00012)
        # printed 14.65 %; the printed numbers give 14.69 %: the source contradicts itself by 0.04
        assert initial.value(1024) / measured - 1 == pytest.approx(0.1465, abs=0.0005)
        low, high = (v / measured - 1 for v in allowed(7, 10, -1.494, 1024))
        assert low < 0.1465 < high and (low, high) == pytest.approx((0.0612, 0.2331), abs=0.0002)
        low, high = (v / measured - 1 for v in allowed(9, 10, -1.547, 1024))
        assert low < 0.0211 < high and (low, high) == pytest.approx((-0.0389, 0.0817), abs=0.0002)
    improved = 1 - (1_982_934 - 1_941_754) / (2_226_947 - 1_941_754)
    assert improved == pytest.approx(0.85, abs=0.01)  # "approximately 85 %"


def test_the_far_point_moves_the_printed_crm_i_towards_the_printed_crm_c():
    """Five points whose regression is CRM_i, and the far point: only their counts matter.

    A least-squares line over old points and a new one depends on the old ones through their counts
    and their line alone, so CRM_c can be computed from what is printed.
    """
    counts = [16, 36, 64, 81, 100]
    found = []
    for a in np.linspace(6.5e10, 7.5e10, 101):
        for b in np.linspace(-1.4945, -1.4935, 11):
            old = PowerLaw(a, b)
            new = fit_power([*counts, 1681], [*old.value(counts), 790_954])
            assert new.b < b and 790_954 < new.value(1681) < old.value(1681)
            assert new.value(1024) < old.value(1024)
            found.append(new)
    # The source contradicts itself: the exponent -1.547 is met, with 8.0e10 rather than 9e10 before
    # it, and 1,761,000 ns rather than 1,982,934 at 1024: the printed CRM_c is not this regression
    # of what is printed of CRM_i and of the far point.
    met = [law for law in found if abs(law.b + 1.547) <= 0.0005]
    assert met and all(7.8e10 < law.a < 8.2e10 for law in met)
    assert all(1.75e6 < law.value(1024) < 1.83e6 for law in found)


@pytest.mark.parametrize("name", ROWS)
def test_printed_predictions_and_errors(name):
    _, n, measured, predicted, error, digit, ten, b = ROWS[name]
    low, high = allowed(digit, ten, b, n)
    if name in NOT_BY_EQUATION:
        assert not low <= predicted <= high
        assert predicted * n**-b == pytest.approx(NOT_BY_EQUATION[name], rel=0.002)
    else:
        # The thesis predicted with the rounded coefficients it printed: every digit is met, cut off
        # at whole nanoseconds (in Table 9.5 six of the ten digits).
        assert low <= predicted <= high
        close = {"rel": 4e-7} if name == "N-Body 9.5" else {"abs": 1.0, "rel": 3e-9}
        assert law_of(name).value(n) == pytest.approx(predicted, **close)
    of = predicted if name in OF_PREDICTED else measured
    other = measured if name in OF_PREDICTED else predicted
    # printed errors are cut off or rounded at the second decimal
    assert 100 * abs(predicted - measured) / of == pytest.approx(error, abs=0.0101)
    if name in OF_PREDICTED:
        assert abs(100 * abs(predicted - measured) / other - error) > 0.02


# ------------------------------------------------------------------ N-Body, section 9.2.1


def test_crm_c_of_n_body_at_512_processes():
    law = PowerLaw(8e16, -2.702)
    assert law.value(512) == pytest.approx(3_825_096_457, rel=4e-7)
    # printed 1.65 %, which is of the predicted time; of the measured one it is 1.68 %
    assert (law.value(512) - 3_761_982_365) / law.value(512) == pytest.approx(0.0165, abs=5e-5)
    low, high = allowed(8, 16, -2.702, 512)
    assert low < 3_825_096_457 < high and low < 3_761_982_365 < high


# ------------------------------------------------------------------ the method


def test_a_power_law_is_found_and_kept():
    law = fit_power([2, 4, 8, 16], [3e9 * n**-1.25 for n in (2, 4, 8, 16)])
    assert (law.a, law.b) == pytest.approx((3e9, -1.25))
    assert from_data(PowerLaw, to_data(law)) == law
    assert fit_power([4, 4], [1.0, 2.0]) is None
    assert fit_power([4, 8], [1.0, 0.0]) is None and fit_power([], []) is None


@pytest.mark.parametrize(
    ("costs", "before", "wanted"),
    [
        ((1.0, 0.9, 0.8), 0.0, (FALLING, 12)),
        ((1.0, 0.9, 0.9), 0.0, (REACHED, 12)),
        ((1.0, 0.8, 0.85), 0.0, (REACHED, 8)),
        ((1.0,), 0.0, (UNKNOWN, 4)),
        ((0.5, 0.502, 0.499), 0.0, (STEADY, 12)),
        ((0.5, 0.5), 1.0, (REACHED, 8)),  # the study's own cost was twice that
        ((0.8, 0.9, 1.0), 0.0, (STEADY, 4)),  # more processes share the memory's bandwidth
        ((1.0, 1.0, 0.9, 0.7), 0.0, (FALLING, 16)),
        ((0.0, 0.0), 1.0, (UNKNOWN, None)),
        ((), 0.0, (UNKNOWN, None)),
    ],
)
def test_the_walk_says_when_the_minimum_was_reached(costs, before, wanted):
    assert least_cost([4, 8, 12, 16][: len(costs)], costs, before) == wanted


def _point(n, y, source="own", traced=None, work=1e9, ranks=1):
    return Point(("", ""), 1, float(n), work, work, y, y, ranks, 3, source, traced or int(n))


def test_crm_of_a_phase_takes_the_farthest_minimum():
    own = [_point(n, 8e9 / n, work=1e10 / n) for n in (4, 8, 16)]
    far = [
        _point(n, y, "far/w1", traced, 1e10 / n)
        for n, y, traced in ((32, 2.3e8, 4), (64, 1.0e8, 8), (128, 5.0e7, 16))
    ]
    found = crm([*own, *far])
    assert (found.initial.a, found.initial.b) == pytest.approx((8e9, -1.0))
    assert found.far == FarPoint("far/w1", 16, 128.0, 5.0e7, True) and found.why is None
    expected = fit_power([4, 8, 16, 128], [2e9, 1e9, 5e8, 5e7])
    assert (found.calibrated.a, found.calibrated.b) == pytest.approx((expected.a, expected.b))
    unmatched = [p._replace(n=None) for p in far]
    assert crm([*own, *unmatched]).calibrated is None


def test_crm_stops_at_crm_i_where_the_thesis_does():
    own = [_point(n, 8e9 / n) for n in (4, 8, 16)]
    assert "no run of a smaller workload" in crm(own).why
    assert crm(own[:1]).initial is None and "fewer than two" in crm(own[:1]).why
