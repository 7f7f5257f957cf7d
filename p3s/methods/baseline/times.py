"""Run times: every run with its count, and the points that are fitted."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from p3s.base.errors import P3SError, UsageError
from p3s.base.serialise import NotNegative, ProcessCount
from p3s.base.text import processes
from p3s.laws.statistics import Number, relative_error


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
    errors: dict[int, Number] = {}
    for n in sorted({*predicted, *observed}):
        predicted_s, runs = predicted.get(n), observed.get(n, ())
        errors[n] = None if predicted_s is None or not runs else against_least(predicted_s, runs)
    return errors


TOTAL = "total"
#: What a run's time may be: all of it, or the parts that are extrapolated separately.
COMPONENTS = (TOTAL, "compute", "comm")
#: Seconds that a run may take: a nanosecond, and longer than any machine lasts.
_SHORTEST, _LONGEST = 1e-9, 1e12
REDUCTIONS: dict[str, Callable[[Sequence[float]], float]] = {
    "min": min,
    "median": statistics.median,
    "mean": statistics.fmean,
}


@dataclass(frozen=True)
class RunTime:
    """One run: ``n`` processes, ``seconds`` (None: it gave none, ``why`` says why).

    ``inputs`` are its numeric input parameters, ``labels`` what else tells series apart (program,
    machine); ``why`` is empty for a run that counts.
    """

    n: int
    seconds: float | None
    repeat: int = 0
    inputs: tuple[tuple[str, float], ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    component: str = TOTAL
    why: str = ""
    exit_code: int | None = None
    started: str = ""

    @property
    def valid(self) -> bool:
        """Whether it counts."""
        return not self.why and self.seconds is not None


@dataclass(frozen=True)
class Point:
    """What is fitted: ``seconds`` of the repeats at one count and one set of inputs."""

    n: ProcessCount
    seconds: NotNegative
    repeats: tuple[NotNegative, ...]
    inputs: tuple[float, ...] = field(default=(), metadata={"always": True})

    def valid(self) -> None:
        """Raise ValueError for a time of 0."""
        if not self.repeats or min(self.seconds, *self.repeats) <= 0:
            raise ValueError("a time is none")


@dataclass(frozen=True)
class Series:
    """The points of one program on one machine, by count; ``inputs`` names their inputs.

    ``aside`` are the runs that do not count, ``notes`` sentences about the times.
    """

    points: tuple[Point, ...]
    inputs: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    reduction: str = "min"
    aside: tuple[RunTime, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def counts(self) -> list[int]:
        """Distinct counts, ascending."""
        return sorted({point.n for point in self.points})


def series_of(
    runs: Iterable[RunTime],
    *,
    where: Mapping[str, str] | None = None,
    reduction: str = "min",
    least: int = 1,
    most: int | None = None,
    component: str = TOTAL,
    notes: Sequence[str] = (),
) -> Series:
    """Reduce the valid runs of one component to a series; ``where`` keeps rows with these values.

    ``least`` and ``most`` bound the counts. Labels must be of one kind; inputs with one value only
    are dropped, since nothing depends on them. Errors: P3SError, one line, for nothing left, one
    count only, or several kinds of labels; UsageError for a reduction that is not known.
    """
    reduction_of(reduction)
    mine = [run for run in runs if run.component == component]
    mine = select_runs(mine, where or {})
    if not mine:
        filters = ", ".join(f"{key}={value}" for key, value in (where or {}).items())
        raise P3SError(f"no run times of {component}" + (f" with {filters}" if filters else ""))
    aside = [run for run in mine if not run.valid]
    good = [run for run in mine if run.valid and least <= run.n <= (most or run.n)]
    if not good:
        raise P3SError(f"no run that counts from {processes(least)} on" + _first_reason(aside))
    counts = sorted({run.n for run in good})
    if len(counts) < 2:
        repeated = f", {len(good)} times" if len(good) > 1 else ""
        raise P3SError(
            f"run times at one count only ({processes(counts[0])}{repeated}); repeats do not say "
            "how the time depends on the count: give at least two counts, better five"
            + _first_reason(aside)
        )
    labels = _labels(good)
    names = _varying_inputs(good)
    return Series(
        tuple(_points(good, names, reduction)), names, labels, reduction, tuple(aside), tuple(notes)
    )


def select_runs(runs: Iterable[RunTime], where: Mapping[str, str]) -> list[RunTime]:
    """Return the runs whose inputs and labels have these values."""
    return [run for run in runs if _fits(run, where)]


def _fits(run: RunTime, where: Mapping[str, str]) -> bool:
    inputs, labels = dict(run.inputs), dict(run.labels)
    for key, value in where.items():
        if key in labels:
            if labels[key] != value:
                return False
        elif key in inputs:
            try:
                if inputs[key] != float(value):
                    return False
            except ValueError:
                return False
        else:
            return False
    return True


def _first_reason(aside: Sequence[RunTime]) -> str:
    return f" ({len(aside)} set aside, the first: {aside[0].why})" if aside else ""


def _labels(runs: Sequence[RunTime]) -> dict[str, str]:
    label_sets = sorted({run.labels for run in runs})
    if len(label_sets) > 1:
        one, other = dict(label_sets[0]), dict(label_sets[1])
        key = next(key for key in {**one, **other} if one.get(key) != other.get(key))
        raise P3SError(
            f"run times of different kinds: {key} is {one.get(key)!r} and {other.get(key)!r}; "
            f"choose one: --where {key}={other.get(key) or one.get(key)}"
        )
    return dict(label_sets[0])


def inputs_of(runs: Sequence[RunTime]) -> list[str]:
    """Return the names of the inputs of runs; P3SError where one has others."""
    names = [name for name, _ in runs[0].inputs]
    for run in runs:
        if [name for name, _ in run.inputs] != names:
            raise P3SError(
                f"run times at {run.n} processes have other inputs than the first; "
                "every run needs all of them"
            )
    return names


def _varying_inputs(runs: Sequence[RunTime]) -> tuple[str, ...]:
    return tuple(
        name
        for i, name in enumerate(inputs_of(runs))
        if len({run.inputs[i][1] for run in runs}) > 1
    )


def reduction_of(name: str) -> Callable[[Sequence[float]], float]:
    """Return what reduces repeats; UsageError for a name that is not known."""
    if name not in REDUCTIONS:
        raise UsageError(f"{name}: no reduction of repeats; one of {', '.join(REDUCTIONS)}")
    return REDUCTIONS[name]


def _points(runs: Sequence[RunTime], names: Sequence[str], reduction: str) -> list[Point]:
    times_of: dict[tuple[Any, ...], list[float]] = {}
    for run in runs:
        values = dict(run.inputs)
        assert run.seconds is not None
        key = (run.n, tuple(values[name] for name in names))
        times_of.setdefault(key, []).append(run.seconds)
    reduce = REDUCTIONS[reduction]
    return [
        Point(n, float(reduce(times)), tuple(times), inputs)
        for (n, inputs), times in sorted(times_of.items())
    ]


def from_mapping(times: Mapping[int, Sequence[float] | float]) -> Series:
    """Return the series of ``{count: run times}``; P3SError as :func:`series_of`."""
    runs = []
    for n, values in times.items():
        for i, value in enumerate([values] if isinstance(values, (int, float)) else values):
            check_time(float(value), f"{n} processes")
            runs.append(RunTime(int(n), float(value), i))
    return series_of(runs)


def check_time(seconds: float, where: str) -> None:
    """Raise P3SError, naming ``where``, for a time that no run can have taken."""
    if _SHORTEST <= seconds <= _LONGEST:
        return
    problem = (
        "no number"
        if seconds != seconds
        else "zero"
        if seconds == 0
        else "negative"
        if seconds < 0
        else "no finite number"
        if seconds == float("inf")
        else "longer than any run"
        if seconds > _LONGEST
        else "shorter than any run"
    )
    raise P3SError(
        f"{where}: the time is {problem} ({seconds:g} s); a run takes time: leave the row "
        "out, or its time empty where the run failed"
    )


@dataclass(frozen=True)
class Times:
    """All runs of a source, sentences about them, and what else it tells (command, machine)."""

    runs: tuple[RunTime, ...]
    notes: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
