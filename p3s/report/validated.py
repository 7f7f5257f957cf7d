"""How a run compares with the model, as text."""

from __future__ import annotations

from collections.abc import Iterator

from p3s.base.text import ends, factor, interval, plural, processes, seconds, table
from p3s.model.comparison import Comparison, OrderAgreement
from p3s.pipeline.validating import WHY_NOT, Validation
from p3s.predict.estimates import Dealt


def render(result: Validation, root: str) -> str:
    """Return what was compared, by call, by verdict, and in time; root: the study, for commands."""
    dealt = [] if result.dealt is None else [_dealt(result.dealt)]
    parts = [_table(result.compared), _verdicts(result), *dealt, *_run_time(result, root)]
    return "\n".join(parts)


def _dealt(dealt: Dealt) -> str:
    """Return what is to be said of the tasks of a queue."""
    same = "as predicted" if dealt.tasks == dealt.predicted else f"{dealt.predicted:,.0f} predicted"
    return (
        f"queue: {dealt.tasks:,} tasks, {same}; {ends(dealt.least, dealt.most, ',')} of a worker. "
        "Which worker does which depends on timing"
        + (": what differs above is no miss" if dealt.same else "")
    )


def _share(part: float, whole: float) -> str:
    return "-" if not whole else f"{100.0 * part / whole:.2f} %"


def _table(found: Comparison) -> str:
    rows = []
    for noun, pair in found.told:
        share = _share(pair.equal, max(pair.true, pair.predicted))
        numbers = [f"{number:,}" for number in (pair.true, pair.predicted, pair.equal)]
        rows.append([f"{noun}s", *numbers, share])
    for name, whole, equal in (
        ("phase weights", found.weights.phases, found.weights.exact),
        *([("order of ranks", found.order.ranks, found.order.equal)] if found.order else []),
    ):
        rows.append([name, f"{whole:,}", "", f"{equal:,}", _share(equal, whole)])
    work, missing = found.work, found.unmodelled
    return "\n".join(
        [
            table(rows, ["compared", "in the run", "predicted", "equal", "share"]),
            *_order(found.order),
            f"work: off by {100 * work.off:.1f} %, mean error of the phases "
            f"{100 * work.mean_abs_error:.1f} %, median {100 * work.median_abs_error:.1f} %, "
            f"largest {100 * work.max_abs_error:.1f} %",
            f"left out by the model: {plural(missing.events, 'event')}, "
            f"{100 * missing.share_of_time:.2f} % of the time",
        ]
    )


def _verdicts(result: Validation) -> str:
    """Return how many calls of each verdict are as in the run."""
    found = [
        f"{kept.calls - kept.wrong:,} of {plural(kept.calls, f'{kept.verdict} call')}"
        for kept in result.verdicts
    ]
    return f"as in the run: {', '.join(found)}"


def _order(order: OrderAgreement | None) -> Iterator[str]:
    """Return where the order of a rank first differs."""
    if order is None:
        yield "order: not compared, the run has too many events or the model no order"
    elif order.first is not None:
        first = order.first
        if order.by_chance:
            yield (
                f"order: on {plural(order.by_chance, 'rank')} only the partners come in another "
                "one; they receive from MPI_ANY_SOURCE, so that is no miss"
            )
        yield (
            f"order: rank {first.rank}, event {first.position}: "
            f"{first.expected or 'no more'} in the run, {first.found or 'no more'} predicted"
            + "; operations and partners are in order on "
            f"{plural(order.equal_but_bytes, 'rank')}" * (order.equal_but_bytes > order.equal)
        )


def _run_time(result: Validation, root: str) -> list[str]:
    """Return how the run's time and its computation compare with what was predicted."""
    found, n = result.run_time, result.compared.n
    predicted, measured = found["predicted_s"], found["measured_s"]
    parts = []
    if predicted is not None:
        parts.append(
            f"predicted {seconds(predicted)} ({interval(found['low_s'], found['high_s'])})"
        )
    if measured is not None:
        parts.append(f"measured {seconds(measured)}")
    why = WHY_NOT.get(found["why_not"], "").format(
        n=n, at=processes(n), cores=found["cores"] or "", study=root
    )
    if found["inside"] is None:
        verdict = f"not compared: {why}"
    elif found["inside"]:
        verdict = "inside the interval"
    else:
        verdict = f"outside the interval, {factor(measured / predicted)} the predicted time"
    lines = [f"run time: {', '.join(parts) + '; ' if parts else ''}{verdict}"]
    if found["work_s"] and found["measured_work_s"]:
        lines.append(
            f"computation of the busiest rank: predicted {seconds(found['work_s'])}, "
            f"measured {seconds(found['measured_work_s'])}"
        )
    return lines
