"""Placements as text, CSV and part of a report: what to do, the ranking, which phases gain."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from textwrap import wrap

from p3s.base.artefacts import changed_ns
from p3s.base.errors import P3SError
from p3s.base.records import scaled_dir
from p3s.base.text import (
    ends,
    join_words,
    percent,
    plural,
    processes,
    seconds,
    span,
    table,
    text_width,
)
from p3s.methods.placement.ranked.types import PLACEMENTS, Advice, Gain, Placements, Ranked, path_of
from p3s.pipeline.content import StudyContent
from p3s.program.mapping import BLOCK, CYCLIC
from p3s.report.show import Part, PartTable, lines_csv

#: Rows of a table.
_MOST_ROWS, _MOST_PHASES = 12, 8
#: What is worth a sentence.
_SMALL = 0.005
#: Below this chance of being the fastest, others are named beside the first.
_SURE = 0.5
HEAD = ("placement", "time", "90 %, messages", "to the first", "regret", "fastest", "busiest link")
PHASE_HEAD = ("phase", "time", "gain", "gain of the run")
_ADVICE_HEAD = (
    "processes", "nodes", "per node", "time", "90 %, messages", "placement", "cores", "nodes front",
)  # fmt: skip


def render(placements: Placements) -> str:
    """Return placements as text: what to do first, then the ranking and the phases."""
    parts = [*_wrap_lines(verdict(placements)), "", ranking(placements), ""]
    if phases := phase_rows(placements):
        parts += [f"{placements.ranked[0].name} instead of {default_of(placements).name}:"]
        parts += [table(phases[:_MOST_PHASES], PHASE_HEAD), ""]
    parts += [f"note: {line}" for line in notes(placements)]
    return "\n".join(parts).rstrip()


def default_of(ranked: Placements) -> Ranked:
    """Return what launchers do by themselves: block, or the last with a time where it has none."""
    block = ranked.named(BLOCK)
    return block if block is not None and block.time_s is not None else ranked.timed[-1]


def verdict(ranked: Placements) -> list[str]:
    """Return what to do, a sentence each."""
    first = ranked.ranked[0]
    sentences = [_size(ranked)]
    if not ranked.matters:
        sentences.append(
            f"Placement does not matter: the {len(ranked.timed)} that were looked at more"
            f" closely differ by {percent(_spread(ranked))}."
        )
        return sentences
    gains = [gain for gain in ranked.gains if gain.middle > _SMALL]
    if first.name == BLOCK or not any(gain.over == BLOCK for gain in gains):
        sentences.append("Keep block: nothing that was tried is faster by more than 0.5 %.")
        gains = [gain for gain in gains if gain.over != BLOCK]
        sentences += [f"It is {_gain(gain)}." for gain in gains if first.name == BLOCK]
        return sentences
    sentences.append(f"Take {first.name}: {join_words(map(_gain, gains))}.")
    if first.chance is not None and first.chance < _SURE:
        others = [
            one.name
            for one in ranked.timed[1:]
            if (one.regret or 0.0) < 2 * _SMALL + _regret(first)
        ]
        if others:
            sentences.append(f"As good, as far as can be told: {join_words(others[:3])}.")
    return sentences


def _regret(one: Ranked) -> float:
    return one.regret or 0.0


def _size(placements: Placements) -> str:
    per = sorted(set(placements.slots))
    each = ends(per[0], per[-1])
    where = f", {placements.network}" if placements.network else ""
    nodes = plural(len(placements.hosts), "node")
    each_text = " each" if len(placements.hosts) > 1 else ""
    return f"{placements.n:,} processes on {nodes} with room for {each}{each_text}{where}."


def _spread(placements: Placements) -> float:
    times = [one.time_s or 0.0 for one in placements.timed]
    return max(times) / min(times) - 1.0 if min(times) > 0 else 0.0


def _gain(gain: Gain) -> str:
    text = f"{percent(gain.middle)} faster than {gain.over}"
    if gain.low is None or gain.high is None:
        return text
    return f"{text} ({ends(100 * gain.low, 100 * gain.high, '.1f')} %)"


def ranking(placements: Placements) -> str:
    """Return the placements with a time as a table."""
    return table(rows_of(placements), HEAD)


def rows_of(ranked: Placements) -> list[list[str]]:
    """Return a row for each of the best placements, and for block and cyclic."""
    rows_shown = [
        one for k, one in enumerate(ranked.timed) if k < _MOST_ROWS or one.name in (BLOCK, CYCLIC)
    ]
    return [_row(ranked, one) for one in rows_shown]


def _row(placements: Placements, one: Ranked) -> list[str]:
    least = placements.ranked[0].time_s or 1.0
    return [
        one.name,
        seconds(one.time_s),
        span(one.low_s, one.high_s),
        f"+{percent((one.time_s or 0.0) / least - 1.0)}",
        percent(one.regret),
        percent(one.chance),
        _bytes(one.busiest),
    ]


def _bytes(number: float) -> str:
    for limit, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if number >= limit:
            return f"{number / limit:.3g} {unit}"
    return f"{number:.0f} B"


def phase_rows(placements: Placements) -> list[list[str]]:
    """Return the phases whose time differs under the first placement, those that gain most first.

    Columns: name, time under the first, gain of the phase, gain as a share of the whole run.
    """
    before, after = default_of(placements), placements.ranked[0]
    times = {phase.phase: phase.time_s for phase in before.phases}
    whole = before.time_s or 1.0
    rows = []
    for phase in after.phases:
        less = times.get(phase.phase, phase.time_s) - phase.time_s
        if abs(less) > _SMALL / 10 * whole:
            was = times[phase.phase]
            rows.append(
                (
                    less,
                    [
                        phase.name,
                        seconds(phase.time_s),
                        _format_share(less / was),
                        _format_share(less / whole),
                    ],
                )
            )
    return [row for _, row in sorted(rows, key=lambda pair: -pair[0])]


def _format_share(share: float) -> str:
    return f"{100 * share:+.1f} %"


def notes(placements: Placements) -> list[str]:
    """Return what is to be minded, a line each."""
    lines = []
    if placements.estimator:
        lines.append(
            f"{len(placements.timed)} of {len(placements.ranked)} candidates were simulated, those"
            f" that cost least by {placements.cost}; --csv has all"
        )
    if placements.left_out:
        share = percent(placements.left_out)
        lines.append(f"the cost leaves out {share} of the calls, whose messages are not known")
    outside = sorted({name for one in placements.timed for name in one.outside})
    if outside:
        lines.append(f"the learned model has not seen such values of {join_words(outside[:5])}")
    return lines + list(placements.notes)


def render_advice(advice: Advice) -> str:
    """Return configurations as text, with what is best."""
    first = advice.configurations[0]
    sentences = [
        f"Fastest: {first.n:,} processes, {first.ppn} on each of {plural(first.nodes, 'node')} "
        f"({first.placement}): {seconds(first.time_s)}."
    ]
    if advice.breaks_at is not None:
        sentences.append(f"Above {advice.breaks_at:,} processes it gets slower.")
    sentences += [_worth(advice, name) for name in ("cores", "nodes")]
    rows = [
        [
            f"{one.n:,}", str(one.nodes), str(one.ppn), seconds(one.time_s),
            span(one.low_s, one.high_s), one.placement,
            _layer(one.cores_front), _layer(one.nodes_front),
        ]
        for one in advice.configurations
    ]  # fmt: skip
    return "\n".join([*_wrap_lines(sentences), "", table(rows, _ADVICE_HEAD, left=0)])


def _worth(advice: Advice, resource: str) -> str:
    """Say which configurations are on a front, the cheapest first."""
    front = [one for one in advice.configurations if getattr(one, f"{resource}_front") == 0]
    cost = {"cores": lambda one: one.n, "nodes": lambda one: one.nodes}[resource]
    configurations = [f"{one.n:,} x {one.ppn}" for one in sorted(front, key=cost)]
    return f"Worth their {resource} (processes x ranks per node): {join_words(configurations)}."


def _layer(number: int) -> str:
    return "worth it" if number == 0 else f"layer {number}"


def _wrap_lines(sentences: Sequence[str]) -> list[str]:
    return [line for text in sentences for line in wrap(text, text_width())]


def as_csv(placements: Placements) -> str:
    """Return all placements as CSV, a row each, times in s; what is not known is empty."""
    lines: list[list[object]] = [
        ["placement", "time_s", "low_s", "high_s", "regret", "chance", "busiest_bytes", "cost_s"]
    ]
    for one in placements.ranked:
        busiest = None if one.time_s is None else one.busiest
        values = (one.time_s, one.low_s, one.high_s, one.regret, one.chance, busiest, one.cost_s)
        lines.append([one.name, *values])
    return lines_csv(lines)


def advice_csv(advice: Advice) -> str:
    """Return configurations as CSV, a row each."""
    names = ["n", "nodes", "ppn", "time_s", "low_s", "high_s", "placement"]
    names += ["cores_front", "nodes_front"]
    rows = ([getattr(one, name) for name in names] for one in advice.configurations)
    return lines_csv([names, *rows])


def section(content: StudyContent) -> Part | None:
    """Return the placements of a predicted count that were ranked last; None without any.

    Those that are older than the scaled trace, or damaged, are not shown.
    """
    root = Path(content.program.root)
    changed_at = [(changed_ns(path_of(root, row.n)), row.n) for row in content.prediction.counts]
    for changed, n in sorted(changed_at, reverse=True):
        if not changed or changed < changed_ns(scaled_dir(root, n) / "scaled.json"):
            continue
        with suppress(P3SError):
            return _part(PLACEMENTS.read(path_of(root, n)))
    return None


def _part(placements: Placements) -> Part:
    best, default = placements.ranked[0].name, default_of(placements).name
    tables = [PartTable("Placements", HEAD, rows_of(placements))]
    if phases := phase_rows(placements):
        lead = f"Phases under {best}, beside {default}:"
        tables.append(PartTable("Phases that gain", PHASE_HEAD, phases, lead))
    return Part(
        "placements",
        f"Which rank on which node, {processes(placements.n)}",
        " ".join(verdict(placements)),
        tables,
        notes=notes(placements),
    )
