"""A plan for people (`p3s replay --plan`) and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from p3s.base.serialise import to_data
from p3s.base.study import SCHEMA_VERSION
from p3s.base.text import plural
from p3s.replay.plan.classes import CallClass, MessageClass
from p3s.replay.plan.noise import NOISE_LIMIT
from p3s.replay.plan.types import ReplayPlan
from p3s.replay.plan.world import BLACK_HOLE, MEASURED, NODES, NOISE

SCHEMA = "p3s.replay-plan"
#: Entries of a list that are shown; the JSON has all.
_MOST_LINES = 8
#: A longer time than this many times another one is not said in per cent.
_TIMES = 10


def roles(plan: ReplayPlan) -> dict[str, int]:
    """Return how many processes play each role."""
    found: dict[str, int] = {}
    for process in plan.world.processes:
        found[process.role] = found.get(process.role, 0) + 1
    return found


def why_not_representative(plan: ReplayPlan) -> str | None:
    """Return why these hosts cannot give the times of a cluster, as far as is known before."""
    if not plan.programs:
        return "nothing is measured: no message between ranks can be replayed"
    hosts = plan.placements[0].hosts or ("",) * NODES
    used = [hosts[node] for node in range(NODES) if plan.world.on_node(node)]
    if len(set(used)) == len(used):
        return None
    return (
        "all nodes are one machine"
        if len(set(used)) == 1
        else "some of the four nodes are the same machine"
    )


def plan_text(plan: ReplayPlan) -> str:
    """Return what a user wants to know before a replay, some thirty lines."""
    lines = [*_run(plan), *_nodes(plan), *_measured(plan), *_time(plan)]
    if plan.collectives:
        lines.append("collectives as messages of:")
        lines += _bounded(
            [
                f"  {used.call} of {used.bytes:,} B on {used.members} ranks: {used.algorithm}"
                for used in plan.collectives
            ]
        )
    if plan.left_out:
        lines.append("left out:")
        lines += _bounded(
            [f"  {entry.call}: {entry.events:,.0f} calls, {entry.why}" for entry in plan.left_out]
        )
    if plan.notes:
        lines.append("notes:")
        lines += _bounded([f"  {note}" for note in plan.notes])
    return "\n".join(lines)


def _bounded(lines: Sequence[str]) -> list[str]:
    if len(lines) <= _MOST_LINES:
        return list(lines)
    return [*lines[:_MOST_LINES], f"  and {len(lines) - _MOST_LINES} more (--json has all)"]


def _run(plan: ReplayPlan) -> list[str]:
    sizes = plan.mapping.sizes
    low, high = int(sizes.min()), int(sizes.max())
    ranks = str(low) if low == high else f"{low} to {high}"
    far = sorted({cls.distance for cls in plan.messages} - {0})
    apart = (
        ""
        if plan.topology.flat or not far
        else (f", messages over {', '.join(map(str, far))} switches")
    )
    return [
        f"run: {plan.n} ranks on {plural(plan.mapping.nodes, 'node')} of {ranks}, "
        f"{plan.mapping.kind}{apart}",
        f"sections: {len(plan.sections)} ({', '.join(s.name for s in plan.sections[:4])}"
        f"{', ...' if len(plan.sections) > 4 else ''})",
    ]


def _nodes(plan: ReplayPlan) -> list[str]:
    on = [plan.world.on_node(node) for node in range(NODES)]
    count = roles(plan)
    lines = [
        f"processes: {plan.world.size} = "
        + (" + ".join(f"{number} {role}" for role, number in count.items()) or "none")
        + f", {100 * plan.estimate.share_of_cores:.1f} % of {plan.n}"
    ]
    for number, placement in enumerate(plan.placements):
        head = "nodes" if len(plan.placements) == 1 else f"nodes, start {number + 1}"
        if not placement.hosts:
            lines.append(f"{head}: all four are this machine")
            continue
        words = [
            f"{host} {_what(plan, node)} ({on[node]})"
            for node, host in enumerate(placement.hosts)
            if on[node]
        ]
        lines.append(f"{head}: " + ", ".join(words))
    why = why_not_representative(plan)
    if why is not None:
        lines.append(f"not representative: {why}")
    return lines


def _what(plan: ReplayPlan, node: int) -> str:
    here = {process.role for process in plan.world.processes if process.node == node}
    if MEASURED in here:
        return "measured"
    return " and ".join(role for role in (BLACK_HOLE, NOISE) if role in here)


def _measured(plan: ReplayPlan) -> list[str]:
    lines = [
        f"classes: {len(plan.messages)} of messages, {len(plan.calls)} of calls"
        + (
            f" ({len(plan.composed)} of them composed: partners on three nodes or more)"
            if plan.composed
            else ""
        )
    ]
    pairs = sorted({it.pair for it in plan.iterations})
    lines.append(f"loaded pairs of nodes: {_pairs(pairs)}; {plan.saved()}")
    if pairs:
        lines.append(f"  {_played(plan, pairs[0])}")
    wanted = max((it.noise_wanted for it in (*plan.iterations, *plan.timed)), default=0.0)
    if wanted:
        lines.append(
            f"noise: {wanted:.3g} messages of others on the way on average (at most "
            f"{NOISE_LIMIT} at once are sent)"
        )
    flows = max((placement.flows for placement in plan.placements), key=len, default=())
    if flows:
        lines.append(
            f"links between switches: measured with {plural(len(flows), 'node')} sending to as "
            "many others"
        )
    if plan.timed:
        lines.append(
            "whole iterations with timed black holes: "
            + _pairs(sorted({it.pair for it in plan.timed}))
        )
    return lines


def played_by(plan: ReplayPlan, pair: tuple[int, int]) -> dict[int, int]:
    """Return rank of the run -> process of the replay while a pair is loaded."""
    process = plan.world.rank_of(MEASURED)
    return {
        int(rank): process[side, slot]
        for side, node in enumerate(pair if pair[0] != pair[1] else pair[:1])
        for slot, rank in enumerate(plan.mapping.ranks_of(node).tolist())
    }


def _played(plan: ReplayPlan, pair: tuple[int, int]) -> str:
    """Say who plays whom, side by side."""
    table = played_by(plan, pair)
    words = []
    for node in dict.fromkeys(pair):
        ranks = plan.mapping.ranks_of(node).tolist()
        words.append(f"ranks {_runs(ranks)} are processes {_runs([table[r] for r in ranks])}")
    return f"{_pairs([pair])}: " + ", ".join(words)


def _runs(numbers: Sequence[int]) -> str:
    """Return numbers with equal steps in short: 0-3, 0,4..12."""
    if len(numbers) <= 2:
        return ",".join(map(str, numbers))
    step = numbers[1] - numbers[0]
    if list(numbers) != list(range(numbers[0], numbers[-1] + 1, step)):
        return f"{numbers[0]},{numbers[1]},...,{numbers[-1]}"
    return (
        f"{numbers[0]}-{numbers[-1]}"
        if step == 1
        else (f"{numbers[0]},{numbers[1]}..{numbers[-1]}")
    )


def _pairs(pairs: Sequence[tuple[int, int]]) -> str:
    words = [f"{a}-{b}" if a != b else f"{a}" for a, b in pairs[:_MOST_LINES]]
    more = f" and {len(pairs) - _MOST_LINES} more" if len(pairs) > _MOST_LINES else ""
    return (", ".join(words) or "none") + more


def _time(plan: ReplayPlan) -> list[str]:
    e = plan.estimate
    number = len(plan.programs) + len(plan.timed)
    over = (
        ""
        if e.needed_s <= e.total_s + 1e-9
        else (f" (budget {seconds(e.budget_s)}; {seconds(e.needed_s)} would narrow every class)")
    )
    lines = [
        f"time: about {seconds(e.total_s)} for {plural(number, 'program')}{over}, "
        f"{seconds(min(e.least_s, e.total_s))} at least; all pairs of nodes would take "
        f"{seconds(e.all_pairs_s)}"
    ]
    share = e.share_of_time
    if share is not None:
        part = f"{100 * share:.2g} % of it" if share < _TIMES else f"{share:,.0f} times as long"
        lines.append(
            f"run: about {seconds(e.run_s)} by a rough simulation; the replay takes {part}"
        )
    if e.work_scale < 1:
        lines.append(
            f"computation is emulated {100 * e.work_scale:.0f} % as long, to fit the budget"
        )
    return lines


def seconds(value: float) -> str:
    """Return a time for people."""
    if value < 0.1:
        return f"{1e3 * value:.2g} ms"
    if value < 10:
        return f"{value:.1f} s"
    if value < 600:
        return f"{value:.0f} s"
    if value < 36_000:
        return f"{value / 60:.0f} min"
    return f"{value / 3600:.1f} h"


def plan_json(plan: ReplayPlan) -> dict[str, Any]:
    """Return the plan as JSON (docs/formats.md, replay plan)."""
    e = plan.estimate
    sizes = plan.mapping.sizes
    return {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "n": plan.n,
        "mapping": {
            "kind": plan.mapping.kind,
            "nodes": plan.mapping.nodes,
            "ranks_per_node": [int(sizes.min()), int(sizes.max())],
        },
        "topology": plan.topology.source,
        "processes": {
            "total": plan.world.size,
            **roles(plan),
            "per_node": [plan.world.on_node(node) for node in range(NODES)],
            "share": e.share_of_cores,
        },
        "placements": [
            {"hosts": list(p.hosts), "hops": p.hops, "for_hops": list(p.wanted)}
            for p in plan.placements
        ],
        "representative": why_not_representative(plan) is None,
        "why_not_representative": why_not_representative(plan),
        "sections": [
            {
                "name": s.name,
                "phases": list(s.phases),
                "turns": s.turns,
                "run_turns": s.run_turns,
                "entries": s.entries,
                "steps": len(s.steps),
                "pass_ns": ns,
            }
            for s, ns in zip(plan.sections, e.section_ns, strict=True)
        ],
        "messages": [_class(cls) for cls in plan.messages],
        "calls": [
            {**_class(cls), "how": _how(plan, number)} for number, cls in enumerate(plan.calls)
        ],
        "world": to_data(plan.world.processes),
        "iterations": [
            {
                "nodes": list(it.pair),
                "section": it.section,
                "ranks": [plan.mapping.ranks_of(node).tolist() for node in it.pair],
                "programs": list(it.programs),
                "adds": list(it.adds),
                "placement": it.placement,
                "noise_wanted": it.noise_wanted,
            }
            for it in plan.iterations
        ],
        "timed": [
            {
                "nodes": list(it.pair),
                "section": it.section,
                "placement": it.placement,
                "noise_wanted": it.noise_wanted,
            }
            for it in plan.timed
        ],
        "programs": [
            {
                "what": p.what,
                "name": p.name,
                "events": len(p.events),
                "seconds": s,
                "placement": where,
            }
            for p, s, where in zip(plan.programs, e.program_s, plan.placement_of, strict=True)
        ],
        "iterations_all_pairs": e.all_pairs,
        "saved": plan.saved(),
        "estimate": {
            "total_s": e.total_s,
            "needed_s": e.needed_s,
            "least_s": e.least_s,
            "launch_s": e.launch_s,
            "timed_s": e.timed_s,
            "budget_s": e.budget_s,
            "all_pairs_s": e.all_pairs_s,
            "run_s": e.run_s or None,
            "share_of_time": e.share_of_time,
            "share_of_cores": e.share_of_cores,
            "work_scale": e.work_scale,
        },
        "collectives": to_data(plan.collectives),
        "left_out": [{"call": x.call, "why": x.why, "events": x.events} for x in plan.left_out],
        "notes": list(plan.notes),
    }


def _class(cls: MessageClass | CallClass) -> dict[str, Any]:
    """Return a class as plain data; its distance is called hops."""
    return {"hops" if name == "distance" else name: value for name, value in vars(cls).items()}


def _how(plan: ReplayPlan, number: int) -> str:
    if number in plan.composed:
        return "composed"
    return "interpolated" if number in plan.uncovered else "measured"
