"""The baseline's band beside a prediction: what it is made of, where the two disagree, and why."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from made_predictions import count_at, made_prediction, phase_at, record

from p3s.base.errors import P3SError
from p3s.methods.baseline.agreement import Band, band, beside
from p3s.predict.types import Prediction

COUNTS = (4, 8, 16, 32, 64, 128, 256, 512)


def counts_of(found: Band) -> tuple[int, ...]:
    return tuple(each.n for each in found.said)


def width(found: Band) -> float:
    low, high = found.said[0].ends
    return high / low


def falling(n: int) -> float:
    return 0.2 + 100.0 / n


def prediction_of(times: dict[int, float], **parts: dict[int, float]) -> Prediction:
    """Return a prediction of two phases with these times."""
    rows = []
    for n, time in times.items():
        second = parts.get("second", {}).get(n, 0.1 * time)
        compute = parts.get("compute", {}).get(n, 100.0 / n)
        row = count_at(
            n,
            phase_at(0, "halo", time_s=time - second),
            phase_at(1, "Allreduce", time_s=second),
            **dict.fromkeys(("time_s", "low_s", "high_s", "model_s"), time),
            measured=n <= 16,
            measured_s=time if n <= 16 else None,
            time_from="measured" if n <= 16 else "model",
            compute_s=compute,
            comm_s=time - compute,
            waiting_s=parts.get("waiting", {}).get(n, 0.0),
        )
        rows.append(row)
    return replace(record(), counts=tuple(rows), traced_counts=(4, 8, 16))


def test_a_band_holds_what_the_times_say() -> None:
    found = band({n: [falling(n), 1.1 * falling(n)] for n in (4, 8, 16, 32)}, COUNTS)
    assert counts_of(found) == COUNTS and found.trained == (4, 8, 16, 32)
    for n in COUNTS:
        said = found.at(n)
        assert said is not None
        (low, high), mid = said.ends, said.seconds
        assert 0 < low <= mid <= high and mid == pytest.approx(falling(n))
    assert found.at(5) is None
    text = found.sentence
    assert "4, 8, 16 and 32 processes" in text and "16 times the largest" in text
    assert "512 processes" in text


def test_counts_of_a_band_default_to_doublings() -> None:
    assert counts_of(band({4: 1.0, 6: 0.8, 8: 0.7})) == (4, 6, 8, 16, 32, 64)


def test_a_band_is_wide_where_forms_cannot_be_told_apart() -> None:
    few = band({4: falling(4), 8: falling(8), 16: falling(16) * 1.01}, [512])
    many = band({n: falling(n) * (1 + 0.005 * (-1) ** n) for n in range(4, 65, 3)}, [512])
    assert width(few) > width(many)


@pytest.mark.parametrize(
    "times", [{}, {4: 1.0}, {4: [1.0, 1.0]}, {4: 1.0, 8: -1.0}, {4: 1.0, 8: math.nan}]
)
def test_no_band(times: dict) -> None:
    with pytest.raises(P3SError):
        band(times)


@pytest.mark.parametrize("phases", [1, 3, 40])
@pytest.mark.parametrize("representative", [True, False])
def test_beside_made_predictions(phases: int, representative: bool) -> None:
    found = beside(record(made_prediction(COUNTS, phases, representative=representative)))
    assert found.band is not None and counts_of(found.band) == COUNTS
    assert found.band.measured == representative
    assert ("run times" if representative else "predicted times") in found.sentence
    assert all(text.endswith(".") for text in found.sentences)


@pytest.mark.parametrize(
    "prediction",
    [
        made_prediction((4,), measured=[4]),
        made_prediction((4, 64), measured=[4]),
        made_prediction((64, 128), measured=[]),
    ],
)
def test_beside_predictions_with_too_little(prediction: dict) -> None:
    found = beside(record(prediction))
    assert found.band is None and found.disagreements == ()
    assert len(found.sentences) == 1 and "fewer than two counts" in found.sentence


def test_where_the_two_agree() -> None:
    found = beside(prediction_of({n: falling(n) for n in COUNTS}))
    assert found.disagreements == ()
    assert "differ by at most 25.0 %" in found.sentences[1]
