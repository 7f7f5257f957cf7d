"""The thesis's phases of a run as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from p3s.base.text import percent, processes, seconds, visible

if TYPE_CHECKING:
    from p3s.methods.pas2p.phases import Similarity, ThesisPhase

_OPS = 4


def as_rows(found: Sequence[ThesisPhase], loops: Mapping[int, int | None]) -> list[dict[str, Any]]:
    """Return the phases as plain data; loops: phase -> phase of `p3s phases`, None if none."""
    return [
        {
            "phase": p.number,
            "weight": p.weight,
            "ticks": p.ticks,
            "events": p.events,
            "share": p.share,
            "relevant": p.relevant,
            "time": p.time,
            "work": p.work,
            "operations": dict(p.operations),
            "loop_phase": loops.get(p.number),
            "joins": None if p.joins < 0 else p.joins,
            "found_weight": p.found_weight,
            "similar": p.similar,
        }
        for p in found
    ]


def render(
    found: Sequence[ThesisPhase],
    loops: Mapping[int, int | None],
    n: int,
    settings: Similarity,
    everything: bool,
    instructions: bool,
) -> str:
    """Return the table: relevant phases by their time, all of them with ``everything``."""
    listed = sorted((p for p in found if everything or p.relevant), key=lambda p: -p.time)
    unit = "work" if instructions else "time"
    lines = [
        f"Phases of the thesis at {processes(n)}: segments of the table of ticks that repeat",
        f"(volume within {percent(settings.volume)}, computation {percent(settings.compute)} alike,"
        f" {percent(settings.events)} of the events)",
        "",
        f"{'phase':>5}  {'of all':>7}  {'weight':>8}  {'ticks':>6}  {'events':>8}  {unit:>9}"
        "  in phase  operations of one occurrence",
    ]
    for p in listed:
        ops = sorted(p.operations.items(), key=lambda item: (-item[1], item[0]))
        text = "  ".join(f"{visible(op)} {k:,}" for op, k in ops[:_OPS])
        more = f"  and {len(ops) - _OPS} more" if len(ops) > _OPS else ""
        loop = loops.get(p.number)
        amount = f"{p.time:,}" if instructions else seconds(p.time / 1e9)
        lines.append(
            f"{p.number:>5}  {percent(p.share):>7}  {p.weight:>8,}  {p.ticks:>6,}  {p.events:>8,}"
            f"  {amount:>9}  {'-' if loop is None else loop:>8}  {text}{more}"
        )
    hidden = len(found) - len(listed)
    together = sum(p.share for p in listed)
    lines.append(
        f"{len(listed)} of {len(found)} phases, {percent(together)} of the time"
        + (f"; --all shows the other {hidden}" if hidden else "")
    )
    return "\n".join(lines)
