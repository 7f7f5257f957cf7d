"""What tracing a study's counts did: runs that were made, and why others are missing."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from p3s.signature_runner.traced_run import TracedRun

#: Is in the plain data of a record also where it is empty.
ALWAYS = {"always": True}


@dataclass(frozen=True)
class Failure:
    """A count that failed: in which repeat (None: none of them), and why.

    ``refused``: the program ended with an error before it did any work.
    """

    np: int
    rep: int | None
    exit_code: int | None
    reason: str
    refused: bool = False


@dataclass(frozen=True)
class TracedCount:
    """A count whose runs are characterized; ``timed``: native runs beside a counted one.

    ``times``: as signature.times.as_json; ``signature``: what it holds, as numbers; others:
    its entries.
    """

    np: int
    times: dict[str, Any] | None
    runs: tuple[TracedRun, ...]
    signature: Mapping[str, int]
    timed: tuple[TracedRun, ...] = ()
    not_modelled: Sequence[Mapping[str, Any]] = field(default=(), metadata=ALWAYS)
    tracing: Mapping[str, Any] = field(default_factory=dict, metadata=ALWAYS)
    buffers: Mapping[str, Any] = field(default_factory=dict, metadata=ALWAYS)


@dataclass
class Traced:
    """What tracing did: finished counts, and why others are missing."""

    counts: list[TracedCount] = field(default_factory=list, metadata=ALWAYS)
    failed: list[Failure] = field(default_factory=list, metadata=ALWAYS)
    problems: list[str] = field(default_factory=list, metadata=ALWAYS)

    def add(self, other: Traced) -> None:
        """Add what tracing other counts did."""
        self.counts += other.counts
        self.failed += other.failed
        self.problems += other.problems

    def merge(self, repeats: Traced) -> None:
        """Add further runs of the same counts: a count has all of its runs."""
        again = {each.np: each for each in repeats.counts}
        for at, each in enumerate(self.counts):
            if more := again.get(each.np):
                runs, timed = each.runs + more.runs, each.timed + more.timed
                self.counts[at] = replace(more, runs=runs, timed=timed)
        self.add(Traced([], repeats.failed, repeats.problems))


def alike(failed: Sequence[Failure]) -> list[tuple[list[int], str]]:
    """Return why counts failed: those that failed in the same way, and their reason."""
    found: dict[tuple[str, Any], tuple[list[int], str]] = {}
    for row in failed:
        text = row.reason.removeprefix(f"np={row.np}: ")
        same = re.sub(r"np\d+\.r\d+", "", text).replace(" ranks", " rank")
        key = re.sub(r"\b0*\d+\b", "N", same)
        found.setdefault((key, row.exit_code), ([], text))[0].append(row.np)
    return [(list(dict.fromkeys(counts)), text) for counts, text in found.values()]


def reasons(failed: Sequence[Failure]) -> str:
    """Return why counts failed in one line; counts that failed alike are put together."""
    return "; ".join(
        f"np={', '.join(map(str, counts))}: {_of_all(text) if len(counts) > 1 else text}"
        for counts, text in alike(failed)
    )


def _of_all(text: str) -> str:
    """Return the reason of one count as that of several: sizes and the runs' places differ."""
    text = re.sub(r" at \d+ ranks?\b|(?<=rank )(\d+) of \d+", r"\1", text)
    return re.sub(r"\bnp\d{4,}(\.r\d+)", r"np*\1", text)
