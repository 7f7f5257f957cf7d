"""Studies traced with several numbers of threads, and whether their messages are the same."""

from __future__ import annotations

from dataclasses import dataclass, replace

from p3s.base.settings import (
    THREADS,
    alike_in_threads,
    parameters,
    parse_setting,
    threads_in,
    value_study,
)
from p3s.base.study import Study
from p3s.costs.parameters.derive import summary
from p3s.model.compare import compare, overlap, true_collectives, true_files, true_triples
from p3s.model.comparison import Comparison, Summary, Weights
from p3s.model.types import Model
from p3s.signature.tables import PointTable


def base_of(root: Study) -> int:
    """Return the number of threads whose runs the equations of messages are from.

    As :func:`p3s.base.settings.alike_in_threads`; 0 where there are no runs.
    """
    found = alike_in_threads(root)
    return int(found[0][0][THREADS]) if found and THREADS in found[0][0] else 0


def with_threads(rest: str, threads: int) -> str:
    """Return the name of a setting: that of the input's values, and threads."""
    return f"{rest},{THREADS}={threads}" if rest else f"{THREADS}={threads}"


def at_threads(root: Study, rest: str, threads: int) -> Study:
    """Return the study at values of the input and a number of threads; it need not be there."""
    setting = {**(parse_setting(rest) if rest else {}), **parse_setting(f"{THREADS}={threads}")}
    return value_study(root, {name: setting[name] for name in parameters(root)})


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


def check_messages(root: Study, rest: str, model: Model) -> list[ThreadCheck]:
    """Compare the runs of a setting at all numbers of threads with those of the base's.

    rest: name of the input's own values, "" where there are none; model: of the base's threads,
    for counts that they did not run with.
    """
    from p3s.signature.store import load_table

    base = at_threads(root, rest, base_of(root))
    others = [threads for threads in threads_in(root) if threads != base_of(root)]
    out = []
    for n in sorted({n for t in others for n in at_threads(root, rest, t).signature_counts()}):
        first = load_table(base.root, n) if n in base.signature_counts() else None
        told = compare(model, first) if first is not None else None
        for threads in others:
            at = at_threads(root, rest, threads)
            if n not in at.signature_counts():
                continue
            table = load_table(at.root, n)
            found, alike = compare(model, table), False
            if first is not None and told is not None:
                found, alike = _beside(found, table, told, first), _alike(table, first)
            report = summary(found)
            name = with_threads(rest, threads)
            out.append(ThreadCheck(name, threads, n, report.all_equal, report, alike))
    return sorted(out, key=lambda check: (check.threads, check.n))


def _beside(
    found: Comparison, table: PointTable, told: Comparison, first: PointTable
) -> Comparison:
    """Return a comparison with another run of the count instead of the model.

    What the model itself misses is no matter of threads.
    """
    each = tuple(
        replace(mine, predicted=base.true)
        for mine, base in zip(found.weights.each, told.weights.each, strict=True)
    )
    same = sum(weight.true == weight.predicted for weight in each)
    return replace(
        found,
        p2p_triples=overlap(true_triples(table), true_triples(first)),
        collectives=overlap(true_collectives(table), true_collectives(first)),
        files=overlap(true_files(table), true_files(first)),
        weights=Weights(len(each), same, each),
    )


def _alike(one: PointTable, other: PointTable) -> bool:
    """Tell whether two runs send the same messages, however often."""
    tallies = (true_triples, true_collectives, true_files)
    return all(calls(one).keys() == calls(other).keys() for calls in tallies)
