"""A prediction of weak scaling as text for the terminal."""

from __future__ import annotations

from p3s.base.text import aligned, percent, processes, seconds, visible
from p3s.predict.types import Prediction
from p3s.report.counts import count_rows, signs
from p3s.report.sure import reason_lines, reasons_of, warning_of


def render(result: Prediction, grown: str) -> str:
    """Return a prediction of weak scaling as text; grown: the law of what grows."""
    rows, warning = result.counts, warning_of(result)
    first, last = rows[0], rows[-1]
    text = [warning, ""] if warning else []
    text += [*aligned(count_rows(result)), ""]
    if first is not last:
        text.append(
            "Taken at face value: "
            * bool(warning)
            + f"Weak scaling with {grown}: from {first.n} to {last.n} processes the "
            f"time goes from {seconds(first.time_s)} to {seconds(last.time_s)}, an "
            f"efficiency of {percent(last.efficiency)}."
            + (
                f" It stays below {percent(result.knee_efficiency)} from "
                f"{processes(result.knee)} on."
                if result.knee and not warning
                else ""
            )
        )
    text += reason_lines(reasons_of(result))
    text += [f"note: {visible(note, 400)}" for note in result.notes]
    return "\n".join([*text, *signs(rows)])
