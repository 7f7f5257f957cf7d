"""One process count simulated as it is and with changes, with the same draws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from p3s.errors import P3SError
from p3s.predict.estimated import TYPICAL
from p3s.predict.estimators import Setting, estimate
from p3s.predict.estimators.altered import Altered, Draws
from p3s.predict.estimators.fewer import smaller
from p3s.predict.estimators.machine import measured_messages, placed, why_not
from p3s.predict.estimators.prepared import on_nodes, read_program
from p3s.predict.estimators.typical import published_messages
from p3s.predict.estimators.wired import wired
from p3s.predict.times import PhaseTimes, computation, with_communication
from p3s.predict.what_if.changes import IDEAL, Algorithm, Changes, OnNetwork, Placed
from p3s.predict.what_if.costs import altered_network
from p3s.predict.what_if.work import Where, altered_variation, altered_work, nowhere, where_of
from p3s.program.mapping import BLOCK, CYCLIC
from p3s.text import processes

if TYPE_CHECKING:
    from p3s.predict.estimators.messages import Messages
    from p3s.predict.estimators.prepared import Prepared, Program
    from p3s.study import Study

Say = Callable[[str], None]


def _nothing(_: str) -> None:
    """Say nothing."""


@dataclass(frozen=True)
class Costs:
    """Whose costs of messages a simulation takes: ``name`` of the estimator.

    ``why``: why it is not the estimator of the prediction, "" where it is.
    """

    name: str
    messages: Messages
    setting: Setting
    why: str = ""


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


@dataclass(frozen=True, eq=False)
class Made:
    """A simulation: times, and what its draws came to."""

    times: PhaseTimes
    draws: Draws


@dataclass(frozen=True, eq=False)
class Simulation:
    """The program at one count, simulated as it is and with changes."""

    study: Study
    n: int
    costs: Costs

    @cached_property
    def times(self) -> PhaseTimes:
        """Computation, without any communication."""
        return computation(self.study, self.n)

    @cached_property
    def program(self) -> Program:
        """What of the scaled trace is simulated; P3SError where that is too much."""
        if smaller(self.study, self.n, self.costs.messages.cores, self.costs.setting) is not None:
            raise P3SError(
                f"--what-if: changes are simulated with every rank, and {processes(self.n)} are "
                "many; ask at a smaller count, or add --every-rank"
            )
        return read_program(self.study.scaled_dir(self.n), queues=self.costs.messages.queues)

    @cached_property
    def ready(self) -> Prepared:
        """The program with its ranks on nodes, as the prediction has them."""
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
        return 0 if self.n == 1 else sum(len(loop.full) for loop in self.ready.loops)

    @cached_property
    def base(self) -> Made:
        """The program as it is."""
        if self.n == 1:
            return self._alone(self.times)
        return self._run(self.ready, self.costs.messages, self.costs.setting, self.times, Altered())

    def changed(self, changes: Changes) -> Made:
        """Return the program with changes, drawn as the program as it is."""
        messages, setting = self._costs(changes)
        if self.n == 1:
            work = altered_work(changes.parts, self.times, self.where)
            return self._alone(self.times if work is None else work.of_times(self.times))
        same = messages is self.costs.messages and setting is self.costs.setting
        ready = self.ready if same else self._ready(messages, setting)
        times, parts = self.times, changes.parts
        where = self.where if same else where_of(ready, times, self.study.scaled_dir(self.n))
        work = altered_work(parts, times, where)
        if work is not None:
            times, ready = work.of_times(times), work.of_steps(ready, where)
        altered = Altered(altered_network(parts), altered_variation(parts, ready.phases))
        return self._run(ready, messages, setting, times, altered, self.base.draws.again())

    def even(self, changes: Changes, most: int) -> PhaseTimes | None:
        """Return the times with changes where nothing varies and messages cost what is usual.

        Takes a fraction of the time of ``changed``: for sorting many changes. None where there
        would be more than ``most`` steps.
        """
        messages, setting = self._costs(changes)
        ready = self._ready(messages, setting)
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
    ) -> Made:
        draws = Draws() if draws is None else draws
        altered = replace(altered, draws=draws)
        found = placed(messages, self.study, ready, setting, _nothing, altered=altered)
        return Made(with_communication(times, found), draws)

    def _ready(self, messages: Messages, setting: Setting) -> Prepared:
        """Return the program with its ranks on nodes."""
        mapping = setting.mapping_at(self.n, messages.cores)
        there = wired(setting.topology, mapping, setting.hosts) if setting.topology else None
        return on_nodes(self.program, messages.library, mapping, there)

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
        rules = tuple(part.rule for part in changes.parts if isinstance(part, Algorithm))
        if rules:
            library = messages.library
            library = replace(library, rules=(*rules, *library.rules))
            messages = replace(messages, library=library)
        return messages, setting


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
        isinstance(part, (Algorithm, Placed))
        or (isinstance(part, OnNetwork) and part.name != IDEAL)
        for part in changes.parts
    )
