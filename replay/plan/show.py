"""A plan for people (`p3s replay --plan`) and for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from p3s.base.serialise import to_data
from p3s.base.study import SCHEMA_VERSION
from p3s.base.text import ends, percent, plural, seconds
from p3s.replay.plan.build_holes import NOISE_LIMIT
from p3s.replay.plan.program import NODES, why_not_representative
from p3s.replay.plan.types import ReplayPlan

SCHEMA = "p3s.replay-plan"
#: Entries of a list that are shown; the JSON has all.
_MOST_LINES = 8
#: A longer time than this many times another one is not said in per cent.
_TIMES = 10


def why_not(plan: ReplayPlan) -> str | None:
    """Return why these hosts cannot give the times of a cluster, as far as is known before."""
    if not plan.programs:
        return "nothing is measured: no message between ranks can be replayed"
    hosts = plan.placements[0].hosts or ("",) * NODES
    return why_not_representative(
        [host for node, host in enumerate(hosts) if plan.world.on_node(node)]
    )


def plan_text(plan: ReplayPlan) -> str:
    """Return what a user wants to know before a replay, some thirty lines."""
    lines = [*_run(plan), *_nodes(plan), *_render_classes(plan), *_time(plan)]
    for head, entries in (
        (
            "collectives as messages of:",
            [
                f"{used.call} of {used.bytes:,} B on {used.members} ranks: {used.algorithm}"
                for used in plan.collectives
            ],
        ),
        ("left out:", [f"{x.call}: {x.events:,.0f} calls, {x.why}" for x in plan.left_out]),
        ("notes:", plan.notes),
    ):
        if entries:
            lines += [head, *(f"  {entry}" for entry in _limit_lines(entries))]
    return "\n".join(lines)


def _limit_lines(entries: Sequence[str]) -> list[str]:
    if len(entries) <= _MOST_LINES:
        return list(entries)
    return [*entries[:_MOST_LINES], f"and {len(entries) - _MOST_LINES} more (--json has all)"]


def _run(plan: ReplayPlan) -> list[str]:
    ranks = ends(int(plan.mapping.sizes.min()), int(plan.mapping.sizes.max()))
    far = sorted({cls.distance for cls in plan.messages} - {0})
    apart = f", messages over {', '.join(map(str, far))} switches"
    return [
        f"run: {plan.n} ranks on {plural(plan.mapping.nodes, 'node')} of {ranks}, "
        f"{plan.mapping.kind}{'' if plan.topology is None or not far else apart}",
        f"sections: {len(plan.sections)} ({', '.join(s.name for s in plan.sections[:4])}"
        f"{', ...' if len(plan.sections) > 4 else ''})",
    ]


def _nodes(plan: ReplayPlan) -> list[str]:
    roles = Counter(process.role for process in plan.world.processes)
    lines = [
        f"processes: {plan.world.size} = "
        + (" + ".join(f"{number} {role}" for role, number in roles.items()) or "none")
        + f", {percent(plan.world.size / plan.n)} of {plan.n}"
    ]
    for number, placement in enumerate(plan.placements):
        head = "nodes" if len(plan.placements) == 1 else f"nodes, start {number + 1}"
        words = [
            f"{host} {' and '.join(plan.world.roles_on(node))} ({plan.world.on_node(node)})"
            for node, host in enumerate(placement.hosts)
            if plan.world.on_node(node)
        ]
        lines.append(f"{head}: " + (", ".join(words) or "all four are this machine"))
    why = why_not(plan)
    return lines if why is None else [*lines, f"not representative: {why}"]


def _render_classes(plan: ReplayPlan) -> list[str]:
    composed = f" ({len(plan.composed)} of them composed of their messages)"
    lines = [
        f"classes: {len(plan.messages)} of messages, {len(plan.calls)} of calls"
        f"{composed if plan.composed else ''}",
        f"loaded pairs of nodes: {_pairs(plan.iterations)}; {plan.saved()}",
    ]
    mean_messages = max(
        (iteration.noise_wanted for iteration in (*plan.iterations, *plan.timed)), default=0.0
    )
    if mean_messages:
        lines.append(
            f"noise: {mean_messages:.3g} messages of others on the way on average (at most "
            f"{NOISE_LIMIT} at once are sent)"
        )
    if plan.timed:
        lines.append(f"whole iterations with timed black holes: {_pairs(plan.timed)}")
    return lines


def _pairs(iterations: Sequence[Any]) -> str:
    """Return the pairs of nodes of some iterations."""
    pairs = sorted({iteration.pair for iteration in iterations})
    return ", ".join(_limit_lines([f"{a}-{b}" if a != b else f"{a}" for a, b in pairs])) or "none"


def _time(plan: ReplayPlan) -> list[str]:
    e = plan.estimate
    over = f" (budget {seconds(e.budget_s)}; {seconds(e.needed_s)} would narrow every class)"
    lines = [
        f"time: about {seconds(e.total_s)} for {plural(len(e.program_s), 'program')}"
        f"{'' if e.needed_s <= e.total_s + 1e-9 else over}, "
        f"{seconds(min(e.least_s, e.total_s))} at least"
    ]
    share = e.share_of_time
    if share is not None:
        part = f"{percent(share)} of it" if share < _TIMES else f"{share:,.0f} times as long"
        lines.append(
            f"run: about {seconds(e.run_s)} by a rough simulation; the replay takes {part}"
        )
    if e.work_scale < 1:
        lines.append(f"computation is emulated {percent(e.work_scale)} as long, to fit the budget")
    return lines


def plan_json(plan: ReplayPlan) -> dict[str, Any]:
    """Return the plan as JSON (docs/formats.md, replay plan)."""
    e, world, sizes = plan.estimate, plan.world, plan.mapping.sizes
    why = why_not(plan)
    return {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "n": plan.n,
        "mapping": {
            "kind": plan.mapping.kind,
            "nodes": plan.mapping.nodes,
            "ranks_per_node": [int(sizes.min()), int(sizes.max())],
        },
        "topology": plan.topology.about.source if plan.topology is not None else "flat",
        "processes": {
            "total": world.size,
            **Counter(process.role for process in world.processes),
            "per_node": [world.on_node(node) for node in range(NODES)],
        },
        "world": to_data(world.processes),
        "placements": to_data(plan.placements),
        "representative": why is None,
        "why_not_representative": why,
        "sections": [
            {"name": s.name, "phases": list(s.phases), "turns": s.turns, "steps": len(s.steps)}
            for s in plan.sections
        ],
        "messages": to_data(plan.messages),
        "calls": [
            {**to_data(cls), "how": "composed" if number in plan.composed else "measured"}
            for number, cls in enumerate(plan.calls)
        ],
        "iterations": to_data(plan.iterations),
        "timed": to_data(plan.timed),
        "programs": [
            {"what": p.what, "name": p.name, "events": len(p.events), "placement": where}
            for p, where in zip(plan.programs, plan.placement_of, strict=True)
        ],
        "estimate": {**to_data(e), "share_of_time": e.share_of_time},
        "collectives": to_data(plan.collectives),
        "left_out": [{"call": x.call, "why": x.why, "events": x.events} for x in plan.left_out],
        "notes": list(plan.notes),
    }
