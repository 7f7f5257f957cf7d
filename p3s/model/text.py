"""The model for people: equations per phase, verdicts, the hold-out result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from p3s.characterize import tracing
from p3s.characterize.unmodelled import sentences
from p3s.model import guards, places, relations
from p3s.model.expr import to_text
from p3s.model.laws import WorkLaw
from p3s.words import mixed_clocks

Model = Mapping[str, Any]


def render(model: Model) -> str:
    """Return the model as text: grid, phases with their equations, verdict shares, hold-out."""
    lines = [f"counts: {', '.join(map(str, model['counts']))}",
             f"process grid: {model['grid']['text']}  ("
             + ", ".join(f"{n}: {'x'.join(map(str, d))}"
                         for n, d in model["grid"]["dims"].items()) + ")", ""]
    for phase in model["phases"]:
        lines += _phase(model, phase)
    lines += _shares(model)
    note = mixed_clocks(model)
    if note:
        lines.append(f"note: {note}")
    lines += _holdout(model)
    late = model["first_seen"].get(str(max(model["counts"])), 0)
    if late:
        lines.append(f"{late} calls were first seen at {max(model['counts'])} processes, the "
                     "largest count traced: code that starts above it is not in the model")
    for nxt in model.get("next", []):
        lines.append(f"run next: {nxt['n']} processes ({'x'.join(map(str, nxt['dims']))}): "
                     f"{nxt['why']}")
    lines += sentences(model)
    lines += tracing.sentence(model.get("tracing", {}))
    return "\n".join(lines) + "\n"


def law_text(law: Mapping[str, Any], unit: str = "") -> str:
    """Return a count or size law as one line."""
    if "expr" in law:
        return to_text(law["expr"])
    if "total" in law:
        return f"{to_text(law['total'])} in all, shared evenly"
    if "follows" in law:
        num, den = law["factor"]
        return "as posted" + ("" if num == den else f" x {num}/{den}")
    return "about " + WorkLaw.from_json(law["stat"]).text(unit)


def _phase(model: Model, phase: Mapping[str, Any]) -> list[str]:
    name = f"phase {phase['phase']}: {phase['name']}"
    weight = law_text(phase["weight"])
    if "from" in phase["weight"]:
        weight += f" (from {phase['weight']['from']} processes on)"
    measured = ", ".join(f"{n}: {v}" for n, v in phase["weight_points"])
    pad = "  " * phase["depth"]
    out = [pad + name,
           f"{pad}weight = {weight} [{phase['weight_verdict']}]   (traced {measured})"]
    pad += "  "
    reasons: dict[str, int] = {}
    for i in phase["items"]:
        item = model["items"][i]
        frames = model["sites"].get(item["site"]) or ["?"]
        for slot in item["slots"]:
            unit = "instructions" if model["work_unit"] == "instructions" else "ns"
            out.append(f"{pad}{_slot(item, slot, unit)}; at {frames[0]}")
        for why in item["why"]:
            reasons[why] = reasons.get(why, 0) + 1
    for why, k in reasons.items():
        out.append(f"{pad}note ({k} of {len(phase['items'])} calls): {why}")
    out.append("")
    return out


def _slot(item: Mapping[str, Any], slot: Mapping[str, Any], unit: str) -> str:
    parts = [f"[{item['verdict']}] {item['op']}"]
    if item["kind"] in ("send", "recv"):
        relation = slot["relation"]
        parts.append(("to " if item["kind"] == "send" else "from ")
                     + (relations.text(relation) if relation else "?"))
    elif item["kind"] in ("collective", "comm"):
        parts.append("on " + places.text(slot["place"]))
    parts.append(f"if {guards.text(slot['guard'])}" if slot["guard"] is not None else "if ?")
    if item["kind"] in ("send", "recv", "collective"):
        size = law_text(slot["elements"])
        parts.append(f"bytes = {slot['elem_bytes']}*({size})" if slot["elem_bytes"] != 1
                     else f"bytes = {size}")
    parts.append(f"times = {law_text(slot['count'])}")
    parts.append(f"work = {WorkLaw.from_json(slot['work']).text(unit)}")
    return "; ".join(parts)


def _shares(model: Model) -> list[str]:
    out = ["share per verdict at the largest traced count:",
           f"  {'verdict':<12} {'events':>9} {'bytes':>9} {'time':>9}"]
    for verdict, share in model["shares"].items():
        if any(share.values()):
            out.append(f"  {verdict:<12} " + " ".join(
                f"{100 * share[k]:>7.2f} %" for k in ("events", "bytes", "time")))
    return [*out, ""]


def _holdout(model: Model) -> list[str]:
    held = model.get("holdout")
    if not held:
        return ["nothing was held out"]
    if not held["possible"]:
        return [f"hold-out at {held['n']} processes was not possible: {held['why']}"]
    def pair(d: Mapping[str, int]) -> str:
        return f"{d['equal']} of {d['true']} (predicted {d['predicted']})"
    return [f"hold-out: fitted without {held['n']} processes, compared there:",
            f"  messages equal     {pair(held['p2p_triples'])}",
            f"  collectives equal  {pair(held['collectives'])}",
            f"  weights exact      {held['weights']['exact']} of {held['weights']['phases']}",
            f"  work error         mean {100 * held['work']['mean_abs_error']:.1f} %, "
            f"largest {100 * held['work']['max_abs_error']:.1f} %"]
