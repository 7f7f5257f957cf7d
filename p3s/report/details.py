"""Parts of a report that tell of a prediction's times: efficiencies, changes, files, estimators."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from p3s.base.text import ends, factor, percent, processes, seconds, size_text, span, visible
from p3s.costs.types import FileUseAt
from p3s.predict.estimated import ESTIMATORS
from p3s.predict.types import Efficiencies, Prediction, Residual, WhatIf, part_s
from p3s.report.charts import bars
from p3s.report.charts.figures import on_page
from p3s.report.counts import thin_values
from p3s.report.show import Cell, Columns, Part, PartTable, table_of

#: Counts of a table of efficiencies, and of one of changes; changes and calls that are listed.
MAX_EFFICIENCIES, MAX_COUNTS, MAX_CHANGES, MAX_CALLS = 12, 8, 20, 12
#: Efficiencies by their field: name, how deep it stands below the global one, what it is.
EFFICIENCIES = {
    "global_efficiency": ("Global efficiency", 0, "parallel efficiency × computation scalability"),
    "parallel": (
        "Parallel efficiency",
        1,
        "load balance × communication efficiency: mean computation of a rank over the run time",
    ),
    "load_balance": ("Load balance", 2, "mean computation of a rank over that of the busiest one"),
    "communication": (
        "Communication efficiency",
        2,
        "serialisation × transfer: computation of the busiest rank over the run time",
    ),
    "serialisation": (
        "Serialisation efficiency",
        3,
        "computation of the busiest rank over the run time on an ideal network: what is missing "
        "is waiting for each other",
    ),
    "transfer": (
        "Transfer efficiency",
        3,
        "run time on an ideal network, where messages take no time, over the run time",
    ),
    "computation_scalability": (
        "Computation scalability",
        1,
        "computation of all ranks together at the baseline over that here",
    ),
}
#: What traced runs do not tell.
_SIMULATED = ("global_efficiency", "serialisation", "transfer")
#: From here on an efficiency is taken to be good; below the other one it needs a look.
GOOD, POOR = 0.8, 0.6


# ---- efficiencies --------------------------------------------------------------------------------
def efficiencies(prediction: Prediction) -> Part | None:
    """Return the efficiencies by the names of the POP project; None where none is known."""
    shown = thin_values(
        [(row.n, row.pop) for row in prediction.counts if row.pop], MAX_EFFICIENCIES
    )
    if not shown:
        return None
    rows = [
        [
            Cell(f"{'  ' * depth}{name}", f"d-{depth}"),
            *(_tone_cell(_get_efficiency(pop, key)) for _, pop in shown),
            Cell(what, "notes soft"),
        ]
        for key, (name, depth, what) in EFFICIENCIES.items()
        if any(_get_efficiency(pop, key) is not None for _, pop in shown)
    ]
    head = ["processes", *(f"{n:,}" for n, _ in shown), "what it is"]
    tables = [PartTable("Efficiencies", head, rows, left=(0, len(head) - 1), kind="pop")]
    notes = ["Of the model; computation is neither MPI nor files."]
    if any(pop.transfer is None for _, pop in shown):
        notes.append(
            "Where there is a dash, p3s predict --what-if network=ideal tells transfer and "
            "serialisation apart."
        )
    if runs := [(row.n, row.pop_measured) for row in prediction.counts if row.pop_measured]:
        of_runs = {key: name for key, (name, *_) in EFFICIENCIES.items() if key not in _SIMULATED}
        cells = [
            [f"{n:,}", *(percent(_get_efficiency(pop, key)) for key in of_runs)]
            for n, pop in thin_values(runs, MAX_EFFICIENCIES)
        ]
        lead = (
            "Of the traced runs, as measured; a dash: ranks shared cores, or the run is for "
            "another network."
        )
        tables.append(
            PartTable("Traced runs", ["processes", *of_runs.values()], cells, lead, left=())
        )
    return Part(
        "efficiencies",
        "Efficiencies",
        "By the names of the POP project (co-design.pop-coe.eu/metrics): what is indented "
        "multiplies to what stands above it. 80 % and more is good, less than 60 % needs a look.",
        tables,
        notes=notes,
    )


def _get_efficiency(found: Efficiencies, key: str) -> float | None:
    value: float | None = getattr(found, key)
    return value


def _tone_cell(value: float | None) -> Cell:
    """Return an efficiency, its tone good, fair or poor."""
    if value is None:
        return Cell(percent(None), "none")
    return Cell(percent(value), "good" if value >= GOOD else "fair" if value >= POOR else "poor")


# ---- changes -------------------------------------------------------------------------------------
def what_if(prediction: Prediction) -> Part | None:
    """Return what changes would save at the largest count; None where nothing was changed."""
    last = prediction.last
    found = [each for each in prediction.what_if if each.last.n == last.n]
    if not found:
        return None
    columns: Columns[WhatIf] = {
        "what if": lambda each: visible(each.text, 80),
        "saves": lambda each: seconds(each.last.saved_s),
        "interval": lambda each: span(each.last.saved_low_s, each.last.saved_high_s),
        "share": lambda each: _format_saving(each.last.saved_s, last.time_s),
        "time": lambda each: seconds(each.last.time_s),
        "speedup": lambda each: factor(each.last.speedup),
        "interval ": _speedups,
    }
    tables = [table_of("What changes would save", columns, found[:MAX_CHANGES])]
    asked = [each for each in found if each.asked][:MAX_CHANGES]
    if asked and len(prediction.counts) > 1:
        at = thin_values(prediction.counts, MAX_COUNTS)
        rows = [["as it is", *(factor(row.speedup) for row in at)]]
        for each in asked:
            known = {one.n: one.speedup for one in each.counts}
            rows.append([visible(each.text, 80), *(factor(known.get(row.n)) for row in at)])
        head = ["speedup", *(f"{row.n:,}" for row in at)]
        tables.append(PartTable("Speedups with changes", head, rows))
    return Part(
        "what-if",
        f"What if, at {processes(last.n)}",
        "How much shorter the run would be with one change, with the 90 % interval of the "
        "difference.",
        tables,
        notes=_note_changes(prediction, found),
    )


def _format_saving(saved: float, time: float) -> str:
    """Return which part of the run time is saved; of one that is longer how much it is more."""
    share = percent(abs(saved) / time if time > 0 else 0.0)
    return f"-{share}" if saved < 0 and share != "0.0 %" else share


def _speedups(each: WhatIf) -> str:
    """Return the interval of a speedup with a change."""
    low, high = each.last.speedup_low, each.last.speedup_high
    if low is None or high is None:
        return span(None, None)
    return f"{factor(low)[:-1]}–{factor(high)}"


def _note_changes(prediction: Prediction, found: Sequence[WhatIf]) -> list[str]:
    """Return what is to be kept in mind of changes."""
    base = processes(prediction.baseline_n)
    said = [f"each change is made alone; speedups are over the program as it is with {base}"]
    if any((each.last.saved_low_s or 0.0) < 0 < each.last.saved_s for each in found if each.counts):
        said.append("where an interval reaches below 0 s the change may as well save nothing")
    why = dict.fromkeys(visible(each.why, 300) for each in found if each.why)
    notes = dict.fromkeys(visible(note, 300) for each in found for note in each.notes)
    return [*said, *why, *notes]


# ---- files ---------------------------------------------------------------------------------------
def files(prediction: Prediction) -> Part | None:
    """Return the calls on files at the largest count, those that take longest first, or None."""
    uses = prediction.files
    if not uses:
        return None
    columns: Columns[FileUseAt] = {
        "call": lambda use: visible(use.op, 40),
        "what": lambda use: use.what,
        "processes": lambda use: f"{use.processes:,}",
        "files": lambda use: use.files,
        "bytes": lambda use: size_text(use.nbytes) if use.nbytes else "",
        "calls": lambda use: f"{use.calls:,.0f}",
        "pattern": _pattern,
        "time": lambda use: seconds(use.seconds),
        "interval": lambda use: span(use.low_s, use.high_s),
    }
    left = sum(use.seconds for use in uses[MAX_CALLS:])
    cut = [f"{len(uses) - MAX_CALLS} more calls with {seconds(left)}."] * (len(uses) > MAX_CALLS)
    source = visible(prediction.files_from, 200)
    times = f"Times of the process that takes longest, over the run; costs: {source}."
    return Part(
        "files",
        f"Files at {processes(prediction.last.n)}",
        tables=[table_of("Files", columns, uses[:MAX_CALLS])],
        notes=[times, *cut],
    )


def _pattern(use: FileUseAt) -> str:
    """Return how bytes lie in a file, and how many accesses go on where one ended."""
    if not use.nbytes:
        return ""
    pattern = {"dense": "contiguous", "strided": "strided"}.get(use.pattern, use.pattern)
    return pattern + f", {percent(use.follows)} in a row" * (use.follows >= 0.01)


# ---- how sure ------------------------------------------------------------------------------------
#: What the parts of an interval are, in the order of the page.
_INTERVAL_PARTS = {
    "work": "how much work each rank has",
    "cost": "what a unit of work costs",
    "replay": "what messages cost",
    "files": "what files cost",
    "residual": "what no other part knows, by what was missed at the measured counts",
}
_INTERVAL = "Interval: 5 % and 95 % of joint draws of these parts, each with its own 90 % interval."
_ESTIMATED = {
    "compute": "compute",
    "communication": "comm",
    "waiting": "waiting",
    "transfer": "transfer",
    "software": "software",
}
#: Verdicts, the surest first; others follow. They are of messages, sizes and
#: weights: work is fitted whatever they say.
_SURE = ("exact", "fitted", "stated", "statistical", "ambiguous", "not seen", "unknown")


def interval_part(prediction: Prediction) -> Part:
    """Return what the interval at the largest count is made of, and which estimator it is by."""
    last = prediction.last
    estimator, why = visible(prediction.estimator, 60), visible(prediction.estimator_why, 600)
    what, rows = f"what it is made of at {processes(last.n)}", bars.interval_rows(last)
    chart = partial(on_page, partial(bars.interval, row=last), height=50.0 + 30.0 * len(rows))
    parts = {name: each for name, each in last.interval_parts.known().items() if min(each) > 0}
    return Part(
        "sure",
        "How sure this is",
        f"Communication by {estimator}{f': {why}' if why else ''}." if estimator else "",
        charts=[("Interval", what, chart)] if rows else [],
        notes=[
            *([_INTERVAL] if parts else []),
            *(
                f"{name} {ends(change(low), change(high))}: {_INTERVAL_PARTS[name]}"
                for name, (low, high) in parts.items()
            ),
        ],
    )


def change(value: float) -> str:
    """Return a factor as a change in per cent."""
    by = 100 * (value - 1)
    return f"{by:+.1f} %".replace("-", "−") if abs(by) >= 0.05 else "0 %"


def estimators(prediction: Prediction) -> Part | None:
    """Return what each estimator says at the largest count, in the order they are preferred."""
    last = prediction.last
    given = last.estimators
    names = [name for name in ESTIMATORS if name in given]
    names += [name for name in given if name not in ESTIMATORS]
    if not names:
        return None
    rows = []
    for name in names:
        entry, chosen = given[name], name == last.estimator
        known = entry.time_s is not None
        notes = [visible(note, 400) for note in (entry.why_not, *entry.notes) if note]
        summary = ESTIMATORS[name].summary if name in ESTIMATORS else ""
        rows.append(
            [
                visible(name, 60),
                Cell("used", tag="best-tag") if chosen else "",
                seconds(entry.time_s),
                span(entry.low_s, entry.high_s) if known else seconds(None),
                *(seconds(part_s(entry, part)) for part in _ESTIMATED.values()),
                Cell("; ".join(filter(None, [summary, *_few(notes)])), "notes"),
            ]
        )
    head = ["estimator", "", "run time", "interval", *_ESTIMATED, "what it is, and what to mind"]
    kinds = ["recommended" * (name == last.estimator) for name in names]
    table = PartTable("Estimators", head, rows, "", (0, 1, len(head) - 1), "", kinds)
    return Part("estimators", f"All estimators at {processes(last.n)}", tables=[table])


def _few(notes: Sequence[str], most: int = 3) -> list[str]:
    """Return the first few of a list; the others are among what was approximated."""
    notes = list(dict.fromkeys(notes))
    more = len(notes) - most
    return [*notes[:most], *([f"and {more} more, below"] if more > 0 else [])]


def residuals(prediction: Prediction) -> Part | None:
    """Return what was measured beside what the model says, by what is compared and count."""
    found = sorted(prediction.residuals, key=lambda each: (each.what, each.n))
    if not found:
        return None
    columns: Columns[Residual] = {
        "processes": lambda each: f"{each.n:,}",
        "compared": lambda each: each.what,
        "measured": lambda each: seconds(each.measured_s),
        "model": lambda each: seconds(each.model_s),
        "measured / model": _ratio,
    }
    table = table_of("Residuals", columns, found, left=(1,))
    return Part("residuals", "Model and measurement", tables=[table])


def _ratio(each: Residual) -> str:
    """Return how far the model is off; in brackets where the run tells little."""
    if each.ratio is None:
        return "–"
    return f"{each.ratio:.3f}" if each.representative else f"({each.ratio:.3f})"


def verdict_shares(prediction: Prediction) -> PartTable | None:
    """Return the share of each verdict at the largest count, the surest first."""
    given = prediction.verdict_share

    def order(name: str) -> tuple[int, str]:
        name = name.replace("_", " ")
        return (_SURE.index(name) if name in _SURE else len(_SURE), name)

    rows = [
        [visible(name), *(percent(given[name].get(kind)) for kind in ("events", "bytes"))]
        for name in sorted(given, key=order)
    ]
    return PartTable("Share per verdict", ["verdict", "events", "bytes"], rows) if rows else None
