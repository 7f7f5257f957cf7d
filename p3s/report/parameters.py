"""The laws of a family as text."""

from __future__ import annotations

from p3s.base.text import processes
from p3s.costs.parameters.laws import Family, Part
from p3s.model.comparison import HoldOut, Summary
from p3s.predict.doubts import work_missed
from p3s.predict.types import Reason


def render(family: Family) -> str:
    """Return what a family says: its values, the rules that follow the parameters, its checks."""
    lines = []
    for s in family.settings:
        state = "" if s.modelled else "   (too few for a model: checked against the others)"
        lines.append(f"{s.name}: {', '.join(map(str, s.counts))} processes{state}")
    for part in family.parts:
        lines += ["", f"laws from {', '.join(part.settings)}"]
        lines += [
            f"  {each.of} = {each.text}  [{each.state}]   {', '.join(each.names)}"
            for each in part.equations
        ] or ["  every number is the same at all values"]
        lines += _works(part)
        if not part.ordered:
            lines.append("  order of events: by no rule that holds at all values, left out")
        lines += ["", *_holdout(part.holdout)]
    for name, why in sorted(family.alone.items()):
        lines.append(f"left out: {name} has {why}")
    for check in family.checks:
        lines += _check(check)
    return "\n".join(lines)


def _works(part: Part) -> list[str]:
    segments = part.work
    if not segments:
        return []
    errors = sorted(s.error for s in segments.values() if s.terms)
    middle = errors[len(errors) // 2] if errors else 0.0
    return [
        f"  work: {len(segments)} segments, each with one law at all values; error left out "
        f"{100 * middle:.2g} % in the median"
    ]


def _holdout(held: HoldOut) -> list[str]:
    if not held.possible:
        return [f"not checked on a value left out: {held.problem}"]
    out = [f"fitted without {held.setting} and compared there:"]
    for row in held.each:
        order, weights = row.order, row.weights
        out.append(
            f"  {processes(row.n)}: {_equal(row)}, {weights.exact} of {weights.phases} weights "
            "exact, "
            + (f"order of {order['equal']} of {order['ranks']} ranks, " if order else "")
            + f"work off by {100 * row.work['mean_abs_error']:.1f} %"
        )
    return out


def _equal(row: Summary) -> str:
    (_, messages), *others = row.told
    calls = [f"{pair.equal:,} of {pair.true:,} {noun}s" for noun, pair in others]
    return f"{messages.equal:,} of {messages.true:,} messages equal, {', '.join(calls)}"


def _check(check: HoldOut) -> list[str]:
    if not check.possible:
        return [f"not checked: {check.setting}: {check.problem}"]
    return [
        f"checked: {check.setting} at {processes(row.n)}: {_equal(row)}, "
        f"work off by {100 * row.work['mean_abs_error']:.1f} %"
        for row in check.each
    ]


def doubts(family: Family, another: str) -> list[Reason]:
    """Return why the laws are not to be trusted: what they missed where they were checked.

    ``another``: the command that traces another value of a parameter.
    """
    advice = f"trace another value of a parameter: {another}"
    out = []
    for part in family.parts:
        held = part.holdout
        if held.comparison is None:
            out.append(Reason("not-held-out", f"the laws were not checked: {held.problem}", advice))
            continue
        if not all(row.all_equal for row in held.each):
            out.append(
                Reason(
                    "holdout-missed",
                    f"the laws fitted without {held.setting} miss something there",
                    advice,
                )
            )
        out += work_missed(held, held.comparison.work.off, advice=advice)
    if not family.parts:
        out.append(Reason("not-held-out", "no two values have models alike", advice))
    out += [
        Reason(
            "holdout-missed",
            f"the laws miss something at {check.setting}, {processes(row.n)}",
            advice,
        )
        for check in family.checks
        for row in check.each
        if not row.all_equal
    ]
    return out
