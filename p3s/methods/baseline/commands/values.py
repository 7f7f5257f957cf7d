"""Options of the form NAME=VALUE, and lists of whole numbers."""

from __future__ import annotations

from math import isfinite

from p3s.base.errors import UsageError

#: Numbers of a list, at most.
_MOST = 100_000


def pairs(words: list[str]) -> dict[str, str]:
    """Return names with their values; UsageError for a word that is no pair."""
    found = {}
    for word in words:
        name, equal, value = word.partition("=")
        if not equal or not name:
            raise UsageError(f"{word}: write NAME=VALUE")
        found[name] = value
    return found


def numbers(words: list[str]) -> dict[str, float]:
    """Return names with numbers; UsageError for a value that is none."""
    found = {}
    for name, text in pairs(words).items():
        try:
            found[name] = float(text)
        except ValueError as error:
            raise UsageError(f"--input {name}={text}: is no number") from error
        if not isfinite(found[name]):
            raise UsageError(f"--input {name}={text}: is no number")
    return found


def whole_numbers(text: str, option: str) -> list[int]:
    """Return the numbers of ``1,2,4-8``, ascending; UsageError for anything else."""
    found: set[int] = set()
    for word in text.split(","):
        ends = [end.strip() for end in word.split("-")]
        good = len(ends) <= 2 and all(e.isascii() and e.isdigit() and len(e) < 9 for e in ends)
        if not good or not 1 <= int(ends[0]) <= int(ends[-1]):
            raise UsageError(
                f"{option} {text}: {word.strip()!r} is no whole number above zero and no range of "
                f"them; write for example {option} 1,2,4-8"
            )
        if int(ends[-1]) - int(ends[0]) >= _MOST:
            raise UsageError(f"{option} {text}: more than {_MOST:,} numbers")
        found.update(range(int(ends[0]), int(ends[-1]) + 1))
    return sorted(found)
