"""The report of a study with several numbers of threads: advice, times, and what threads change."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from p3s.base.artefacts import write_bytes
from p3s.base.errors import P3SError
from p3s.base.text import command_line, plural, quote_word
from p3s.methods.threads import text as teams
from p3s.methods.threads.advise import text as advising
from p3s.methods.threads.runs import Run
from p3s.methods.threads.stage import ThreadFile
from p3s.methods.threads.stage import load as load_threads
from p3s.predict.surface import SURFACE, Surface, surface_path
from p3s.predict.types import Reason, filter_untrusted, in_short
from p3s.report import surface as surfaces
from p3s.report.charts.cells import LEVELS, heat
from p3s.report.charts.figures import on_page
from p3s.report.html import as_bytes, render_page
from p3s.report.show import Page, Part, PartTable

#: Key of a field: processes and threads.
Field = tuple[int, int]


def heat_chart(
    values: Mapping[Field, float],
    texts: Mapping[Field, str],
    label: str,
    best: Sequence[Field] = (),
) -> str:
    """Return the fields that have a value, shaded by its logarithm; best: fields with a frame.

    Empty where there are none.
    """
    if not values:
        return ""
    low, high = min(values.values()), max(values.values())
    levels = {field: level_of(value, low, high) for field, value in values.items()}
    rows, columns = (len({field[k] for field in values}) for k in (0, 1))
    chart = partial(heat, levels=levels, texts=texts, label=label, best=best)
    return on_page(chart, 100.0 + 84.0 * columns, 50.0 + 26.0 * rows)


def level_of(value: float, low: float, high: float) -> int:
    """Return the shade of a value: 1 for the least to LEVELS for the most, by its logarithm."""
    if not 0 < low < high:
        return 1
    share = math.log(max(value, low) / low) / math.log(high / low)
    return 1 + min(int(LEVELS * share), LEVELS - 1)


def view_of(root: Path, command: Sequence[str], runs: Sequence[Run], setting: str = "") -> Page:
    """Return what the page of a study says; command: of its launcher, runs: those traced.

    Raises P3SError where nothing has been predicted over threads.
    """
    surface = _surface(root, setting)
    advice = advising.load(root)
    if surface is None and advice is None:
        raise P3SError(
            f"{root}: nothing is predicted over threads yet; run "
            f"p3s predict {quote_word(root)} -n 64 --threads 1,2,4"
        )
    file = load_threads(root)
    reasons = _reasons(surface, advice)
    against = filter_untrusted(reasons)
    sentences = [] if surface is None else [surfaces.fastest(surface)]
    if advice is not None:
        sentences = [advising.sentence(advice), *sentences]
    unsure = " Not to be trusted." if against else ""
    return Page(
        title=root.resolve().name,
        command=command_line(command),
        sentences=sentences,
        against=against,
        mind=[reason for reason in reasons if not reason.untrustworthy],
        warning=f"Do not rely on this prediction: {in_short(against)}." if against else "",
        parts=[
            *([] if advice is None else [_advice(advice, unsure)]),
            *([] if surface is None else [times_part(surface, unsure)]),
            _changes(file, runs),
        ],
    )


def _sentence(text: str) -> str:
    """Return a line of the terminal as a sentence; one that begins with a setting stays."""
    begins_with_setting = "=" in text.partition(" ")[0]
    return text if begins_with_setting else f"{text[:1].upper()}{text[1:]}."


def _surface(root: Path, setting: str) -> Surface | None:
    path = surface_path(root, setting)
    surface_files = [path] if path.exists() else sorted(root.glob("surface-*.json"))
    return SURFACE.read(surface_files[-1]) if surface_files else None


def _reasons(surface: Surface | None, advice: advising.AdviceFile | None) -> list[Reason]:
    reasons_by_code = {} if surface is None else {reason.code: reason for reason in surface.reasons}
    if advice is not None:
        reasons_by_code |= {reason.code: reason for reason in advising.reasons_of(advice)}
    return list(reasons_by_code.values())


def times_part(surface: Surface, unsure: str) -> Part:
    """Return the run times over processes and threads; unsure: a word behind the picture's."""
    n, threads = surface.base
    base = f"{plural(n, 'process', 'processes')} with {plural(threads, 'thread')}"
    caption = f"predicted, over processes and threads; the fastest has a frame.{unsure}"
    return Part(
        "times",
        "Run times",
        tables=[surfaces.configurations(surface)],
        charts=[("Run time", caption, partial(_heat, surface))],
        notes=[
            *surfaces.on_same_cores(surface),
            f"Speedup and efficiency by cores, relative to {base}. ~ no run had so many threads.",
        ],
    )


def _advice(file: advising.AdviceFile, unsure: str) -> Part:
    head, rows = advising.table_of(file.advice)
    best = f"Best {advising.NAMES[file.advice.objective]}"
    caption = f"with so many processes and threads; those advised have a frame.{unsure}"
    return Part(
        "advice",
        "Advice",
        tables=[PartTable("Best configurations", head, rows)],
        charts=[(best, caption, partial(_advice_heat, file))],
        notes=[
            "Regret: by how much a configuration is expected to miss the best one, whichever that "
            "is; chance: that it is the best. Index: time over efficiency."
        ],
    )


def _changes(file: ThreadFile, runs: Sequence[Run]) -> Part:
    head, rows, below = teams.seen_rows(runs)
    laws = teams.law_rows(file)
    tables = [
        PartTable("Threads in the runs", head, rows, "What was seen of threads:"),
        PartTable("Laws of threads", *laws, "Laws of computation over threads:"),
    ]
    sentences = [_sentence(each) for each in teams.of_checks(file.checks, file.base, file.inside)]
    return Part(
        "laws",
        "What threads change",
        " ".join(sentences),
        [table for table in tables if table.rows],
        notes=[_sentence(below)] if rows else [],
    )


def _heat(surface: Surface) -> str:
    best = min(surface.cells, key=lambda cell: cell.time_s)
    return heat_chart(
        {(c.n, c.threads): c.time_s for c in surface.cells},
        {(c.n, c.threads): surfaces.short(c) for c in surface.cells},
        "Predicted run time over processes and threads",
        [(best.n, best.threads)],
    )


def _advice_heat(file: advising.AdviceFile) -> str:
    cells = advising.shown_cells(file)
    at = {(c.processes, c.threads) for c in cells}
    chosen = [(c.configuration.processes, c.configuration.threads) for c in file.advice.choices]
    return heat_chart(
        {(c.processes, c.threads): c.value for c in cells},
        {(c.processes, c.threads): advising.value_text(file.advice.objective, c) for c in cells},
        f"Best {advising.NAMES[file.advice.objective]} over processes and threads",
        [each for each in chosen if each in at],
    )


def write_page(view: Page, path: Path) -> None:
    """Write the page to ``path``."""
    write_bytes(path, as_bytes(render_page(view)))
