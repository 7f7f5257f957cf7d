"""``p3s phases --thesis``: the phases of a run as the thesis finds them, at one count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from p3s.base.errors import P3SError, UsageError
from p3s.base.text import percent, processes, seconds, visible
from p3s.cli.declared import option

if TYPE_CHECKING:
    from p3s.methods.pas2p.phases import Similarity, ThesisPhase

_OPS = 4


def as_rows(phases: Sequence[ThesisPhase], loops: Mapping[int, int | None]) -> list[dict[str, Any]]:
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
        for p in phases
    ]


def render(
    phases_found: Sequence[ThesisPhase],
    loops: Mapping[int, int | None],
    n: int,
    settings: Similarity,
    everything: bool,
    instructions: bool,
) -> str:
    """Return the table: relevant phases by their time, all of them with ``everything``."""
    listed = sorted((p for p in phases_found if everything or p.relevant), key=lambda p: -p.time)
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
    hidden = len(phases_found) - len(listed)
    together = sum(p.share for p in listed)
    lines.append(
        f"{len(listed)} of {len(phases_found)} phases, {percent(together)} of the time"
        + (f"; --all shows the other {hidden}" if hidden else "")
    )
    return "\n".join(lines)


def _shares(text: str) -> tuple[float, float, float, float]:
    """Return the shares that --similar names: of volume, computation, events, of a phase."""
    try:
        shares = [float(word.strip().removesuffix("%")) / 100 for word in text.split(",")]
        volume, compute, events, relevance = shares
    except ValueError:
        shares = [-1.0]
    if not all(0 <= share <= 1 for share in shares):
        raise UsageError(
            f"--similar {text}: not four percentages; for example --similar 5%,90%,80%,1%"
        )
    return volume, compute, events, relevance


def phases(
    study_dir: Path,
    counts: str | None,
    everything: bool,
    json_: bool,
    thesis: bool = option(
        False, "--thesis", "The thesis's phases instead: segments that repeat (one count)."
    ),
    similar: str = option(
        "5%,90%,80%,1%",
        "--similar V,C,E,R",
        "With --thesis: volume, computation and events alike, share of a relevant phase.",
    ),
) -> int | None:
    """Show the phases as the thesis finds them; None where they are not asked for."""
    from p3s.capture import read_run
    from p3s.cli.common import emit_json, header, out
    from p3s.cli.progress import progress
    from p3s.cli.values import parse_counts
    from p3s.methods.pas2p.phases import Similarity, loop_of, thesis_phases
    from p3s.pipeline.records import load_study, open_traces
    from p3s.pipeline.stages import ensure_phases

    settings = Similarity(*_shares(similar))
    if not thesis:
        return None
    counts_asked = parse_counts(counts) if counts is not None else None
    if counts_asked is not None and len(counts_asked) > 1:
        raise UsageError("-n: the phases of the thesis are of one count; give one")
    study = load_study(study_dir)
    with progress(len(study.counts())) as bar:
        loops_at = ensure_phases(study, bar)
    n = loops_at.only(counts_asked, study.root).counts[0] if counts_asked else loops_at.counts[-1]
    runs = open_traces(study_dir).complete(n)
    if not runs:
        raise P3SError(f"{study.root}: no complete run at {n} processes; trace it again")
    run = read_run(runs[0].path)
    result = thesis_phases(run, settings)
    site_of = {call.call: call.site.partition("#")[0] for call in loops_at.tree.calls()}
    inside: dict[int, set[str]] = {p.phase: {site_of[c] for c in p.calls} for p in loops_at.phases}
    for phase in reversed(loops_at.phases):
        if phase.parent is not None:
            inside[phase.parent] |= inside[phase.phase]
    loops = {p.number: loop_of(p, inside) for p in result}
    if json_:
        likeness = {
            name: getattr(settings, name) for name in ("volume", "compute", "events", "relevance")
        }
        emit_json(
            {
                **header("phases.thesis"),
                "np": n,
                "work_unit": run.work_unit,
                "settings": likeness,
                "phases": as_rows(result, loops),
            }
        )
    else:
        out(render(result, loops, n, settings, everything, run.work_unit == "instructions"))
    return 0
