"""Two predictions side by side as one HTML file, of the looks of a report."""

from __future__ import annotations

from pathlib import Path

from p3s.base.study import write_bytes
from p3s.base.text import NOT_KNOWN, factor, plural, seconds, visible
from p3s.base.version import __version__
from p3s.report import compare
from p3s.report.charts.curves import Size, comparison_chart
from p3s.report.compare import Comparison
from p3s.report.html import breakable, page

#: Phases of the table.
MAX_PHASES = 60
SIZE = Size(640.0, 400.0)


def render(found: Comparison) -> str:
    """Return a comparison as a page: every text escaped, nothing loaded, its own script alone."""
    from markupsafe import Markup

    phases = [
        [
            breakable(pair.name),
            seconds(pair.a_s),
            seconds(pair.b_s),
            compare.signed(pair.change_s),
            factor(pair.b_s / pair.a_s) if pair.a_s and pair.b_s else NOT_KNOWN,
            pair.mostly,
            pair.a_law,
            pair.b_law,
        ]
        for pair in found.phases[:MAX_PHASES]
    ]
    rest = found.phases[MAX_PHASES:]
    change = compare.signed(sum(pair.change_s for pair in rest))
    return page("compare.html").render(
        title=f"{visible(Path(found.a).name)} and {visible(Path(found.b).name)}",
        version=__version__,
        found=found,
        reasons=found.reasons,
        chart=Markup(comparison_chart(found, SIZE)),
        count_head=compare.COUNT_HEAD,
        counts=list(compare.count_cells(found.counts)),
        only=[(which, n) for which, n in (("A", found.only_a), ("B", found.only_b)) if n],
        phase_head=["phase", "A", "B", "change", "B/A", "mostly", "law of A", "law of B"],
        phases=phases,
        cut=f"{plural(len(rest), 'more phase')} change by {change} together." if rest else "",
    )


def write_page(found: Comparison, path: Path) -> None:
    """Write a comparison to ``path``."""
    write_bytes(path, render(found).encode("utf-8", "backslashreplace"))
