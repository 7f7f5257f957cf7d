"""Numbers and names as people read them."""

from __future__ import annotations

import unicodedata

from p3s.words import NOT_KNOWN, figures, seconds

#: Stands where an interval is not known.
UNKNOWN = "unknown"


def interval(low: float | None, high: float | None) -> str:
    """Return an interval of times, or that it is not known."""
    if low is None or high is None:
        return UNKNOWN
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
    return NOT_KNOWN if value is None else f"{figures(value)}x"


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
