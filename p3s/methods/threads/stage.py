"""The stage of threads: runs with several numbers of threads in, threads.json out; studies at
numbers of threads that were not traced, or on nodes that are fuller than those of the runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from p3s.base.artefacts import as_json, write_bytes, write_json
from p3s.base.errors import P3SError
from p3s.base.serialise import Positive, Published, Share
from p3s.base.settings import (
    MIN_COUNTS,
    THREADS,
    filled,
    inputs_in,
    parameters,
    parse_setting,
    threads_in,
    value_text,
)
from p3s.base.study import Study
from p3s.costs.types import COMPUTE, TeamFactor, Teams
from p3s.costs.types import read as read_compute
from p3s.machine.topology.inside import Node
from p3s.methods.threads.law import NOT_MEASURED, Measured, ThreadLaw, fit_laws, value_of
from p3s.methods.threads.runs import calls_inside, samples_of, work_and_iterations
from p3s.methods.threads.settings import (
    ThreadCheck,
    at_threads,
    base_of,
    check_messages,
    with_threads,
)
from p3s.methods.threads.types import Uses, uses
from p3s.model.judge import phase_key
from p3s.model.stage import load as load_model
from p3s.model.types import Model

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
THREADS_FILE = Published("p3s.threads", 3, ThreadFile, again="run p3s model again")


def threads_path(root: Study) -> Path:
    """Return where it is kept what threads change: threads.json."""
    return root.root / "threads.json"


def build(
    root: Study,
    node: Node,
    usable: int,
    measured: Measured = NOT_MEASURED,
    say: Callable[[str], None] = lambda text: None,
) -> ThreadFile:
    """Compare messages over threads and fit the laws of computation; write the file.

    node: of the runs; usable: its cores that they could use. The models of the base's threads
    must be there. Raises P3SError where no number of threads has a model.
    """
    base = base_of(root)
    if not base:
        raise P3SError(f"{root.root}: holds no runs yet; run p3s characterize --threads first")
    checks: list[ThreadCheck] = []
    for rest in inputs_in(root):
        at = at_threads(root, rest, base)
        if at.model_path.exists():
            checks += check_messages(root, rest, load_model(at.root))
    say("fitting the laws of threads")
    samples = samples_of(root, usable, node.slots)
    laws = () if samples is None else fit_laws(samples, node, measured=measured)
    inside = calls_inside(root)
    made = ThreadFile(base, tuple(threads_in(root)), node, tuple(checks), inside, laws)
    write_json(threads_path(root), THREADS_FILE.data(made))
    return made


def load(root: Study) -> ThreadFile:
    """Return what threads change; P3SError in one line where it is missing or damaged."""
    return THREADS_FILE.read(threads_path(root))


# ---- studies at other numbers of threads ---------------------------------------------------------
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


def study_at(root: Study, file: ThreadFile, rest: str, layout: Layout, usable: int) -> Study:
    """Return the study of a layout: the traced one, or one whose computation is moved to it.

    rest: name of the input's values, whose study with the base's threads must be there; usable:
    cores of the machine of the runs. Raises P3SError where nothing says what threads change.
    """
    base = at_threads(root, rest, file.base)
    own = at_threads(root, rest, layout.threads)
    traced = len(own.signature_counts()) >= MIN_COUNTS and own.model_path.exists()
    source, threads = (own, layout.threads) if traced else (base, file.base)
    if not traced and layout.threads != file.base and not file.laws:
        raise P3SError(
            f"{root.root}: nothing says how computation goes with threads: no times were taken; "
            "run p3s characterize --threads again with --work cpu"
        )
    moved = factors(source, base, file, Layout(threads, max(usable // threads, 1)), layout)
    if traced and all(_is_one(factor) for factor in moved.factors):
        return own
    place, setting = (
        _place(root, rest, layout, traced),
        parse_setting(with_threads(rest, layout.threads)),
    )
    command = filled(root.command(), {name: setting[name] for name in parameters(root)})
    made = Study.create(place, command)
    made.update(
        derived=True,
        teams={"threads": layout.threads, "per_node": layout.per_node, "far": layout.far},
        traces=os.path.relpath(source.root, place),
        setting={name: value_text(x) for name, x in setting.items() if name != THREADS},
    )
    compute = read_compute(source.compute_path)
    _write_same(made.model_path, source.model_path.read_bytes())
    _write_same(made.compute_path, as_json(COMPUTE.data(replace(compute, teams=moved))).encode())
    return made


def _place(root: Study, rest: str, layout: Layout, traced: bool) -> Path:
    """Return where a moved study is: beside the traced ones, or in the one with its threads."""
    at = at_threads(root, rest, layout.threads).root
    name = f"{layout.per_node}-a-node" + ("-far" if layout.far else "")
    return at / name if traced else at


def _is_one(factor: TeamFactor) -> bool:
    return all(abs(value - 1.0) < _SAME for value in factor.value)


def factors(at: Study, base: Study, file: ThreadFile, was: Layout, now: Layout) -> Teams:
    """Return what computation of each phase of a study takes in one layout, over that in another.

    base: the study with the base's threads and the same values of the input. Both layouts are of
    the node that the laws are for.
    """
    model = load_model(base.root)
    number = _numbers(load_model(at.root), model)
    first = min(model.counts)
    counts = [first << k for k in range(21) if first << k <= _MOST_N]
    work, _ = work_and_iterations(base, model, counts)
    found = []
    for law in file.laws:
        if law.phase not in number:
            continue
        there = np.flatnonzero(work[:, law.phase] > 0)
        some, each = [counts[k] for k in there], work[there, law.phase]
        ratio = law.draws(now.uses(some), each) / law.draws(was.uses(some), each)
        told = [tuple(part.tolist()) for part in value_of(ratio)]
        found.append(TeamFactor(number[law.phase], tuple(map(float, some)), *told))
    return Teams(now.threads, was.threads, now.per_node, now.far, tuple(found))


def _numbers(model: Model, base: Model) -> dict[int, int]:
    """Return the phases of the base's model -> those of another with the same calls."""
    mine = {phase_key(p, model.items): p.phase for p in model.phases}
    keys = {p.phase: phase_key(p, base.items) for p in base.phases}
    return {k: mine[key] for k, key in keys.items() if key in mine}


def _write_same(path: Path, content: bytes) -> None:
    """Write a file, unless it is there with this content: it stays as old as it is."""
    if not path.exists() or path.read_bytes() != content:
        write_bytes(path, content)
