"""One process count simulated as it is and with changes, with the same draws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from p3s.base.errors import P3SError, UsageError
from p3s.base.text import processes
from p3s.predict.estimated import TYPICAL
from p3s.predict.estimators import Setting, estimate
from p3s.predict.estimators.altered import Altered, Draws
from p3s.predict.estimators.fewer import EVERY_RANK, smaller
from p3s.predict.estimators.machine import grids_of, measured_messages, placed, why_not
from p3s.predict.estimators.prepared import on_nodes_of, read_program
from p3s.predict.estimators.typical import published_messages
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
from p3s.predict.what_if.costs import altered_network
from p3s.predict.what_if.on_grids import Changed, Found, OnGrids
from p3s.predict.what_if.threads import HIGH, LOW, NOT_ASKED, VALUE, MoreThreads, NotKnown
from p3s.predict.what_if.work import Where, altered_variation, altered_work, nowhere, where_of
from p3s.program.mapping import BLOCK, CYCLIC
from p3s.program.types import MOST_RANKS

if TYPE_CHECKING:
    from p3s.base.study import Study
    from p3s.predict.estimates import Kept
    from p3s.predict.estimators.messages import Messages
    from p3s.predict.estimators.prepared import Prepared, Program
    from p3s.predict.what_if.changes import Change
    from p3s.program.scaled import ScaledTrace

#: Draws of computation where only a ratio is asked for, whose two times draw the same.
_FEW_DRAWS = 2

Say = Callable[[str], None]


def _nothing(_: str) -> None:
    """Say nothing."""


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
    if estimator == TYPICAL:
        return Costs(TYPICAL, published_messages(study, setting), setting)
    if estimator == "machine":
        return Costs(estimator, measured_messages(study, machine, setting), setting)
    lacking = why_not(study, machine)
    why = (
        f"the prediction rests on {estimator}, whose costs of messages cannot be changed; "
        "the dependency simulation answers, with "
    )
    if not lacking:
        messages = measured_messages(study, machine, setting)
        return Costs("machine", messages, setting, why + "costs measured between two ranks")
    messages = published_messages(study, setting)
    return Costs(TYPICAL, messages, setting, f"{why}those of {messages.machine}")


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
class Made:
    """A simulation: times, and what its draws came to.

    ``ends``: the times where what changes do is not known exactly, at the ends of the 90 % interval
    of that alone; None where it is.
    """

    times: PhaseTimes
    draws: Draws
    ends: tuple[PhaseTimes, PhaseTimes] | None = None


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
    def grids(self) -> OnGrids | None:
        """The smaller grids that stand for so many ranks; None: all ranks are simulated."""
        messages, setting = self.costs.messages, self.costs.setting
        few = smaller(self.study, self.n, messages.cores, setting, changed=not self.moved)
        if few is None:
            return None
        made = replace(grids_of(messages, self.study, few, setting, _nothing), keep=True)
        return OnGrids(made, self.times, self.study.scaled_dir(self.n))

    @cached_property
    def program(self) -> Program:
        """What of the scaled trace is simulated, where no grids stand for it."""
        return read_program(self.study.scaled_dir(self.n), queues=self.costs.messages.queues)

    @property
    def trace(self) -> ScaledTrace:
        """The trace of what is simulated: of the smallest grid, where these stand for all ranks."""
        if self.grids is not None:
            return self.grids.grids.prepared[0].ready.trace
        return self.program.trace

    @cached_property
    def ready(self) -> Prepared:
        """The program with its ranks on nodes, as the prediction has them; as ``trace``."""
        if self.grids is not None:
            return self.grids.grids.prepared[0].ready
        return self._ready(self.costs.messages, self.costs.setting)

    @cached_property
    def where(self) -> Where:
        """Which phase each simulated step belongs to."""
        if self.n == 1:
            return nowhere(self.times)
        return where_of(self.ready, self.times, self.study.scaled_dir(self.n))

    @property
    def size(self) -> int:
        """How many steps there are in the iterations that are simulated first."""
        if self.n == 1:
            return 0
        if self.grids is not None:
            return self.grids.size(self._as_is)
        return sum(len(loop.full) for loop in self.ready.loops)

    @property
    def _as_is(self) -> Changed:
        return Changed(self.costs.messages, self.costs.setting)

    @cached_property
    def _of_grids(self) -> Found:
        """What smaller grids say of the program as it is."""
        assert self.grids is not None
        return self.grids.simulated(self._as_is, None)

    @cached_property
    def base(self) -> Made:
        """The program as it is."""
        if self.n == 1:
            return self._alone(self.times)
        if self.grids is not None:
            return _made(self._of_grids)
        if self._predicted is not None:
            return self._predicted
        return self._run(self.ready, self.costs.messages, self.costs.setting, self.times, Altered())

    @cached_property
    def _predicted(self) -> Made | None:
        """The same as the prediction has simulated it; None where it has not."""
        found = self.costs.found.get((self.costs.name, self.n))
        if found is None or found.draws is None:
            return None
        return Made(with_communication(self.times, found), found.draws)

    @cached_property
    def _plain_of_grids(self) -> Found:
        """The same without the ends of the interval, of few draws."""
        assert self.grids is not None
        return self.grids.simulated(self._as_is, None, ends=False, draws=_FEW_DRAWS)

    @cached_property
    def _plain(self) -> Made:
        """The program as it is, without the ends of its interval."""
        if self.n == 1:
            return self._alone(self.times)
        if self.grids is not None:
            return _made(self._plain_of_grids)
        if self._predicted is not None:  # only its ends are more
            return self._predicted
        messages, setting = self.costs.messages, self.costs.setting
        return self._run(self.ready, messages, setting, self.times, Altered(), ends=False)

    def share(self, changes: Changes) -> float:
        """Return the run time with changes over that without, of usual costs of messages."""
        one, other = (
            (self.base, self.changed(changes))
            if "base" in self.__dict__
            else (self._plain, self.changed(changes, self._plain, ends=False))
        )
        return run_time(other.times) / run_time(one.times)

    def changed(self, changes: Changes, base: Made | None = None, *, ends: bool = True) -> Made:
        """Return the program with changes, drawn as the program as it is.

        ``base``: that, default with the ends of its interval; without ``ends`` it has no width.
        Errors: P3SError where nothing is known of what they do.
        """
        if not changes.of(Threads):
            return self._with(changes, changes.parts, base, ends)
        made, low, high = (
            self._with(changes, self._spelt(changes, end), base, ends) for end in (VALUE, LOW, HIGH)
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

    def _with(
        self, changes: Changes, parts: tuple[Change, ...], base: Made | None, ends: bool
    ) -> Made:
        """Return the program with changes; ``parts``: they, or what they do to computation."""
        messages, setting = self._costs(changes)
        if self.n == 1:
            work = altered_work(parts, self.times, self.where)
            return self._alone(self.times if work is None else work.of_times(self.times))
        if self.grids is not None:
            changed = Changed(messages, setting, parts)
            as_is = self._of_grids if ends else self._plain_of_grids
            return _made(self.grids.simulated(changed, as_is, ends=ends), as_is)
        same = messages is self.costs.messages and setting is self.costs.setting
        ready = self.ready if same else self._ready(messages, setting)
        times = self.times
        where = self.where if same else where_of(ready, times, self.study.scaled_dir(self.n))
        work = altered_work(parts, times, where)
        if work is not None:
            times, ready = work.of_times(times), work.of_steps(ready, where)
        altered = Altered(altered_network(parts), altered_variation(parts, ready.phases))
        draws = (base or self.base).draws.again()
        return self._run(ready, messages, setting, times, altered, draws, ends=ends)

    def even(self, changes: Changes, most: int) -> PhaseTimes | None:
        """Return the times with changes where nothing varies and messages cost what is usual.

        Takes a fraction of the time of ``changed``: for sorting many changes. None where there
        would be more than ``most`` steps.
        """
        messages, setting = self._costs(changes)
        if self.grids is not None:
            changed = Changed(messages, replace(setting, vary=False), changes.parts)
            if self.grids.size(changed) > most:
                return None
            return self.grids.simulated(changed, None, ends=False).times
        same = messages is self.costs.messages and setting is self.costs.setting
        ready = self.ready if same else self._ready(messages, setting)
        if sum(len(loop.full) for loop in ready.loops) > most:
            return None
        still = replace(setting, vary=False)
        found = placed(messages, self.study, ready, still, _nothing, ends=False)
        return with_communication(self.times, found)

    def _alone(self, times: PhaseTimes) -> Made:
        """Return the times of one process, which communicates with nobody."""
        return Made(with_communication(times, estimate(self.costs.name, self.study, 1)), Draws())

    def _run(
        self,
        ready: Prepared,
        messages: Messages,
        setting: Setting,
        times: PhaseTimes,
        altered: Altered,
        draws: Draws | None = None,
        *,
        ends: bool = True,
    ) -> Made:
        draws = Draws() if draws is None else draws
        altered = replace(altered, draws=draws)
        found = placed(messages, self.study, ready, setting, _nothing, ends=ends, altered=altered)
        return Made(with_communication(times, found), draws)

    def _ready(self, messages: Messages, setting: Setting) -> Prepared:
        """Return the program with its ranks on nodes."""
        return on_nodes_of(self.program, messages.library, setting, messages.cores)

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


def _made(found: Found, base: Found | None = None) -> Made:
    """Return what smaller grids say; what the few draws leave open is that of the largest.

    ``base``: the program as it is, which says which of them computation was drawn on.
    """
    drawn = [number for number, each in enumerate((base or found).draws) if each.plan]
    return Made(found.times, found.draws[drawn[-1]] if drawn else Draws())


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
