"""Eq. 8.1 on the thesis's own numbers: its phase times and weights give its run times.

The source cuts digits as often as it rounds them (17.0683 is printed as 17.06), so one unit in the
last printed place is allowed for products and sums, half a unit for times of phases.
"""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from handmade import phase, put_model, put_replay, put_scaled
from thesis_tables import TABLES, Half, Table

from p3s.base.study import Study
from p3s.pipeline.predicting import predict_study as predict
from p3s.predict.estimates import Estimation

#: Share of a phase's time that stands in the replay here; the tables do not tell it apart.
COMM = Decimal("0.1")
HALVES = [
    pytest.param(table, getattr(table, name), id=f"{table.program}-{name}")
    for table in TABLES
    for name in ("p3s", "pas2p")
]


def unit(text: str) -> Decimal:
    """Return one unit in the last place that is printed."""
    return Decimal(1).scaleb(int(Decimal(text).as_tuple().exponent))


def phase_times(half: Half) -> list[tuple[int, int, Decimal, Decimal]]:
    """Return (phase, weight, seconds of one turn, how far they may be rounded) of every row.

    Where time and product contradict each other, the one that the printed sum was made with.
    """
    found = []
    for number, weight, one, product in half.rows:
        if half.off.get(number) == "product":
            found.append((number, weight, Decimal(product) / weight, unit(product) / weight))
        else:
            found.append((number, weight, Decimal(one), unit(one) / 2))
    return found


@pytest.mark.parametrize(("table", "half"), HALVES)
def test_phase_times_and_weights_give_the_printed_run_time(
    tmp_path: Path, table: Table, half: Half
) -> None:
    study = Study.create(tmp_path / "study", ["mpiexec", "-n", "{np}", "./app"])
    put_model(study, counts=(16, 64))
    times = phase_times(half)
    rows, comm = [], []
    for number, weight, seconds, _ in times:
        ns = float(seconds * 10**9)
        # the phases take turns in which rank they need longest on
        slow, fast = (number % 2, 1 - number % 2)
        rows += [(fast, number, weight, 0.5 * ns), (slow, number, weight, ns * float(1 - COMM))]
        comm.append((slow, number, *(weight * ns * float(COMM),) * 3))
    put_scaled(study, table.n, rows, [phase(number, weight) for number, weight, _, _ in times])
    put_replay(study, table.n, comm)
    row = predict(study, [table.n], Estimation("thesis")).counts[0]
    allowed = sum((weight * error for _, weight, _, error in times), Decimal(half.loose))
    printed = half.sum or half.pet
    assert row.n == table.n and len(row.phases) == len(half.rows)
    assert row.time_s == pytest.approx(float(printed), abs=float(allowed + unit(printed)))
    for entry, (_, weight, seconds, _) in zip(row.phases, times, strict=True):
        assert entry.time_s == pytest.approx(float(weight * seconds), rel=1e-9)
        assert entry.comm_s == pytest.approx(0.1 * entry.time_s, rel=1e-9)
