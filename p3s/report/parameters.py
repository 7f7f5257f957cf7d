"""The laws of a family as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from p3s.laws.symbolic import to_text
from p3s.model.comparison import HoldOut, Summary
from p3s.parameters.align import extent
from p3s.parameters.paramlaws import Number
from p3s.predict.doubts import work_missed
from p3s.predict.reasons import Reason
from p3s.serialise import from_data
from p3s.text import processes
from p3s.trace.ops import COMPLETION


def render(family: Mapping[str, Any]) -> str:
    """Return what a family says: its values, the rules that follow the parameters, its checks."""
    lines = []
    for s in family["settings"]:
        state = "" if s["modelled"] else "   (too few for a model: checked against the others)"
        lines.append(f"{s['name']}: {', '.join(map(str, s['counts']))} processes{state}")
    for part in family["parts"]:
        lines += ["", f"laws from {', '.join(part['settings'])}"]
        rows = _rules(part)
        lines += [f"  {row}" for row in rows] or ["  every number is the same at all values"]
        lines += _works(part)
        if part["tree"]["order"] is None:
            lines.append("  order of events: by no rule that holds at all values, left out")
        lines += ["", *_holdout(from_data(HoldOut, part["holdout"]))]
    for name, why in sorted(family["alone"].items()):
        lines.append(f"left out: {name} has {why}")
    for check in family["checks"]:
        lines.append(_check(check))
    return "\n".join(lines)


def _rules(part: Mapping[str, Any]) -> list[str]:
    """Return a line per distinct rule of an item or phase that follows the parameters."""
    found: dict[str, dict[str, None]] = {}
    for item in part["tree"]["items"]:
        op = item["op"].removeprefix("MPI_")
        for slot in item["slots"]:
            for key, name in (("elements", "elements"), ("count", "calls of a rank")):
                if key == "elements" and item["kind"] == COMPLETION:
                    continue
                for text in _texts(slot[key], part["laws"]):
                    found.setdefault(f"{name} = {text}", {})[op] = None
    for phase in part["tree"]["phases"]:
        for text in _texts(phase["weight"], part["laws"]):
            found.setdefault(f"weight = {text}", {})[phase["name"]] = None
    return [f"{text}   {', '.join(names)}" for text, names in found.items()]


def _texts(law: Any, laws: list[Mapping[str, Any]]) -> list[str]:
    """Return the equations in a law that follow the parameters, with how sure they are."""
    if not isinstance(law, dict):
        return []
    out = []
    for key in ("expr", "total"):
        if key in law and (used := _used(law[key])):
            states = {laws[k]["state"] for k in used}
            state = next(s for s in ("fitted", "open", "exact") if s in states)
            out.append(f"{_text(law[key], laws)}  [{state}]")
    if "stat" in law and "points" in law["stat"]:
        out.append("means, fitted  [fitted]")
    return out


def _used(tree: Any) -> list[int]:
    from p3s.parameters.tree import leaves_of

    return leaves_of(tree)


def _text(expr: Any, laws: list[Mapping[str, Any]]) -> str:
    """Return an expression as text, exact laws of the parameters in place."""

    def shown(tree: Any) -> Any:
        if isinstance(tree, list):
            if len(tree) == 2 and tree[0] == "num" and isinstance(tree[1], dict):
                law = laws[tree[1]["law"]]
                return extent(law) or ["num", *_rounded(law)]
            return [shown(part) for part in tree]
        return tree

    return to_text(shown(expr))


def _rounded(law: Mapping[str, Any]) -> tuple[int, int]:
    return (round(sum(c for c, _ in Number.from_json(law).terms)), 1)


def _works(part: Mapping[str, Any]) -> list[str]:
    segments = part["work"]["segments"]
    if not segments:
        return []
    errors = sorted(s["error"] for s in segments.values() if s["terms"])
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
    messages, collectives = row.p2p_triples, row.collectives
    return (
        f"{messages.equal:,} of {messages.true:,} messages equal, {collectives.equal:,} of "
        f"{collectives.true:,} collectives"
    )


def _check(check: Mapping[str, Any]) -> str:
    if not check["possible"]:
        return f"not checked: {check['name']}: {check['why']}"
    row = from_data(
        Summary, {k: v for k, v in check.items() if k not in ("name", "possible", "equal")}
    )
    return (
        f"checked: {check['name']} at {processes(row.n)}: {_equal(row)}, "
        f"work off by {100 * row.work['mean_abs_error']:.1f} %"
    )


def doubts(family: Mapping[str, Any], another: str) -> list[Reason]:
    """Return why the laws are not to be trusted: what they missed where they were checked.

    ``another``: the command that traces another value of a parameter.
    """
    advice = f"trace another value of a parameter: {another}"
    out = []
    for part in family["parts"]:
        held = from_data(HoldOut, part["holdout"])
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
        out += work_missed(held, held.comparison.work.off)
    if not family["parts"]:
        out.append(Reason("not-held-out", "no two values have models alike", advice))
    out += [
        Reason(
            "holdout-missed", f"the laws miss something at {c['name']}, {processes(c['n'])}", advice
        )
        for c in family["checks"]
        if c["possible"] and not c["equal"]
    ]
    return out


__all__ = ["doubts", "render"]
