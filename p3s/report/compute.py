"""Tables of computation as text and as CSV: instructions (thesis, Table 5.2), and the time of one
process in one iteration with what it rests on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from p3s.base.text import NOT_KNOWN, align_columns, ends, percent, processes, seconds, visible
from p3s.costs.counted import PER_INSTRUCTION, Counted, InstructionEquation, caches_left
from p3s.costs.laws import CostLaw
from p3s.costs.laws import text as text_of
from p3s.costs.types import NOT_LEFT, SHOWN, ComputeModel, CostHoldOut, LawEntry, PhaseCosts, Row
from p3s.model.work.scic import InstructionTable
from p3s.model.work.scic import Row as InstructionRow
from p3s.report.phase_table import volume
from p3s.report.show import Columns, csv_of, lines_of, table_of
from p3s.signature.clock import TIMES

_UNITS = {
    "instructions": "instructions",
    "cpu_ns": "ns of CPU time by the model",
    "wall_ns": "ns of wall time by the model",
}
#: Columns of numbers of the table as CSV, by the field of a row.
_FIGURES = {
    "processes": "n",
    "run_processes": "traced",
    "work_per_turn": "x",
    "measured_ns": "measured",
    "predicted_ns": "predicted",
    "low_ns": "low",
    "high_ns": "high",
    "outside": "outside",
    "crm_i_ns": "crm_i",
    "crm_c_ns": "crm_c",
}


def table(compute: ComputeModel, rows: Sequence[Row]) -> str:
    """Return the compute model as text, a part per phase that matters, largest share first."""
    share = compute.shares
    phases = sorted(compute.phases, key=lambda p: (-share.get(p.phase, 0.0), p.phase))
    shown = [p for p in phases if share.get(p.phase, 0.0) >= SHOWN] or phases[:1]
    out = [f"Time of one process in one iteration of each phase; work in {_unit(compute)}.", ""]
    for phase in shown:
        mine = [r for r in rows if r.phase == phase.phase]
        out += [*phase_lines(compute, phase, share.get(phase.phase, 0.0), mine), ""]
    rest = [p for p in phases if p not in shown and share.get(p.phase, 0.0) > 0]
    if rest:
        part = percent(sum(share[p.phase] for p in rest))
        out += [
            f"{len(rest)} more phase{'s' if len(rest) > 1 else ''} with {part} of the "
            "computation: --json has all.",
            "",
        ]
    return "\n".join([*out, *remarks(compute)]).rstrip()


def phase_lines(
    compute: ComputeModel, phase: PhaseCosts, share: float, rows: Sequence[Row]
) -> list[str]:
    """Return the part of one phase as lines."""
    out = [f"phase {phase.phase}: {visible(str(phase.name))} ({percent(share)} of the computation)"]
    entries = compute.laws_of(phase.phase)
    for entry in entries:
        if entry.kind == "phase" or len(entries) > 2:
            out += [f"  {_whose(entry)}: {line}" for line in law_lines(entry.law)]
    if phase.x:
        low, high = phase.x
        out.append(
            f"  measured: {ends(number(low), number(high))} of work per iteration"
            + (f", as at {ends(*map(number, phase.n))} processes" if phase.n else "")
        )
    out += [f"  {line}" for line in thesis_lines(phase)]
    out += [f"  {line}" for line in spread_lines(phase)]
    return [*out, *_table(rows)]


def law_lines(law: CostLaw) -> list[str]:
    """Return a law of cost in words, and what is to be kept in mind with it."""
    out = [words(law)]
    if law.refused:
        out.append(f"little is known: {law.refused}")
    if law.rivals:
        out.append(f"as likely: {', '.join(law.rivals)}")
    if law.disturbed:
        out.append(f"taken for disturbed: {', '.join(visible(d) for d in law.disturbed)}")
    return out


def words(law: CostLaw) -> str:
    """Return a law of cost in words."""
    text = text_of(law)
    if law.unit in TIMES:
        if text == f"1 ns per {law.unit}":
            return "takes its modelled work"
        return "takes " + text.replace(f" ns per {law.unit}", " times its modelled work")
    return "costs " + text.replace(f"per {law.unit}", f"per {law.unit.removesuffix('s')}")


def _whose(entry: LawEntry) -> str:
    if entry.kind == "phase":
        return "one unit of work"
    places = [op for _, op in entry.places]
    names = ", ".join(visible(op) for op in list(dict.fromkeys(places))[:3])
    what = "before" if entry.kind == "place" else "small parts before"
    return f"{what} {names} ({percent(entry.share)})"


def thesis_lines(phase: PhaseCosts) -> list[str]:
    """Return the power laws of the thesis and the far point they rest on."""
    out = []
    for title, law in (("CRM_i", phase.crm_i), ("CRM_c", phase.crm_c)):
        if law:
            out.append(f"{title}: {law.a:.4g} n^{law.b:.4g} ns")
    far = phase.far
    if phase.crm_why and phase.crm_i:
        out[-1] += f" (no CRM_c: {visible(phase.crm_why)})"
    if far:
        least = "where the cost is least" if far.reached else "the cost was still falling there"
        out.append(
            f"far point: {visible(far.source)} at {processes(far.traced)} stands for "
            f"{number(far.n)}, {least}"
        )
    return out


def spread_lines(phase: PhaseCosts) -> list[str]:
    """Return how much the time varies between ranks and between turns."""
    found = phase.spread
    out = []
    for name, part, seen in (
        ("ranks", found.ranks, found.ranks_seen),
        ("turns", found.turns, found.rows_seen),
    ):
        if len(part.levels) > 1 and seen:
            low, high = (f"{v:.3g}" for v in part.quantile([0.05, 0.95]))
            out.append(
                f"{name} take {ends(low, high)} times their mean (90 % of them); the "
                f"slowest of 1,000 {part.expected_largest(1000):.3g} times"
            )
    return out


def remarks(compute: ComputeModel) -> list[str]:
    """Return the hold-out, disturbed runs, and what could not be used, a sentence each."""
    out = []
    if compute.holdout:
        out += _held_out(compute.holdout)
    out += compute.unknown_costs()
    out += _list_disturbed(compute)
    for n, part in compute.unmatched.items():
        if part > 0.005:
            out.append(
                f"at {processes(int(n))} {percent(part)} of the time is in calls that the "
                "signature does not have equally often"
            )
    for other in compute.refused:
        out.append(f"{visible(other.name)} is not used: {visible(other.why, 300)}")
    return out


def _held_out(held: CostHoldOut) -> list[str]:
    """Return how well the largest count was predicted, and which phases it alone has."""
    out = []
    if held.mean_abs_error is not None:
        out.append(
            f"fitted without {processes(held.n)}, times there are off by "
            f"{percent(held.mean_abs_error)} in the mean, "
            f"{percent(held.max_abs_error)} at most"
        )
    return out + [
        f"phase {e.phase} ({percent(e.share)} of the computation) was measured at "
        f"{processes(held.n)} only: how its cost goes on is not known"
        for e in held.each
        if e.unknown == NOT_LEFT
    ]


def _list_disturbed(compute: ComputeModel) -> list[str]:
    """Return which runs were disturbed: one line per count, with one run as an example."""
    out = []
    for n in sorted({int(run.np) for run in compute.runs}):
        made = [run for run in compute.runs if int(run.np) == n]
        bad = [run for run in made if run.disturbed]
        if bad:
            many = (
                f"{len(bad)} of {len(made)} runs at {processes(n)}, for example "
                if len(bad) > 1
                else ""
            )
            out.append(
                f"disturbed: {many}{visible(bad[0].dir)}: "
                f"{visible('; '.join(map(str, bad[0].disturbed)), 300)}"
            )
    return out


def _table(rows: Sequence[Row]) -> list[str]:
    """Return the times of a phase as lines, and their columns where nothing is known."""

    def time(name: str) -> Callable[[Row], str]:
        return lambda r: "" if (ns := getattr(r, name)) is None else seconds(ns / 1e9)

    far = any(r.source not in ("own", "predicted") for r in rows)
    thesis = [name for name in ("crm_i", "crm_c") if any(getattr(r, name) for r in rows)]
    run: Columns[Row] = {"run": _run} if far else {}
    columns: Columns[Row] = {
        "processes": lambda r: number(r.n) if r.n else "-",
        **run,
        "work per iteration": lambda r: number(r.x),
        "measured": time("measured"),
        "predicted": time("predicted"),
        "": _sure,
        **{name.upper()[:4] + name[4:]: time(name) for name in thesis},
    }
    table = table_of("", columns, rows)
    return align_columns([table.head, *table.rows], indent="    ")


def _run(row: Row) -> str:
    """Return which run a row is of, where it is none of the study's own."""
    own = row.source in ("own", "predicted")
    return "" if own else f"{visible(row.source, 40)} at {row.traced}"


