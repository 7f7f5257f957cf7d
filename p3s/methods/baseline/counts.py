"""Process counts by a rule: multiples, squares, cubes, powers of two, lists."""

from __future__ import annotations

import re

from p3s.base.errors import UsageError

_MOST = 1 << 24
_RULE = re.compile(r"(\d*)n(?:\^([23]))?:(\d+)-(\d+)|(\d+)\^n:(\d+)-(\d+)")


def by_rule(text: str, option: str = "-n") -> list[int]:
    """Return the counts of ``4n:1-32``, ``n^2:2-11``, ``2^n:2-7`` or ``4,8,16``, ascending.

    Several rules may be joined by commas. Errors: UsageError for anything else.
    """
    found: set[int] = set()
    for word in text.split(","):
        found.update(_one(word.strip(), f"{option} {text}", option))
    if max(found) > _MOST:
        raise UsageError(f"{option} {text}: {max(found)} is more than {_MOST:,}, the maximum")
    return sorted(found)


def _one(word: str, whole: str, option: str) -> list[int]:
    if word.isascii() and word.isdigit() and int(word[:12]) >= 1:
        return [int(word[:12])]
    match = _RULE.fullmatch(word)
    if match is None:
        raise UsageError(
            f"{whole}: {word!r} is not a process count; give whole numbers separated by commas, "
            f"for example {option} 4,8,16, or a rule: 4n:1-32, n^2:2-11, 2^n:2-7"
        )
    factor, power, first, last, base, low, high = match.groups()
    begin, end = int((first or low)[:9]), int((last or high)[:9])
    if end < begin or end - begin > 100_000 or (base and (end > 24 or int(base[:9]) < 2)):
        raise UsageError(f"{whole}: {word!r} is no range of counts")
    if base:
        return [int(base[:9]) ** i for i in range(begin, end + 1)]
    times = int((factor or "1")[:9])
    return [count for i in range(begin, end + 1) if (count := times * i ** int(power or 1)) >= 1]
