"""Options of several commands of ``p3s baseline``, those of trees alone, and their texts read."""

from __future__ import annotations

import re
from math import isfinite

from p3s.base.errors import UsageError
from p3s.cli.declared import option


def pairs(words: list[str]) -> dict[str, str]:
    """Return names with their values; UsageError for a word that is no pair."""
    values = {}
    for word in words:
        name, equal, value = word.partition("=")
        if not equal or not name:
            raise UsageError(f"{word}: write NAME=VALUE")
        values[name] = value
    return values


def numbers(words: list[str]) -> dict[str, float]:
    """Return names with numbers; UsageError for a value that is none."""
    values = {}
    for name, text in pairs(words).items():
        try:
            values[name] = float(text)
        except ValueError as error:
            raise UsageError(f"--input {name}={text}: is no number") from error
        if not isfinite(values[name]):
            raise UsageError(f"--input {name}={text}: is no number")
    return values


EXPRESSION = option(
    "",
    "--expression TEXT",
    "What a tree's regressions are of, linear in b0, b1, ... "
    "[default: b3*W**2/(K*T) + b2*W/(K*T) + b1*K + b0].",
)
SPLIT = option(
    "",
    "--split LIST",
    "What a tree may split on [default: w2,w1,workers,workload,local_workld,threads and "
    "those of --node].",
)
THESIS = option(False, "--thesis", "Grow the tree as the thesis did: weights, no guards.")
MINSPLIT = option(
    None, "--minsplit N", "Least runs in a node [default: 20; weights of 25 with --thesis].", min=1
)
WORKERS = option("n", "--workers RULE", "Workers of n processes; n-1 if one is the master.")
WORKLOAD = option(
    "", "--workload NAME", "Column of the workload [default: workload or W, or the only one]."
)
TARGET = option("time", "--target WHAT", "What a tree tells: time, index or core-index.")
NODE = option(
    None, "--node FILE", "A node, from lstopo --of xml: a tree may split on what shares its caches."
)
PER_NODE = option(
    0, "--per-node N", "Processes of a node, for --node [default: all on one].", min=0
)
VALIDATE = option(
    0, "--validate N", "Keep every Nth workload out of the tree, for p3s baseline check.", min=0
)
PRUNE = option(False, "--prune", "Take back splits that the workloads kept out do not want.")
PROCESSES = option(
    "", "--processes COLUMN", "Column of the process count [default: n, np, p, ranks or the like]."
)
REDUCE = option("min", "--reduce HOW", "What counts of repeats: min, median or mean.")
WHERE = option(None, "--where NAME=VALUE", "Only runs with this input or label; may be repeated.")


_LARGEST = 1 << 24
_RULE = re.compile(r"(\d*)n(?:\^([23]))?:(\d+)-(\d+)|(\d+)\^n:(\d+)-(\d+)|(\d+)-(\d+)")


def by_rule(text: str, option: str = "-n") -> list[int]:
    """Return the counts of ``4n:1-32``, ``n^2:2-11``, ``2^n:2-7`` or ``4,8,16-20``, ascending.

    Several rules may be joined by commas. Errors: UsageError for anything else.
    """
    counts: set[int] = set()
    for word in text.split(","):
        counts.update(_one(word.strip(), f"{option} {text}", option))
    if max(counts) > _LARGEST:
        raise UsageError(f"{option} {text}: {max(counts)} is more than {_LARGEST:,}, the maximum")
    return sorted(counts)


def _one(word: str, whole: str, option: str) -> list[int]:
    if word.isascii() and word.isdigit() and int(word[:12]) >= 1:
        return [int(word[:12])]
    match = _RULE.fullmatch(word)
    if match is None:
        raise UsageError(
            f"{whole}: {word!r} is no count; give whole numbers separated by commas, "
            f"for example {option} 4,8,16-20, or a rule: 4n:1-32, n^2:2-11, 2^n:2-7"
        )
    factor, power, first, last, base, low, high, least, most = match.groups()
    begin, end = int((first or low or least)[:9]), int((last or high or most)[:9])
    if end < max(begin, 1) or end - begin > 100_000 or (base and (end > 24 or int(base[:9]) < 2)):
        raise UsageError(f"{whole}: {word!r} is no range of counts")
    if base:
        return [int(base[:9]) ** i for i in range(begin, end + 1)]
    times = int((factor or "1")[:9])
    return [count for i in range(begin, end + 1) if (count := times * i ** int(power or 1)) >= 1]