def _sure(row: Row) -> str:
    """Return the error where it is known, else the interval, and how far outside."""
    if row.measured and row.predicted is not None:
        return f"{100 * (row.predicted - row.measured) / row.measured:+.1f} %"
    if row.low is None or row.high is None:
        return ""
    text = ends(seconds(row.low / 1e9), seconds(row.high / 1e9))
    return text + (f", x{row.outside:.3g} outside" if row.outside > 1.005 else "")


def number(value: float) -> str:
    """Return a number of processes or of work with the digits that matter."""
    if value >= 100 or value == round(value):
        return f"{value:,.0f}"
    return f"{value:.4g}"


def _unit(compute: ComputeModel) -> str:
    return _UNITS.get(compute.work_unit, visible(str(compute.work_unit)))


def csv(compute: ComputeModel, rows: Sequence[Row]) -> str:
    """Return the compute table as CSV: a line per phase, source and count.

    Columns: phase, name, source (own, a workload's name, predicted), processes (of the original
    workload), run_processes, work_per_turn, measured_ns, predicted_ns, low_ns, high_ns, outside,
    crm_i_ns, crm_c_ns: time of one process in one iteration; unit of the work.
    """
    names = {p.phase: p.name for p in compute.phases}

    def figure(field: str) -> Callable[[Row], object]:
        return lambda r: "" if (value := getattr(r, field)) is None else f"{value:.10g}"

    columns: Columns[Row] = {
        "phase": lambda r: r.phase,
        "name": lambda r: names.get(r.phase, ""),
        "source": lambda r: r.source,
        **{name: figure(field) for name, field in _FIGURES.items()},
        "unit": lambda _: compute.work_unit,
    }
    return csv_of(columns, rows)


