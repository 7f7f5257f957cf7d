"""Whether runs with several numbers of threads have the same messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from p3s.base.settings import THREADS
from p3s.costs.parameters.fit import summary
from p3s.model.compare import compare, overlap, true_collectives, true_files, true_triples
from p3s.model.comparison import Comparison, Summary, Weights
from p3s.model.types import Model
from p3s.signature.tables import PointTable


def with_threads(rest: str, threads: int) -> str:
    """Return the name of a setting: that of the input's values, and threads."""
    return f"{rest},{THREADS}={threads}" if rest else f"{THREADS}={threads}"


@dataclass(frozen=True)
class ThreadCheck:
    """The messages of a run with other threads beside those with the fewest.

    name: the setting; equal: whether messages, collectives and weights are all the same; alike:
    whether the same messages are sent and only how often differs, as where iterations go on until
    a sum is small whose terms threads add in another order. summary: "predicted" is the run with
    the fewest threads, or where none has this count what the model says of it.
    """

    name: str
    threads: int
    n: int
    equal: bool
    summary: Summary
    alike: bool = False


def check_messages(
    rest: str, tables: Mapping[int, Mapping[int, PointTable]], base: int, model: Model
) -> list[ThreadCheck]:
    """Compare the runs of a setting at all numbers of threads with those of the base's.

    rest: name of the input's own values, "" where there are none; tables: by threads and count;
    model: of the base's threads, for counts that they did not run with.
    """
    others = {threads: by_n for threads, by_n in tables.items() if threads != base}
    out = []
    for n in sorted({n for by_n in others.values() for n in by_n}):
        first = tables.get(base, {}).get(n)
        base_one = compare(model, first) if first is not None else None
        for threads, table in ((t, by_n[n]) for t, by_n in others.items() if n in by_n):
            compared, alike = compare(model, table), False
            if first is not None and base_one is not None:
                compared, alike = (_beside(compared, table, base_one, first), _alike(table, first))
            report = summary(compared)
            name = with_threads(rest, threads)
            out.append(ThreadCheck(name, threads, n, report.all_equal, report, alike))
    return sorted(out, key=lambda check: (check.threads, check.n))


def _beside(
    comparison: Comparison, table: PointTable, base_comparison: Comparison, first: PointTable
) -> Comparison:
    """Return a comparison with another run of the count instead of the model.

    What the model itself misses is no matter of threads.
    """
    each = tuple(
        replace(mine, predicted=base.true)
        for mine, base in zip(comparison.weights.each, base_comparison.weights.each, strict=True)
    )
    same = sum(weight.true == weight.predicted for weight in each)
    return replace(
        comparison,
        p2p_triples=overlap(true_triples(table), true_triples(first)),
        collectives=overlap(true_collectives(table), true_collectives(first)),
        files=overlap(true_files(table), true_files(first)),
        weights=Weights(len(each), same, each),
    )


def _alike(one: PointTable, other: PointTable) -> bool:
    """Tell whether two runs send the same messages, however often."""
    tallies = (true_triples, true_collectives, true_files)
    return all(calls(one).keys() == calls(other).keys() for calls in tallies)
