"""Errors against repeated runs, and what is said of many of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from p3s.base.scores import Number, relative_error


def against_least(predicted: float, repeats: Iterable[float]) -> float:
    """Return the relative error against the least of repeated runs.

    Disturbances only make a run slower, so the least is what the program needs (Kazmina and
    Antonov). ValueError without repeats.
    """
    return relative_error(predicted, min(repeats))


def spread(repeats: Sequence[float]) -> float:
    """Return (largest - least) / least of repeated runs, 0 for one; ValueError unless all > 0."""
    least = min(repeats)
    if not least > 0:
        raise ValueError(f"{least!r} is no run time")
    return (max(repeats) - least) / least


def by_target(
    predicted: Mapping[int, Number], observed: Mapping[int, Sequence[float]]
) -> dict[int, Number]:
    """Return the error at every count of either, against the least run; None where one is not."""
    found: dict[int, Number] = {}
    for n in sorted({*predicted, *observed}):
        told, runs = predicted.get(n), observed.get(n, ())
        found[n] = None if told is None or not runs else against_least(told, runs)
    return found