# ---- instructions -----------------------------------------------------------------------------
_NAMES = {"instructions": "instructions", "cpu_ns": "ns of CPU time", "wall_ns": "ns"}


def instruction_text(found: InstructionTable) -> str:
    """Return the instruction table as text, one part per phase and instruction group."""
    unit = _NAMES.get(found.unit, found.unit)
    out = []
    for phase, group in dict.fromkeys((r.phase, r.group) for r in found.rows):
        rows = [r for r in found.rows if (r.phase, r.group) == (phase, group)]
        groups = len({r.group for r in found.rows if r.phase == phase})
        name = f"phase {phase}: {visible(rows[0].name)}"
        if groups > 1:
            name += f", instruction group {group + 1} of {groups}"
            guard = found.guards.get((phase, group))
            name += f" (if {guard})" if guard else ""
        out += [name, *_part(rows, unit, groups > 1), ""]
        if group == groups - 1:
            out += [*_balance(found, phase), ""]
    return "\n".join(out)


def _part(rows: Sequence[InstructionRow], unit: str, grouped: bool) -> list[str]:
    """Return one part of the table: measured above predicted."""
    truth = {r.n: r.total for r in rows if r.measured}
    of_group: Columns[InstructionRow] = {"of them": lambda r: r.ranks} if grouped else {}
    who: Columns[InstructionRow] = {"ranks": lambda r: r.where} if grouped else {}
    columns: Columns[InstructionRow] = {
        f"{unit} per process and iteration": lambda r: number(r.work),
        "processes": lambda r: r.n,
        **of_group,
        "weight": lambda r: f"{r.weight:,.10g}",
        f"total {unit}": lambda r: number(r.total),
        "": lambda r: "measured" if r.measured else f"predicted{_off(r, truth.get(r.n))}",
        **who,
    }
    ordered = sorted(rows, key=lambda r: not r.measured)
    return lines_of(table_of("", columns, ordered, left=(len(columns) - 1 - grouped,)), 4)


