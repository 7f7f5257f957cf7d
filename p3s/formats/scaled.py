"""The programs of the ranks of a scaled trace, for formats of calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from p3s.base.arrays import Bools
from p3s.base.errors import P3SError, UsageError
from p3s.base.text import plural, processes
from p3s.formats.calls import RankProgram, members_are_world, programs_of_steps
from p3s.formats.exported import ExportResult, Say
from p3s.model.law_types import TraceOrder
from p3s.program.collectives.choose import Library
from p3s.program.collectives.expand import MOST_STEPS, expand
from p3s.program.order.sections import sections_of, whole_run
from p3s.program.order.unstick import endless
from p3s.program.scaled import ScaledTrace
from p3s.simulate.network import Network
from p3s.simulate.steps import Op, Section, Steps

#: Events of a whole run, at most: each takes some 350 bytes of memory.
MOST_EVENTS = 20_000_000
#: Iterations of a loop that are simulated unless it is said otherwise.
TURNS = 3
#: Tells of a collective, and of whether all ranks are in it, whether it is written as a call.
Keep = Callable[[str, bool], bool]


@dataclass(frozen=True)
class ScaledSource:
    """A scaled trace as it is exported; ``where`` it was read from.

    ``library``: whose algorithms collectives have. ``network``: returns the costs of messages, and
    what is to be said of them; P3SError where there are none. ``say``: says what is done.
    """

    where: Path
    trace: ScaledTrace
    order: TraceOrder | None
    library: Library
    network: Callable[[], tuple[Network, list[str]]]
    say: Say

    def sections(self, turns: int) -> tuple[Section, ...]:
        """Return its sections, so many iterations of each loop; P3SError where there are none."""
        sections = sections_of(self.trace, self.order, turns=turns)
        if not sections:
            raise P3SError(f"{self.where}: has no calls to write")
        return sections

    def whole(self) -> Section:
        """Return the whole run; UsageError where it is too long, P3SError where it is not known."""
        n, events = self.trace.n, int(self.trace.repeat.sum(dtype=np.float64))  # no overflow
        if events > MOST_EVENTS:
            raise UsageError(
                f"{self.where}: the whole run has {events:,} events, more "
                f"than {MOST_EVENTS:,}; write some iterations of each loop: --turns 3"
            )
        if self.order is None or self.order.loops is None:
            raise P3SError(
                f"{self.where}: the order of events is not known, so there is no whole "
                "run to write; write a few iterations of each loop: --turns 1"
            )
        if len(np.unique(self.trace.rank)) != n:
            raise P3SError(f"{self.where}: does not hold all {n} ranks; run p3s scale -n {n}")
        return whole_run(self.trace, self.order)


def programs_of(
    scaled: ScaledSource, keep: Keep, result: ExportResult
) -> Iterator[tuple[str, Iterable[RankProgram]]]:
    """Yield the programs of the whole run under no name, or those of each section under its own.

    Takes down what they lack.
    """
    n, turns = result.n, result.options.turns
    whole = turns is None
    for k, section in enumerate((scaled.whole(),) if turns is None else scaled.sections(turns)):
        where = "" if whole else f"{section.name}: "
        if whole:
            scaled.say(f"{processes(n)}: {plural(len(section.steps), 'event')}")
        result.events += float(len(section.steps))
        result.takes(section, None if whole else k)
        stays = _staying(section.steps, n, keep)
        most, node_of = MOST_EVENTS if whole else MOST_STEPS, result.options.nodes_of(n)
        expansion = expand(section.steps, scaled.library, ~stays, node_of=node_of, most_steps=most)
        notes = (*section.notes, *expansion.notes, *endless(expansion.steps))
        result.notes += [f"{where}{note}" for note in notes]
        if whole and expansion.used:
            result.notes.append(f"algorithms of collectives that are messages: {scaled.library}")
        yield "" if whole else f"section-{k:03d}", programs_of_steps(expansion.steps)


def _staying(steps: Steps, n: int, keep: Keep) -> Bools:
    """Return which steps are collectives that are written as calls."""
    stays = np.zeros(len(steps), dtype=bool)
    for c in np.unique(steps.comm[steps.op == int(Op.COLLECTIVE)]).tolist():
        world = members_are_world(steps.members, c, n)
        calls = [i for i, name in enumerate(steps.calls) if keep(name, world)]
        stays |= (steps.op == int(Op.COLLECTIVE)) & (steps.comm == c) & np.isin(steps.call, calls)
    return stays
