"""More or fewer threads of a process: what laws of threads say of the computation then."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from p3s.base.errors import P3SError
from p3s.base.text import plural
from p3s.predict.ends import REST
from p3s.predict.what_if.changes import PHASE, Scaled, Threads

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from p3s.costs.types import Teams

#: Laws say something of so many times the threads of any run, and no more.
_REACH = 2
#: Which of the three that a factor has: the typical value, the ends of its 90 % interval.
VALUE, LOW, HIGH = 0, 1, 2


@dataclass(frozen=True)
class NotKnown:
    """Why nothing is known of other numbers of threads; ``of_threads``: the study has some."""

    why: str
    of_threads: bool = True


#: Of a prediction whose study nobody has looked at for threads.
NOT_ASKED = NotKnown("the study's runs were not looked at for threads", of_threads=False)


@dataclass(frozen=True, eq=False)
class MoreThreads:
    """What other numbers of threads do to the computation of a study, on nodes that are full.

    threads: of a process now; cores: of a node; traced: most threads of a run. law: of threads and
    processes of a node, now and then.
    """

    threads: int
    cores: int
    traced: int
    law: Callable[[tuple[int, int], tuple[int, int]], Teams]

    @property
    def most(self) -> int:
        """The largest number of threads of which something is known."""
        return min(_REACH * self.traced, self.cores)

    @property
    def twice(self) -> int | None:
        """Twice the threads of now, None where nothing is known of so many."""
        return 2 * self.threads if 2 * self.threads <= self.most else None

    def check(self, count: int) -> None:
        """Raise P3SError, in one line, for a number of threads of which nothing is known."""
        text = f"--what-if threads={count}"
        if count == self.threads:
            raise P3SError(f"{text}: is what the prediction has; give another number")
        if count > self.cores:
            raise P3SError(
                f"{text}: a node has {plural(self.cores, 'core')}, a process cannot have more "
                "threads; say how many yours has with --cores-per-node, or name its --network"
            )
        if count > self.most:
            raise P3SError(
                f"{text}: no run had more than {plural(self.traced, 'thread')}, and "
                f"laws tell what {_REACH} times as many do at most; trace runs with more, with p3s "
                "trace --threads"
            )

    def per_node(self, count: int) -> int:
        """Return how many processes with so many threads fill a node."""
        return max(self.cores // count, 1)

    def factors(self, count: int) -> Teams:
        """Return what computation takes with so many threads, over that with those of now."""
        if count not in self._made:
            was, now = ((each, self.per_node(each)) for each in (self.threads, count))
            self._made[count] = self.law(was, now)
        return self._made[count]

    @cached_property
    def _made(self) -> dict[int, Teams]:
        return {}

    def as_scaled(self, part: Threads, phases: Sequence[int], n: int, end: int) -> list[Scaled]:
        """Return what threads make of the computation of each phase at a count.

        end: VALUE, or LOW or HIGH for the end of the interval at which all laws are.
        """
        teams = self.factors(part.count)
        # The start and the end of the program are parts of what is outside of loops.
        return [Scaled(PHASE, teams.of(max(phase, REST), n)[end], phase) for phase in phases]


def on_all_ranks(known: MoreThreads | NotKnown) -> NotKnown:
    """Return why nothing is known where smaller grids stand for all ranks."""
    if isinstance(known, NotKnown):
        return known
    return NotKnown("where ranks are is simulated with every rank, --what-if threads=N does so")


def why_no_row(known: MoreThreads | NotKnown) -> str:
    """Return why the usual changes have none of threads, "" where they have or nobody expects it.

    Twice the threads of now is what they have.
    """
    if isinstance(known, NotKnown):
        return known.why if known.of_threads else ""
    if known.twice is not None:
        return ""
    if 2 * known.threads > known.cores:
        return f"a node has {plural(known.cores, 'core')}, and a process takes {known.threads}"
    return f"no run had more than {plural(known.traced, 'thread')}"