def _off(row: InstructionRow, truth: float | None) -> str:
    """Return the error where it is known, else the half width of the interval."""
    if truth:
        return f", {100 * (row.total - truth) / truth:+.2f} %"
    return f", within {percent(row.half_width / row.total)}" if row.total else ""


def _balance(found: InstructionTable, phase: int) -> list[str]:
    """Return whether the phase's total stays what it was (strong scaling, Eq. 5.4 and 5.5)."""
    counts = sorted({r.n for r in found.rows if r.phase == phase and r.measured})
    totals = [t for n in counts if (t := found.total(phase, n, True))]
    if len(totals) < 2:
        return []
    change = totals[-1] / totals[0] - 1
    return [
        f"  total of all ranks from {counts[0]} to {counts[-1]} processes: {100 * change:+.2f} %"
    ]


def equation_lines(found: Sequence[InstructionEquation], everything: str) -> list[str]:
    """Return the instruction equation of each phase, a line each; everything: prints the table."""
    columns: Columns[InstructionEquation] = {
        "phase": lambda e: e.last.phase,
        "equation": lambda e: e.law.text(),
        "at": lambda e: e.last.n,
        "in one iteration": lambda e: number(e.last.each["instructions"]),
        "weight": lambda e: f"{e.last.weight:,.10g}",
        "of all ranks": lambda e: number(e.last.instructions or 0.0),
        "held out": lambda e: NOT_KNOWN if e.off is None else f"{100 * e.off:+.2f} %",
    }
    least = SHOWN * sum(each.last.instructions or 0.0 for each in found)
    rows = [each for each in found if (each.last.instructions or 0.0) >= least]
    head = f"instructions of a process in the run (all counts, groups and phases: {everything})"
    return [head, *lines_of(table_of("", columns, rows, left=(1,)), 2)] if rows else []


def counted_text(found: Sequence[Counted]) -> str:
    """Return what hardware counters counted, phase by phase, and where a cache is left."""
    names = dict.fromkeys(name for row in found for name in row.each)
    columns: Columns[Counted] = {
        "processes": lambda r: r.n,
        "bytes of a process": lambda r: number(r.block) if r.block else NOT_KNOWN,
        **{name: _each(name) for name in names},
        **{text: _ratios(key) for key, text in PER_INSTRUCTION.items() if key in names},
    }
    out = ["counters, per process and iteration:"]
    for phase in dict.fromkeys(row.phase for row in found):
        rows = sorted((row for row in found if row.phase == phase), key=lambda row: row.n)
        out += [
            f"phase {phase}: {visible(rows[0].name)}",
            *lines_of(table_of("", columns, rows), 4),
        ]
        out += [
            f"  leaves a cache at about {volume(each.block)} of a process: "
            f"{PER_INSTRUCTION[each.counter]} go from {_ratio(each.before)} to {_ratio(each.after)}"
            for each in caches_left(rows)
        ]
    return "\n".join(out)


def _each(name: str) -> Callable[[Counted], object]:
    return lambda r: number(r.each[name]) if name in r.each else NOT_KNOWN


def _ratios(name: str) -> Callable[[Counted], object]:
    return lambda r: _ratio(r.per_instruction(name))


def _ratio(value: float | None) -> str:
    return NOT_KNOWN if value is None else f"{value:.3g}"


def instruction_csv(found: InstructionTable) -> str:
    """Return the instruction table as CSV: a line per phase, group and count.

    Columns: phase, name, group (from 1), where (ranks), part (measured or predicted), processes,
    ranks (of the group), weight (iterations of the phase in the run), work (of one process in one
    iteration), total (of the group in the run), half_width (of the total's 90 % interval), unit.
    """
    columns: Columns[InstructionRow] = {
        "phase": lambda r: r.phase,
        "name": lambda r: r.name,
        "group": lambda r: r.group + 1,
        "where": lambda r: r.where,
        "part": lambda r: "measured" if r.measured else "predicted",
        "processes": lambda r: r.n,
        "ranks": lambda r: r.ranks,
        "weight": lambda r: f"{r.weight:.10g}",
        "work": lambda r: f"{r.work:.10g}",
        "total": lambda r: f"{r.total:.12g}",
        "half_width": lambda r: f"{r.half_width:.6g}",
        "unit": lambda _: found.unit,
    }
    return csv_of(columns, found.rows)
