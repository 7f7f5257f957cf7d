"""The stage of threads: runs with several numbers of threads in, threads.json out; what
computation takes on nodes that are fuller than those of the runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from p3s.base.serialise import FileFormat, Positive, Share
from p3s.costs.types import TeamFactor, Teams
from p3s.machine.topology.inside import Node
from p3s.methods.threads.law import NOT_MEASURED, Measured, ThreadLaw, fit_laws, value_of
from p3s.methods.threads.runs import Run, Work, calls_inside, samples_of
from p3s.methods.threads.settings import ThreadCheck
from p3s.methods.threads.types import Uses, uses
from p3s.model.judge import phase_key
from p3s.model.types import Model

#: The file of a study.
NAME = "threads.json"
#: A factor nearer to 1 than this at all counts moves nothing.
_SAME = 1e-3
#: Factors are kept up to this count.
_MOST_N = 1 << 20


@dataclass(frozen=True)
class ThreadFile:
    """What threads change: laws of computation by phase, and runs beside the base's messages.

    base: threads of the runs that the equations of messages are from; node: that the laws are for;
    inside: largest share of a run's MPI calls that threads made in parallel regions.
    """

    base: Positive
    threads: tuple[Positive, ...]
    node: Node
    checks: tuple[ThreadCheck, ...]
    inside: Share
    laws: tuple[ThreadLaw, ...]


#: The format of threads.json.
THREADS_FILE = FileFormat("p3s.threads", 3, ThreadFile, again="run p3s model again")


def build(
    base: int,
    runs: Sequence[Run],
    checks: Sequence[ThreadCheck],
    bases: Mapping[str, Work],
    node: Node,
    usable: int,
    measured: Measured = NOT_MEASURED,
) -> ThreadFile:
    """Return what threads change: the laws of computation, beside how messages differ.

    base: threads of the runs that the equations of messages are from; bases: what these compute,
    by the values of the input; node: of the runs; usable: its cores that they could use.
    """
    samples = samples_of(runs, bases, usable, node.slots)
    laws = () if samples is None else fit_laws(samples, node, measured=measured)
    threads = tuple(sorted({run.threads for run in runs}))
    return ThreadFile(base, threads, node, tuple(checks), calls_inside(runs), laws)


def load(root: Path) -> ThreadFile:
    """Return what threads change; P3SError in one line where it is missing or damaged."""
    return THREADS_FILE.read(root / NAME)


# ---- other numbers of threads --------------------------------------------------------------------
@dataclass(frozen=True)
class Layout:
    """Threads of a process, processes of a node, and whether threads are spread over it."""

    threads: int
    per_node: int
    far: bool = False

    def uses(self, counts: Sequence[int]) -> Uses:
        """Return the use of nodes at process counts."""
        rows = len(counts)
        return uses(
            counts,
            [self.threads] * rows,
            [min(n, self.per_node) for n in counts],
            [self.far] * rows,
        )


def factors(model: Model, base: Work, file: ThreadFile, was: Layout, now: Layout) -> Teams:
    """Return what computation of each phase of a model takes in one layout, over that in another.

    base: with the base's threads and the same values of the input. Both layouts are of the node
    that the laws are for.
    """
    number = _numbers(model, base.model)
    first = min(base.model.counts)
    counts = [first << k for k in range(21) if first << k <= _MOST_N]
    work, _ = base.over(counts)
    out = []
    for law in file.laws:
        if law.phase not in number:
            continue
        busy = np.flatnonzero(work[:, law.phase] > 0)
        used_counts, each = [counts[k] for k in busy], work[busy, law.phase]
        ratio = law.draws(now.uses(used_counts), each) / law.draws(was.uses(used_counts), each)
        ends = [tuple(part.tolist()) for part in value_of(ratio)]
        out.append(TeamFactor(number[law.phase], tuple(map(float, used_counts)), *ends))
    return Teams(now.threads, was.threads, now.per_node, now.far, tuple(out))


def changes_nothing(moved: Teams) -> bool:
    """Tell whether computation takes as long in one layout as in the other."""
    values = [value for factor in moved.factors for value in factor.value]
    return all(abs(value - 1.0) < _SAME for value in values)


def _numbers(model: Model, base: Model) -> dict[int, int]:
    """Return the phases of the base's model -> those of another with the same calls."""
    mine = {phase_key(p, model.items): p.phase for p in model.phases}
    keys = {p.phase: phase_key(p, base.items) for p in base.phases}
    return {k: mine[key] for k, key in keys.items() if key in mine}
