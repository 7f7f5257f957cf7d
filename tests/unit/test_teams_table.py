"""What threads did at one count, as a table: sums over places."""

from __future__ import annotations

import numpy as np
import pytest

from p3s.signature.teams import COLUMNS, Teams


def _teams(*rows: dict[str, int]) -> Teams:
    """Return a table with a row per place of one rank."""
    places = tuple((str(k), "MPI_Barrier") for k in range(len(rows)))
    values = np.array([[row.get(name, 0) for name in COLUMNS[2:]] for row in rows]).reshape(
        len(rows), len(COLUMNS) - 2
    )
    return Teams(places, np.zeros(len(rows), int), np.arange(len(rows)), values)


def test_imbalance_is_the_longest_thread_over_the_mean() -> None:
    found = _teams({"busy_ns": 8000, "longest_ns": 3000, "team": 4})
    assert found.imbalance() == pytest.approx(1.5)
