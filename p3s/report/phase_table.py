"""Phases as a table, and the account of all events and all the time.

Everything fits 100 columns. What is left out says so, and that ``--all`` shows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from p3s.base.text import NOT_KNOWN, join_words, paragraph, percent, seconds, visible
from p3s.costs.counted import CYCLES, MISSES, Counted
from p3s.report.places import Places, common_place
from p3s.report.show import Part, PartTable, lines_of
from p3s.signature.phase_file import Account, Call, Loop, Phase, Phases, recorded_text
from p3s.signature.rank import INSTRUCTIONS

WIDTH = 100
#: Without --all: rows of the table.
MAX_PHASES = 40
#: More columns of weights than these become one, with the others on a line of their own.
_MAX_WEIGHTS = 4
_PART_NAMES = {
    "start": "start of the program",
    "relevant": "relevant phases",
    "rest": "the rest",
    "end": "end of the program",
}


# ---- words -------------------------------------------------------------------------------------
def volume(count: float) -> str:
    """Return bytes with three figures and a fitting unit (powers of 1000)."""
    for limit, unit in ((1e3, "B"), (1e6, "kB"), (1e9, "MB"), (1e12, "GB"), (1e15, "TB")):
        if count < limit * 0.9995:
            value = count / (limit / 1e3)
            return f"{count:.0f} B" if unit == "B" else f"{value:.3g} {unit}"
    return f"{count / 1e15:.3g} PB"


def amount(work: float, unit: str) -> str:
    """Return work in its unit: a time, or a number of instructions."""
    if unit.endswith("_ns"):
        return seconds(work / 1e9)
    for limit, name in ((1e3, ""), (1e6, "k"), (1e9, "M"), (1e12, "G"), (1e15, "T")):
        if abs(work) < limit * 0.9995:
            return f"{work / (limit / 1e3):.3g} {name}".rstrip()
    return f"{work / 1e15:.3g} P"


def cut(text: str, width: int) -> str:
    """Return text in at most ``width`` columns, its middle left out."""
    if len(text) <= width:
        return text
    keep = max(width - 1, 2)
    return f"{text[: keep // 3]}…{text[len(text) - (keep - keep // 3) :]}"


def span(low: int, high: int) -> str:
    """Return a number, or two as a range."""
    return f"{high:,}" if low == high else f"{low:,}..{high:,}"


def of_ranks(ranks: int, count: int) -> str:
    """Return how many of the ranks take part."""
    return f"all {count}" if ranks == count else f"{ranks} of {count}"


# ---- where a call or a loop is -----------------------------------------------------------------
def loop_place(calls: Iterable[Call], sites: Mapping[str, Sequence[str]], places: Places) -> str:
    """Return the innermost function around all calls of a loop, with the lines they are at."""
    used = dict.fromkeys(call.site for call in calls)
    return common_place(
        [sites[site] for site in used if sites.get(site)], places, WIDTH - len("phase  ")
    )[0]


# ---- table -------------------------------------------------------------------------------------
def table(
    found: Phases, places: Places, everything: bool = False, counted: Sequence[Counted] = ()
) -> list[str]:
    """Return the phases as a table: a row per relevant phase (of all phases on demand).

    counted: what hardware counters say of phases, with columns of its own.
    """
    last = found.counts[-1]
    of_phase = {row.phase: row for row in counted if row.n == last}
    heads = {name: head for name, head in _COUNTERS.items() if any(name in r.each for r in counted)}
    listed = [phase for phase in found.phases if everything or phase.relevant]
    dropped = len(listed) - MAX_PHASES if not everything else 0
    listed = listed[: None if dropped <= 0 else MAX_PHASES]
    loops = {loop.loop: loop for loop in found.tree.loops()}
    same = all(len(set(_weights(phase, found.counts))) == 1 for phase in listed)
    columns = [last] if same or len(found.counts) > _MAX_WEIGHTS else list(found.counts)
    weights_head = [str(n) for n in columns]
    weights_head[0] = "weight" if len(columns) == 1 else f"weight at {columns[0]}"
    head = ["phase", "time", *weights_head, "ranks", "calls", "bytes", "work", "total work"]
    head += heads.values()
    rows, below = [], []
    for phase in listed:
        cost = phase.per_count.get(last)
        weights = _weights(phase, found.counts)
        shown = [weights[found.counts.index(n)] for n in columns]
        if cost is None:
            row = [str(phase.phase), NOT_KNOWN, *shown, f"none of {last}", *[NOT_KNOWN] * 3]
        else:
            row = [
                str(phase.phase),
                percent(cost.share),
                *shown,
                of_ranks(cost.ranks, last),
                f"{cost.events:,}",
                volume(cost.bytes),
                amount(cost.work, found.work_unit),
            ]
        counters = [_counter(of_phase.get(phase.phase), name) for name in heads]
        rows.append([*row, work_change(phase, found.counts), *counters])
        more = [_phase_place(phase, loops[phase.loop], found, places)]
        if len(columns) == 1 and len(set(weights)) > 1:
            pairs = zip(found.counts, weights, strict=True)
            more.append(f"weights {' '.join(f'{n}:{w}' for n, w in pairs)}")
        if cost is not None and cost.operations:
            more.append(_operations(cost.operations))
        below.append(_join_parts(more, WIDTH - len("phase  ")))
    lines = lines_of(PartTable("Phases", head, rows, left=(), below=below))
    hidden = len(found.phases) - len(listed)
    if hidden:
        rest = [
            p.per_count[last].share for p in found.phases if p not in listed and last in p.per_count
        ]
        lines.append(
            f"{hidden} more phase{'s' * (hidden > 1)} with {percent(sum(rest))} of the time:"
            " --all shows them"
        )
    return [*lines, *_about_work(listed, found.counts), *_about_builds(found)]


#: Columns of hardware counters: instructions of all ranks, others per instruction.
_COUNTERS = {INSTRUCTIONS: "instructions", CYCLES: "CPI", MISSES: "misses/instr"}


def _counter(row: Counted | None, name: str) -> str:
    """Return the cell of a counter."""
    if row is None:
        return NOT_KNOWN
    if name == INSTRUCTIONS:
        return NOT_KNOWN if row.instructions is None else amount(row.instructions, name)
    value = row.per_instruction(name)
    return NOT_KNOWN if value is None else f"{value:.3g}"


def _about_builds(found: Phases) -> list[str]:
    """Say which counts run other builds, and how their calls were matched."""
    if not found.matched:
        return []
    each = (f"{m.alike} of {m.calls} at {n}" for n, m in sorted(found.matched.items()))
    return paragraph(
        f"calls of other builds, matched with those at {found.counts[-1]} by functional "
        f"similarity (operation, tags, element sizes, loops, order; limit 80 %): {join_words(each)}"
    )


def _join_parts(parts: Sequence[str], width: int) -> list[str]:
    """Return parts one after the other, on as few lines as they fit."""
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + 2 + len(part) <= width:
            lines[-1] += f"  {part}"
        else:
            lines.append(cut(part, width))
    return lines


def _weights(phase: Phase, counts: Sequence[int]) -> list[str]:
    costs = [phase.per_count.get(n) for n in counts]
    return [NOT_KNOWN if c is None else span(c.weight_min, c.weight) for c in costs]


def _phase_place(phase: Phase, loop: Loop, found: Phases, places: Places) -> str:
    if phase.parent is None:
        return "outside all loops"
    return loop_place(loop.calls(), found.sites, places)


def work_change(phase: Phase, counts: Sequence[int]) -> str:
    """Return the largest total work over the smallest: about 1x where Eq. 5.1 holds."""
    works = [phase.per_count[n].work for n in counts if n in phase.per_count]
    if len(works) < 2 or min(works) <= 0:
        return NOT_KNOWN
    return f"{max(works) / min(works):.3g}x" + ("" if phase.constant_work else " !")


def _about_work(listed: Sequence[Phase], counts: Sequence[int]) -> list[str]:
    if len(counts) < 2 or not listed:
        return []
    changing = [
        str(phase.phase)
        for phase in listed
        if not phase.constant_work and phase.total_work_spread is not None
    ]
    text = (
        f"total work: of all ranks, largest over smallest from {counts[0]} to {counts[-1]} "
        "processes (Eq. 5.1); "
    )
    if changing:
        more = "s" * (len(changing) > 1)
        text += f"not constant within 10 % in phase{more} {', '.join(changing)} (!)"
    else:
        text += "constant within 10 %"
    return paragraph(text)


def _operations(operations: Mapping[str, int], limit: int = 5) -> str:
    listed = sorted(operations.items(), key=lambda item: (-item[1], item[0]))
    text = "  ".join(f"{visible(op)} {number:,}" for op, number in listed[:limit])
    return text + (f"  and {len(listed) - limit} more" if len(listed) > limit else "")


# ---- accounting --------------------------------------------------------------------------------
def account(found: Phases) -> Part:
    """Return where all events and all the time of each count are: phases, rest, start, end."""
    rows: list[list[str]] = []
    for n in found.counts:
        of_count = found.accounting[n]
        first = len(rows)
        for key, name in _PART_NAMES.items():
            part = of_count.parts[key]
            rows.append(["", name, *_part(part.events, part.time_ns, of_count)])
        lost = of_count.events - sum(part.events for part in of_count.parts.values())
        lost_ns = of_count.time_ns - sum(part.time_ns for part in of_count.parts.values())
        if lost or lost_ns:
            rows.append(["", "not accounted for", *_part(lost, lost_ns, of_count)])
        rows.append(["", "all", *_part(of_count.events, of_count.time_ns, of_count)])
        rows[first][0] = str(n)
    head = ["processes", "part", "events", "of all", "time", "of all"]
    title = "All events and all the time"
    return Part(
        "account", title, tables=[PartTable(title, head, rows, left=(1,))], notes=_notes(found)
    )


def _notes(found: Phases) -> list[str]:
    """Return what the account needs in words, each a sentence."""
    notes = []
    for n in found.counts:
        of_count = found.accounting[n]
        parts = []
        if of_count.null_events:
            parts.append(f"{of_count.null_events:,} of the events are to or from MPI_PROC_NULL")
        if of_count.failed_polls:
            parts.append(f"{of_count.failed_polls:,} polls found nothing and are no events")
        if parts:
            notes.append(f"{n} processes: {'; '.join(parts)}")
    notes += recorded_text(found.recorded, found.counts)
    notes += _note_matched(found)
    chance = [str(phase.phase) for phase in found.phases if phase.varying]
    if chance:
        notes.append(
            f"the calls of phases {', '.join(chance)} differ from run to run at one "
            "count: their weights are of one of the runs"
        )
    return notes


def _note_matched(found: Phases) -> list[str]:
    """Say how much of the time is in calls that all counts have, and which not all have."""
    if len(found.counts) < 2:
        return []
    calls = list(found.tree.calls())
    common = [call for call in calls if all(n in call.count for n in found.counts)]
    shares = []
    for n in found.counts:
        mine = sum(call.time_ns.get(n, 0) for call in common)
        total = found.accounting[n].time_ns
        shares.append(f"{percent(mine / total if total else None)} at {n}")
    lines = [f"in calls that all counts have: {', '.join(shares)} processes (of the time)"]
    apart: dict[tuple[int, ...], list[Call]] = {}
    for call in calls:
        where = tuple(n for n in found.counts if n in call.count)
        if 0 < len(where) < len(found.counts):
            apart.setdefault(where, []).append(call)
    for where, some in sorted(apart.items()):
        n = where[-1]
        total = found.accounting[n].time_ns
        share = percent(sum(c.time_ns.get(n, 0) for c in some) / total if total else None)
        ops = _operations(
            {op: sum(c.op == op for c in some) for op in dict.fromkeys(c.op for c in some)}, 3
        )
        lines.append(
            f"only at {', '.join(map(str, where))}: {len(some)} of the calls, {share} of"
            f" the time at {n} ({ops.replace('  ', ', ')})"
        )
    return lines


def _part(events: int, time_ns: int, account: Account) -> list[str]:
    return [
        f"{events:,}",
        percent(events / account.events if account.events else None),
        seconds(time_ns / 1e9),
        percent(time_ns / account.time_ns if account.time_ns else None),
    ]
