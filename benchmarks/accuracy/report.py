"""What the benchmark says of its rows: how far predictions are off, as a table."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

#: What is aimed at: mean, median and largest error of run time.
AIM = {"mean": 0.04, "median": 0.02, "largest": 0.15}
#: A row with exit code 0 shall not be further off than this.
TRUSTED = 0.10
Row = Mapping[str, Any]


def asked(rows: Iterable[Row], half: str | None = None) -> list[Row]:
    """Return the predicted counts of all programs (of one ``half``) that were not traced."""
    return [
        count
        for row in rows
        for count in row["counts"]
        if count["n"] not in row["traced"] and half in (None, row.get("half"))
    ]


def summary(rows: Sequence[Row], half: str | None = None) -> dict[str, Any]:
    """Return mean, median and largest error, what intervals held, and who else was closer."""
    counts = asked(rows, half)
    errors = [abs(count["error"]) for count in counts]
    told = [count["covered"] for count in counts if count["covered"] is not None]
    trusted = [count for count in counts if count.get("exit_code") == 0]
    held = [count["covered"] for count in trusted if count["covered"] is not None]
    against = [c for c in counts if c.get("regression") is not None]
    return {
        "compared": len(errors),
        "mean": statistics.fmean(errors) if errors else None,
        "median": statistics.median(errors) if errors else None,
        "largest": max(errors, default=None),
        "aim": AIM,
        "intervals": len(told),
        "covered": sum(told),
        "trusted": len(trusted),
        "trusted_within": sum(abs(count["error"]) <= TRUSTED for count in trusted),
        "trusted_intervals": len(held),
        "trusted_covered": sum(held),
        "against_regression": len(against),
        "closer_than_regression": sum(abs(c["error"]) < abs(c["regression"]) for c in against),
        "refused": [
            row["program"] for row in rows if row["why_not"] and half in (None, row.get("half"))
        ],
    }


def _signed(error: float | None) -> str:
    return "-" if error is None else f"{100 * error:+.1f} %"


def _interval(count: Row) -> str:
    if count["low_s"] is None or count["high_s"] is None:
        return "open"
    ends = f"{1e3 * count['low_s']:.2f} to {1e3 * count['high_s']:.2f}"
    return ends + ("" if count["covered"] else ", missed")


def _code(count: Row) -> str:
    if count.get("exit_code") is None:
        return "-"
    return ", ".join([str(count["exit_code"]), *count.get("reasons", ())])


#: Columns of the table, and what stands in them.
_COLUMNS: dict[str, Callable[[Row], str]] = {
    "n": lambda count: str(count["n"]),
    "truth, ms": lambda count: f"{1e3 * count['truth_s']:.2f}",
    "predicted, ms": lambda count: f"{1e3 * count['time_s']:.2f}",
    "error": lambda count: _signed(count["error"]),
    "communication": lambda count: f"{100 * count['comm_s'] / count['time_s']:.0f} %",
    "interval": _interval,
    "exit code": _code,
    "regression": lambda count: _signed(count.get("regression")),
    "thesis's sum": lambda count: _signed(count.get("thesis")),
}


def table(rows: Sequence[Row]) -> str:
    """Return a Markdown table of the predicted counts, and one line for each half."""
    names = ["program", *_COLUMNS]
    lines = [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    for row in rows:
        if row["why_not"]:
            cells = [row["program"], "", "", row["why_not"]]
            lines.append(f"| {' | '.join(cells + [''] * (len(names) - len(cells)))} |")
        for count in asked([row]):
            cells = [row["program"], *(cell(count) for cell in _COLUMNS.values())]
            lines.append(f"| {' | '.join(cells)} |")
    for half in dict.fromkeys(row.get("half") for row in rows):
        if sentence := _sentence(summary(rows, half), half):
            lines.append(f"\n{sentence}")
    return "\n".join(lines)


def _sentence(total: Mapping[str, Any], half: str | None) -> str:
    if not total["compared"]:
        return ""
    parts = [
        f"{total['compared']} run times{f' ({half})' if half else ''}: error "
        + ", ".join(
            f"{name} {100 * total[name]:.1f} % (aim {100 * aim:.0f} %)" for name, aim in AIM.items()
        ),
        f"{total['covered']} of {total['intervals']} intervals hold the truth",
        f"of {total['trusted']} with exit code 0 {total['trusted_within']} are within "
        f"{100 * TRUSTED:.0f} %",
    ]
    if total["against_regression"]:
        parts.append(
            f"{total['closer_than_regression']} of {total['against_regression']} are closer than "
            "the regression of run times"
        )
    return "; ".join(parts)
