"""One process count simulated as it is and with changes, with the same draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from p3s.base.errors import P3SError, UsageError
from p3s.base.text import processes
from p3s.predict.estimated import TYPICAL
from p3s.predict.estimators import Setting
from p3s.predict.estimators.fewer import EVERY_RANK, smaller
from p3s.predict.estimators.machine import grids_of
from p3s.predict.estimators.messages import Messages, messages_of, published_messages
from p3s.predict.estimators.settings import silent
from p3s.predict.intervals import total
from p3s.predict.times import PhaseTimes, computation, with_communication
from p3s.predict.what_if.changes import (
    COSTS,
    IDEAL,
    Algorithm,
    Balanced,
    Changes,
    OnNetwork,
    Placed,
    Scaled,
    Threads,
)
from p3s.predict.what_if.engines import AllRanks, Changed, Made, OnGrids
from p3s.predict.what_if.threads import HIGH, LOW, NOT_ASKED, VALUE, MoreThreads, NotKnown
from p3s.program.mapping import BLOCK, CYCLIC
from p3s.program.types import MOST_RANKS

if TYPE_CHECKING:
    from p3s.base.study import Study
    from p3s.predict.estimates import Kept
    from p3s.predict.estimators.messages import Messages, messages_of, published_messages
    from p3s.predict.what_if.changes import Change

#: Draws of computation where only a ratio is asked for, whose two times draw the same.
_FEW_DRAWS = 2


@dataclass(frozen=True)
class Costs:
    """Whose costs of messages a simulation takes: ``name`` of the estimator.

    ``why``: why it is not the estimator of the prediction, "" where it is. ``found``: what the
    prediction has simulated with these costs already.
    """

    name: str
    messages: Messages
    setting: Setting
    why: str = ""
    found: Kept = field(default_factory=dict)


def costs_of(study: Study, estimator: str, machine: Path | None, setting: Setting) -> Costs:
    """Return the costs with which changes to the times of an estimator are simulated.

    What was measured by a replay, or simulated outside of P3S, has no costs that could be changed:
    those between two ranks stand for it, or else published ones.
    """
    messages = messages_of(study, estimator, machine, setting)
    if estimator == messages.name:
        return Costs(estimator, messages, setting)
    measured = "costs measured between two ranks"
    where = f"those of {messages.machine}" if messages.name == TYPICAL else measured
    why = (
        f"the prediction rests on {estimator}, whose costs of messages cannot be changed; "
        f"the dependency simulation answers, with {where}"
    )
    return Costs(messages.name, messages, setting, why)


def check_answerable(
    study: Study, asked: Sequence[Changes], counts: Sequence[int], costs: Costs
) -> None:
    """Raise UsageError where changes cannot be simulated at a count.

    Where ranks are is a matter of all of them: smaller grids do not tell. Nor does a trace of some
    ranks tell what the ranks compute that are simulated.
    """
    for changes in asked:
        scaled = any(part.what not in COSTS for part in changes.of(Scaled))
        if (scaled or changes.of(Balanced)) and max(counts, default=0) > MOST_RANKS:
            raise UsageError(
                f"--what-if {changes.text}: computation is changed on all ranks, and the trace of "
                f"{processes(max(counts))} has some; ask at {MOST_RANKS:,} at most"
            )
    moved = moves(asked)
    for n in counts:
        if moved and smaller(study, n, costs.messages.cores, costs.setting) is not None:
            raise UsageError(
                f"--what-if {moved.text}: where ranks are is simulated with every "
                f"rank, and {processes(n)} are many; ask at {EVERY_RANK:,} at most, or add "
                "--every-rank"
            )


def moves(asked: Sequence[Changes]) -> Changes | None:
    """Return the first of changes that put ranks elsewhere, None where none does."""
    elsewhere = (Placed, Threads)
    return next((one for one in asked if any(isinstance(p, elsewhere) for p in one.parts)), None)


@dataclass(frozen=True, eq=False)
class Simulation:
    """The program at one count, simulated as it is and with changes.

    ``threads``: what other numbers of threads do, or why that is not known. ``moved``: changes
    put ranks elsewhere, which smaller grids do not tell.
    """

    study: Study
    n: int
    costs: Costs
    threads: MoreThreads | NotKnown = NOT_ASKED
    moved: bool = False

    @cached_property
    def times(self) -> PhaseTimes:
        """Computation, without any communication."""
        return computation(self.study, self.n)

    @cached_property
    def as_is(self) -> Changed:
        """The program without changes."""
        return Changed(self.costs.messages, self.costs.setting)

    @cached_property
    def engine(self) -> AllRanks | OnGrids:
        """What simulates it: all ranks, or the smaller grids that stand for so many."""
        messages, setting = self.costs.messages, self.costs.setting
        few = smaller(self.study, self.n, messages.cores, setting, changed=not self.moved)
        if few is None:
            return AllRanks(self.study, self.as_is, self.times)
        grids = replace(grids_of(messages, self.study, few, setting, silent), keep=True)
        return OnGrids(self.study, self.as_is, self.times, grids)

    @property
    def all_ranks(self) -> bool:
        """Whether all ranks are simulated, not smaller grids."""
        return isinstance(self.engine, AllRanks)

    @property
    def size(self) -> int:
        """How many steps there are in the iterations that are simulated first."""
        return self.engine.size(self.as_is)

    @cached_property
    def base(self) -> Made:
        """The program as it is."""
        return self._predicted or self.engine.simulated(self.as_is, None)

    @cached_property
    def _predicted(self) -> Made | None:
        """The same as the prediction has simulated it; None where it has not."""
        found = self.costs.found.get((self.costs.name, self.n))
        if found is None or found.draws is None or not self.all_ranks:
            return None
        return Made(with_communication(self.times, found), (found.draws,))

    @cached_property
    def _plain(self) -> Made:
        """The program as it is, without the ends of its interval: on smaller grids of few draws."""
        draws = 0 if self.all_ranks else _FEW_DRAWS
        as_is = self._predicted  # only its ends are more
        return as_is or self.engine.simulated(self.as_is, None, ends=False, draws=draws)

    def share(self, changes: Changes) -> float:
        """Return the run time with changes over that without, of usual costs of messages."""
        ends = "base" in self.__dict__
        one = self.base if ends else self._plain
        return run_time(self.changed(changes, ends=ends).times) / run_time(one.times)

    def changed(self, changes: Changes, *, ends: bool = True) -> Made:
        """Return the program with changes, drawn as the program as it is.

        Without ``ends`` the interval has no width. Errors: P3SError where nothing is known of what
        they do.
        """
        if not changes.of(Threads):
            return self._with(changes, changes.parts, ends)
        made, low, high = (
            self._with(changes, self._spelt(changes, end), ends) for end in (VALUE, LOW, HIGH)
        )
        return replace(made, ends=(low.times, high.times))

    def _spelt(self, changes: Changes, end: int) -> tuple[Change, ...]:
        """Return changes with what threads do to each phase in the place of threads."""
        known, phases = self._known_threads(changes), [int(p["phase"]) for p in self.times.phases]
        rest = [part for part in changes.parts if not isinstance(part, Threads)]
        for part in changes.of(Threads):
            rest += known.as_scaled(part, phases, self.n, end)
        return tuple(rest)

    def _known_threads(self, changes: Changes) -> MoreThreads:
        """Return what is known of threads; raises P3SError where that does not tell changes."""
        if isinstance(self.threads, NotKnown):
            raise P3SError(f"--what-if {changes.text}: {self.threads.why}")
        if self.costs.setting.listed_at(self.n):
            raise P3SError(
                f"--what-if {changes.text}: a file says where ranks are, and not where they are "
                "with other threads; leave --placement out"
            )
        for part in changes.of(Threads):
            self.threads.check(part.count)
        return self.threads

    def _with(self, changes: Changes, parts: tuple[Change, ...], ends: bool) -> Made:
        """Return the program with changes; ``parts``: they, or what they do to computation."""
        base = self.base if ends else self._plain
        return self.engine.simulated(Changed(*self._costs(changes), parts), base, ends=ends)

    def even(self, changes: Changes, most: int) -> PhaseTimes | None:
        """Return the times with changes where nothing varies and messages cost what is usual.

        Takes a fraction of the time of ``changed``: for sorting many changes. None where there
        would be more than ``most`` steps.
        """
        messages, setting = self._costs(changes)
        changed = Changed(messages, replace(setting, vary=False), changes.parts)
        if self.engine.size(changed) > most:
            return None
        return self.engine.simulated(changed, None, ends=False).times

    def _costs(self, changes: Changes) -> tuple[Messages, Setting]:
        """Return the costs of messages and where ranks are, as changes have them."""
        messages, setting = self.costs.messages, self.costs.setting
        for part in changes.parts:
            if isinstance(part, OnNetwork) and part.name != IDEAL:
                setting = replace(setting, network=part.name)
                library = messages.library
                messages = replace(published_messages(self.study, setting), library=library)
        for part in changes.parts:
            if isinstance(part, Placed):
                setting = placed_as(setting, part.how)
            if isinstance(part, Threads):
                each = self._known_threads(changes).per_node(part.count)
                setting = replace(setting, ranks_per_node=each)
        rules = tuple(part.rule for part in changes.parts if isinstance(part, Algorithm))
        if rules:
            library = messages.library
            library = replace(library, rules=(*rules, *library.rules))
            messages = replace(messages, library=library)
        return messages, setting


def run_time(times: PhaseTimes) -> float:
    """Return the run time in s."""
    return total(times.own + times.comm, times.estimator)


def placed_as(setting: Setting, how: str) -> Setting:
    """Return a setting whose ranks are on nodes in another way: block, cyclic or as a file says."""
    if how in (BLOCK, CYCLIC):
        return replace(setting, mapping=how, rank_file=None, rank_file_n=0)
    if not Path(how).is_file():
        raise P3SError(f"--what-if placement={how}: is no file; give block, cyclic or a rank file")
    return replace(setting, rank_file=Path(how), rank_file_n=0)


def other_costs(changes: Changes) -> bool:
    """Tell whether changes take messages that the prediction has not: others in number or costs."""
    return any(
        isinstance(part, (Algorithm, Placed, Threads))
        or (isinstance(part, OnNetwork) and part.name != IDEAL)
        for part in changes.parts
    )
