"""Which counts are traced: those named with -n, or good ones up to a maximum; what that did."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from p3s.base.progress import Progress
from p3s.base.text import join_words, processes
from p3s.signature_runner.traced_run import TracedRun

if TYPE_CHECKING:
    from p3s.model.grid.admissible import ExtentsAt
    from p3s.model.grid.stated import Extents
    from p3s.model.stage import ProgramFacts

#: Batches of counts without one that runs, after which the program is not asked again.
_IN_VAIN = 2
#: Counts tried in place of others, at most.
_TRIED = 16


@dataclass(frozen=True)
class CountRequest:
    """Process counts that were asked for: these, or good ones up to ``top``."""

    counts: tuple[int, ...] = ()
    top: int = 0


@dataclass(frozen=True)
class Grids:
    """The grids that counts are to show: numbers of dimensions, and extents at a count."""

    dims: tuple[int, ...]
    extents: ExtentsAt


def grids_of(known: ProgramFacts, words: Sequence[str], given: Mapping[int, Extents]) -> Grids:
    """Return the grids of a program: as its arguments or the user say, else usual ones."""
    from p3s.base.extents import dims_balanced, extents_at, extents_in
    from p3s.model.grid.admissible import USUAL

    listed, names = {**known.extents, **given}, extents_in(words)
    if names:
        return Grids((len(names),), lambda n, ndims: extents_at(words, n, listed))
    return Grids((known.stated.ndims,) if known.stated.ndims else USUAL, dims_balanced)


def choose_counts(
    asked: CountRequest, known: ProgramFacts, grids: Grids, bar: Progress
) -> list[int]:
    """Return the counts to trace first."""
    from p3s.model.grid.admissible import choose

    if not asked.top:
        return list(asked.counts)
    found = choose(asked.top, known.counts, known.failed, grids.dims, grids.extents)
    are = "are" if len(known.counts) > 1 else "is"
    there = f"{join_words(known.counts)} {are} there, " if known.counts else ""
    bar.say(
        f"-n ..{asked.top}: {there}"
        + (_name_traced(found) if found else "no other count would tell more")
    )
    return found


def warn(
    asked: CountRequest, counts: Sequence[int], known: ProgramFacts, grids: Grids, bar: Progress
) -> None:
    """Say what counts that the user chose for a study without a model will not show of a grid."""
    from p3s.model.grid.admissible import left_open

    if asked.top or known.modelled:
        return  # they are the best up to a maximum; a model says what is open
    ran = sorted({*known.counts, *counts})
    if why := left_open(ran, grids.dims, grids.extents, known.failed):
        bar.say(f"note: {why}")


def trace_asked(
    asked: CountRequest,
    first: Sequence[int],
    known: Callable[[], ProgramFacts],
    grids: Grids,
    trace: Callable[[Sequence[int]], TraceResult],
    bar: Progress,
) -> TraceResult:
    """Trace the first counts; up to a maximum, others in place of those the program refuses.

    known: what the study knows when it is called. Where the program fails alike at two that have
    little in common, the counts are not to blame: it ends.
    """
    from p3s.model.grid.admissible import choose, probes

    two = probes(first) if asked.top and not known().counts else list(first)
    done = trace(two)
    if asked.top and not done.counts and len(alike(done.failed)) == 1 and len(two) > 1:
        return done
    if rest := [np for np in first if np not in two]:
        done.add(trace(rest))
    last, idle = done, int(not done.counts)
    refused = [row.np for row in done.failed if row.refused]
    while asked.top and idle < _IN_VAIN and len(refused) < _TRIED:
        if not (gone := {row.np: row.exit_code or 0 for row in last.failed if row.refused}):
            break
        now = known()
        failed = sorted({*refused, *now.failed})
        more = choose(asked.top, now.counts, failed, grids.dims, grids.extents)
        if not more:
            break
        codes = join_words(sorted({*gone.values()}))
        text = f"the program refuses {processes(gone)} (exit code {codes})"
        bar.say(f"{text}: {_name_traced(more)} instead")
        last = trace(more)
        idle = 0 if last.counts else idle + 1
        refused += [row.np for row in last.failed if row.refused]
        done.add(last)
    done.counts.sort(key=lambda row: row.np)
    return done


def _name_traced(counts: Sequence[int]) -> str:
    return f"{join_words(counts)} {'are' if len(counts) > 1 else 'is'} traced"


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
class TraceResult:
    """What tracing did: finished counts, and why others are missing."""

    counts: list[TracedCount] = field(default_factory=list, metadata=ALWAYS)
    failed: list[Failure] = field(default_factory=list, metadata=ALWAYS)
    problems: list[str] = field(default_factory=list, metadata=ALWAYS)

    def add(self, other: TraceResult) -> None:
        """Add what tracing other counts did."""
        self.counts += other.counts
        self.failed += other.failed
        self.problems += other.problems

    def merge(self, repeats: TraceResult) -> None:
        """Add further runs of the same counts: a count has all of its runs."""
        again = {each.np: each for each in repeats.counts}
        for at, each in enumerate(self.counts):
            if more := again.get(each.np):
                runs, timed = each.runs + more.runs, each.timed + more.timed
                self.counts[at] = replace(more, runs=runs, timed=timed)
        self.add(TraceResult([], repeats.failed, repeats.problems))


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
