"""Which counts are traced: those named with -n, or good ones up to a maximum (-n ..32)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from p3s.base.progress import Progress
from p3s.base.study import Study
from p3s.base.text import joined, processes
from p3s.pipeline.tracing.results import Traced, alike

if TYPE_CHECKING:
    from p3s.model.grid.admissible import ExtentsAt
    from p3s.model.grid.stated import Extents

#: Batches of counts without one that runs, after which the program is not asked again.
_IN_VAIN = 2
#: Counts tried in place of others, at most.
_TRIED = 16


@dataclass(frozen=True)
class Asked:
    """Process counts that were asked for: these, or good ones up to ``top``."""

    counts: tuple[int, ...] = ()
    top: int = 0


@dataclass(frozen=True)
class Grids:
    """The grids that counts are to show: numbers of dimensions, and extents at a count."""

    dims: tuple[int, ...]
    extents: ExtentsAt


def grids_of(study: Study | None, words: Sequence[str], given: Mapping[int, Extents]) -> Grids:
    """Return the grids of a program: as its arguments or the user say, else usual ones."""
    from p3s.base.extents import dims_balanced, extents_at, extents_in
    from p3s.model.grid.admissible import USUAL
    from p3s.model.stage import listed_extents, stated_by_user

    listed = {**(listed_extents(study) if study is not None else {}), **given}
    names = extents_in(words)
    if names:
        return Grids((len(names),), lambda n, ndims: extents_at(words, n, listed))
    ndims = stated_by_user(study).ndims if study is not None else 0
    return Grids((ndims,) if ndims else USUAL, dims_balanced)


def chosen(asked: Asked, study: Study | None, grids: Grids, bar: Progress) -> list[int]:
    """Return the counts to trace first."""
    from p3s.model.grid.admissible import choose

    if not asked.top:
        return list(asked.counts)
    ran, failed = (study.counts(), study.failed_counts()) if study is not None else ([], [])
    found = choose(asked.top, ran, failed, grids.dims, grids.extents)
    there = f"{joined(ran)} {'are' if len(ran) > 1 else 'is'} there, " if ran else ""
    bar.say(
        f"-n ..{asked.top}: {there}"
        + (_traced(found) if found else "no other count would tell more")
    )
    return found


def warn(
    asked: Asked, counts: Sequence[int], study: Study | None, grids: Grids, bar: Progress
) -> None:
    """Say what counts that the user chose for a study without a model will not show of a grid."""
    from p3s.model.grid.admissible import left_open

    if asked.top or (study is not None and study.model_path.exists()):
        return  # they are the best up to a maximum; a model says what is open
    ran, failed = (study.counts(), study.failed_counts()) if study is not None else ([], [])
    why = left_open(sorted({*ran, *counts}), grids.dims, grids.extents, failed)
    if why:
        bar.say(f"note: {why}")


def trace_asked(
    asked: Asked,
    first: Sequence[int],
    study: Study,
    grids: Grids,
    trace: Callable[[Sequence[int]], Traced],
    bar: Progress,
) -> Traced:
    """Trace the first counts; up to a maximum, others in place of those the program refuses.

    Where it fails alike at two that have little in common, the counts are not to blame: it ends.
    """
    from p3s.model.grid.admissible import choose, probes

    two = probes(first) if asked.top and not study.counts() else list(first)
    done = trace(two)
    if asked.top and not done.counts and len(alike(done.failed)) == 1 and len(two) > 1:
        return done
    if rest := [np for np in first if np not in two]:
        done.add(trace(rest))
    last, idle = done, int(not done.counts)
    refused = [row.np for row in done.failed if row.refused]
    while (
        asked.top
        and idle < _IN_VAIN
        and len(refused) < _TRIED
        and any(row.refused for row in last.failed)
    ):
        failed = {*refused, *study.failed_counts()}
        more = choose(asked.top, study.counts(), sorted(failed), grids.dims, grids.extents)
        if not more:
            break
        gone = {row.np: row.exit_code or 0 for row in last.failed if row.refused}
        codes = joined(sorted({*gone.values()}))
        text = f"the program refuses {processes(gone)} (exit code {codes})"
        bar.say(f"{text}: {_traced(more)} instead")
        last = trace(more)
        idle = 0 if last.counts else idle + 1
        refused += [row.np for row in last.failed if row.refused]
        done.add(last)
    done.counts.sort(key=lambda row: row.np)
    return done


def _traced(counts: Sequence[int]) -> str:
    return f"{joined(counts)} {'are' if len(counts) > 1 else 'is'} traced"
