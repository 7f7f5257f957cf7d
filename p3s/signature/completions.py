"""Completions as the program means them, whatever the timing made of them.

A test that succeeds is the wait that it replaces; the calls of a loop that polls for some of its
requests until all are done (MPI_Testsome, MPI_Waitsome) are one completion of all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from p3s.capture.parts import gathered

if TYPE_CHECKING:
    from p3s.capture import Call, RankTrace, RunTrace

#: The waits that successful tests replace.
WAITS = {"MPI_Test": "MPI_Wait", "MPI_Testall": "MPI_Waitall"}
#: Calls that complete as many requests as happen to be done.
SOME = ("MPI_Testsome", "MPI_Waitsome")


@dataclass(frozen=True)
class Completions:
    """A run with its calls so named; site: of each call; tests: calls that replace a wait.

    sums: of a call that completes some requests, the calls that complete so many at once.
    """

    run: RunTrace
    site: list[str]
    tests: np.ndarray
    sums: dict[tuple[int, int], int]

    @staticmethod
    def of(run: RunTrace, site: list[str], replaces_wait: Callable[[str], bool]) -> Completions:
        """Return the completions of a run; replaces_wait: of the keys of sites of the capture."""
        tests = [c.site >= 0 and replaces_wait(run.sites[c.site].key) for c in run.calls]
        if any(tests):
            run = replace(run, calls=tuple(map(_as_wait, run.calls, tests)))
        found = Completions(run, site, np.array(tests, dtype=bool), {})
        return found._with_sums() if any(c.op in SOME for c in run.calls) else found

    @property
    def changes(self) -> bool:
        """Whether a rank may have other events than it recorded."""
        return bool(self.tests.any() or self.sums)

    def _with_sums(self) -> Completions:
        """Return it with a call for every sum of requests that some rank completes in one go."""
        calls, site, sums = list(self.run.calls), list(self.site), dict(self.sums)
        ranks = self.run.ranks
        present = getattr(ranks, "present", None)
        for rt in ranks if present is None else (ranks[rank] for rank in present):
            first, total, _ = self._goes(np.asarray(rt.call))
            for number, requests in zip(first.tolist(), total.tolist(), strict=True):
                if requests != calls[number].bytes and (number, requests) not in sums:
                    sums[(number, requests)] = len(calls)
                    calls.append(replace(calls[number], bytes=requests))
                    site.append(site[number])
        tests = np.append(self.tests, np.zeros(len(calls) - len(self.tests), dtype=bool))
        return Completions(replace(self.run, calls=tuple(calls)), site, tests, sums)

    def _goes(self, call: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return of calls that complete some, in a row at one site: the first, all requests, and
        which events begin a row or are none of these."""
        some = np.array([c.op in SOME for c in self.run.calls], dtype=bool)[call]
        at = self._places()[call]
        begins = np.ones(len(call), dtype=bool)
        begins[1:] = ~(some[1:] & some[:-1] & (at[1:] == at[:-1]))
        if not some.any():
            return call[:0], call[:0], begins
        size = np.array([c.bytes for c in self.run.calls], dtype=np.int64)[call]
        starts = np.flatnonzero(begins)
        rows = some[starts]
        return call[starts][rows], np.add.reduceat(size, starts)[rows], begins

    def _places(self) -> np.ndarray:
        number = {name: k for k, name in enumerate(dict.fromkeys(self.site))}
        return np.array([number[name] for name in self.site], dtype=np.int64)

    def once(self, rt: RankTrace) -> RankTrace:
        """Return a rank with one event per completion."""
        call = np.asarray(rt.call)
        if not len(call) or not self.changes:
            return rt
        first, total, begins = self._goes(call)
        at, calls = self._places()[call], self.run.calls
        nothing = np.array([c.bytes == 0 and c.op in WAITS.values() for c in calls])[call]
        again = self.tests[call[:-1]] & nothing[1:] & (at[1:] == at[:-1]) & ~self.tests[call[1:]]
        begins[1:] &= ~again
        some = np.flatnonzero(begins & np.array([c.op in SOME for c in calls], dtype=bool)[call])
        call = call.copy()
        call[some] = [
            self.sums.get(key, key[0]) for key in zip(first.tolist(), total.tolist(), strict=True)
        ]
        return _kept(replace(rt, call=call), np.flatnonzero(begins))


def _as_wait(call: Call, replaces: bool) -> Call:
    return replace(call, op=WAITS.get(call.op, call.op)) if replaces else call


def _kept(rt: RankTrace, keep: np.ndarray) -> RankTrace:
    """Return a rank with some of its events; those before the next one add to its time."""
    if len(keep) == len(rt.call):
        return rt
    return replace(
        rt,
        call=rt.call[keep],
        start_ns=np.asarray(rt.start_ns)[keep],
        elapsed_ns=np.add.reduceat(np.asarray(rt.elapsed_ns), keep),
        work=gathered(rt.work, keep),
        counters=np.asarray(rt.counters)[keep] if len(rt.counters) else rt.counters,
        ordinal=None if rt.ordinal is None else rt.ordinal[keep],
        thread=None if rt.thread is None else rt.thread[keep],
        gap=None if rt.gap is None else rt.gap[keep],
    )
