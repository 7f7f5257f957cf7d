"""Numbers and names as people read them."""

from __future__ import annotations

import unicodedata

NOT_KNOWN = "–"


def seconds(value: float | None) -> str:
    """Return a time with three figures and a fitting unit."""
    if value is None:
        return NOT_KNOWN
    if value == 0:
        return "0 s"
    for limit, factor, unit in ((1e-6, 1e9, "ns"), (1e-3, 1e6, "µs"), (1.0, 1e3, "ms")):
        if abs(value) < limit * 0.9995:
            return f"{_figures(value * factor)} {unit}"
    return f"{_figures(value)} s"


def _figures(value: float) -> str:
    """Return three significant figures without an exponent."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    if abs(value) >= 99.95:
        return f"{value:.0f}"
    if abs(value) >= 9.995:
        return f"{value:.1f}"
    if 0 < abs(value) < 0.0995:
        return f"{value:.2g}"
    return f"{value:.2f}"


def interval(low: float | None, high: float | None) -> str:
    """Return an interval of times, or that it is not known."""
    if low is None or high is None:
        return "unknown"
    if low == high:
        return NOT_KNOWN
    return f"{seconds(low)} to {seconds(high)}"


def span(low: float | None, high: float | None) -> str:
    """Return an interval of times for a narrow column: "4.82–6.06 s"."""
    if low is None or high is None or low == high:
        return interval(low, high)
    first, last = seconds(low), seconds(high)
    if first.rpartition(" ")[2] == last.rpartition(" ")[2]:
        first = first.rpartition(" ")[0]
    return f"{first}–{last}"


def factor(value: float | None) -> str:
    """Return a speedup."""
    return NOT_KNOWN if value is None else f"{_figures(value)}x"


def percent(value: float | None) -> str:
    """Return a share between 0 and 1 in per cent."""
    if value is None:
        return NOT_KNOWN
    if 0 < value < 0.0005:
        return "<0.1 %"
    return f"{100 * value:.1f} %"


def visible(text: str, limit: int = 200) -> str:
    """Return text from a file with control and direction-changing characters made visible."""
    out = []
    for char in text[: limit + 1]:
        if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp"):
            out.append(char.encode("unicode_escape", "backslashreplace").decode("ascii"))
        else:
            out.append(char)
    shown = "".join(out)
    return shown if len(text) <= limit else shown[:limit] + "…"
