"""Studies with parameters, threads of OpenMP among them: their values, models, nodes, laws."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from p3s.base.command_lines import render_from_here
from p3s.base.errors import P3SError, UsageError
from p3s.base.extensions import load_provided
from p3s.base.host.cores import cores
from p3s.base.progress import Progress
from p3s.base.settings import (
    MIN_COUNTS,
    THREADS,
    Setting,
    alike_in_threads,
    has_threads,
    inputs_in,
    one_setting,
    parameters,
    setting_name,
    settings_in,
    threads_in,
    threads_of,
    traces_of,
    without_threads,
)
from p3s.base.study import Study
from p3s.base.text import plural, quote_word
from p3s.machine.cluster import cluster_of
from p3s.machine.topology.inside import Node
from p3s.pipeline.prediction import Request, basis_of
from p3s.pipeline.stages import (
    build_family,
    ensure_model,
    ensure_signatures,
    instantiate,
    is_missing,
    load_family,
    machine_file,
)

if TYPE_CHECKING:
    from p3s.costs.parameters.laws import Family
    from p3s.predict.surface import Surface
    from p3s.predict.types import Reason
    from p3s.predict.what_if.changes import MoreThreads
    from p3s.signature_runner.recording import Recording


@dataclass(frozen=True)
class PredictionRange:
    """What is to be predicted: process counts, numbers of threads, and the values of the input.

    rest: name of the values of the input's own parameters. node: of the run, None: as many cores as
    those of the network.
    """

    counts: Sequence[int]
    threads: Sequence[int]
    rest: str = ""
    node: Node | None = None


@dataclass(frozen=True)
class Laws:
    """What threads change, as text and as plain data, and what speaks against it."""

    text: str
    data: Mapping[str, object]
    reasons: Sequence[Reason]


@dataclass(frozen=True)
class OverThreads:
    """What an extension registers for studies with several numbers of threads.

    more: of (study, processes of a node, progress): what other numbers do. at: the study at values
    of all parameters. laws: of (study, progress, whether to fit again). surface: of (study, wanted,
    request, progress, only=, allowed=).
    """

    more: Callable[[Study, int, Progress], MoreThreads | str]
    at: Callable[[Study, Setting, Progress], Study]
    laws: Callable[[Study, Progress, bool], Laws]
    surface: Callable[..., Surface]


def over_threads() -> OverThreads:
    """Return what the first extension for threads registers."""
    found: OverThreads = next(load_provided("teams"))
    return found


def plain_node(cores: int, source: str = "") -> Node:
    """Return a node of which only the number of cores is known."""
    return Node(source or plural(cores, "core"), (cores,), (1,), (cores,))


def node_of(study: Study, request: Request) -> Node:
    """Return the node of a run: as measured, or with the cores of the typical cluster's."""
    from p3s.machine.machinefile import Machine

    if request.settings.cores_per_node:
        return plain_node(request.settings.cores_per_node)
    file = machine_file(study)
    how, _ = basis_of(request, [1], file, lambda _: False)
    if name := how.setting.network:
        return plain_node(cluster_of(name).cores_per_node, name)
    known = Machine.load(file).facts.cores if file is not None else None
    return plain_node(known if isinstance(known, int) and known > 0 else cores())


def fill_node_slots(study: Study, request: Request, machine: Study | None = None) -> Request:
    """Return a request whose nodes the threads of a study's processes fill, unless it says more.

    A node has as many cores as :func:`node_of` says; each process takes one for each thread.
    machine: the study of the machine that is predicted for, where it is another one.
    """
    threads = threads_of(study)
    if threads <= 1 or request.settings.cores_per_node or request.cluster.rank_file is not None:
        return request
    each = max(node_of(machine or study, request).slots // threads, 1)
    return replace(request, settings=replace(request.settings, cores_per_node=each))


# ---- what the user says of threads ---------------------------------------------------------------
def with_teams(
    params: Sequence[str],
    recording: Recording,
    threads: Sequence[int],
    affinity: str,
    oversubscribe: bool,
    processes: Sequence[int],
) -> tuple[list[str], Recording]:
    """Return the parameters with threads as one of them, and the recording with the affinity.

    Errors: UsageError for affinities that there are not, for threads as a --param, and for more
    threads than cores without --oversubscribe.
    """
    from p3s.base.host.cores import AFFINITIES, check_affinity, check_threads

    if any(word.partition("=")[0] == THREADS for word in params):
        raise UsageError("--param threads: write --threads, which tells the OpenMP runtime too")
    if affinity not in AFFINITIES:
        raise UsageError(f"--affinity {affinity}: not one of {', '.join(AFFINITIES)}")
    if not threads:
        return list(params), recording
    check_threads(threads, oversubscribe, cores())
    check_affinity(affinity, processes, threads, cores())
    if recording.work == "instructions" and list(threads) != [1]:
        raise UsageError(
            "--work instructions counts those of a process's first thread only; with --threads "
            "take --work cpu"
        )
    listed = ",".join(map(str, threads))
    return [*params, f"{THREADS}={listed}"], replace(recording, affinity=affinity)


def needs_threads(root: Path, params: Sequence[str]) -> bool:
    """Tell whether a study was traced with --threads and no --param says how many."""
    named = any(word.partition("=")[0] == THREADS for word in params)
    return has_threads(Study(root)) and not named


def with_threads(root: Path) -> Study:
    """Return a study that was traced with --threads; raises P3SError for any other."""
    study = Study.open(root)
    if not has_threads(study):
        words = ["p3s", "characterize", "-n", "2,4,8", "--threads", "1,2,4", "-o"]
        traces = traces_of(study)
        words += [str(study.root.with_name(f"{study.root.name}-threads")), "--", *traces.launcher]
        raise P3SError(
            f"{root}: was not traced with threads; trace it so: {render_from_here(traces, words)}"
        )
    if not threads_in(study):
        raise P3SError(f"{root}: holds no runs yet; run p3s characterize --threads first")
    return study


def inputs_of(study: Study, params: Sequence[str]) -> str:
    """Return the name of the values of the input's parameters, "" where there are none.

    Without --param the largest values that were traced; raises UsageError as --param does.
    """
    names = [name for name in parameters(study) if name != THREADS]
    if not names or not params:
        return inputs_in(study)[-1] if names else ""
    return setting_name(one_setting(params, names))


def with_parameters(study_dir: Path) -> Study:
    """Return a study that has parameters; raises UsageError for another."""
    study = Study.open(study_dir)
    if not parameters(study):
        raise UsageError(
            f"{study_dir}: has no parameters; --param and --weak need a study traced with "
            "p3s characterize --param"
        )
    return study


class NamedProgress(Progress):
    """Steps of one setting of the parameters, told with its name.

    notes: what the user should know is told, too, without the name.
    """

    def __init__(self, bar: Progress, name: str, *, notes: bool = False) -> None:
        super().__init__()
        self._of, self._name, self._notes = bar, name, notes

    def start(self, text: str) -> None:
        """Say which step is being done."""
        self._of.start(f"{self._name} {text}")

    def done(self, text: str) -> None:
        """Say that a step has ended."""
        self._of.done(f"{self._name} {text}")

    def say(self, text: str) -> None:
        """Say something that the user should know, in one line."""
        if self._notes:
            self._of.say(text)


def ensure_family(study: Study, bar: Progress, *, again: bool = False) -> Family | None:
    """Fit the models of all values and the laws of the parameters where missing or out of date.

    None for a study whose runs differ in their threads alone: these have laws of their own.
    """
    for setting, at in alike_in_threads(study):
        if len(ensure_signatures(at, bar)) >= MIN_COUNTS:
            ensure_model(at, NamedProgress(bar, setting_name(setting)), again=again)
    if parameters(study) == [THREADS]:
        return None
    if again or is_missing(study, "family"):
        bar.start("fitting the laws of the parameters")
        build_family(study.root, say=lambda text: bar.start(text))
        bar.done("laws of the parameters fitted")
    return load_family(study.root)


def largest_values(study: Study) -> tuple[Study, list[str]]:
    """Return the study at the largest values that were traced, and the options that name them."""
    setting, at = max(settings_in(study), key=lambda pair: tuple(pair[0].values()))
    rest = setting_name(without_threads(setting))
    words = [word for each in rest.split(",") if each for word in ("--param", each)]
    if THREADS in setting:
        words += ["--threads", ",".join(map(str, threads_in(study)))]
    return at, words


def at_value(study_dir: Path, params: Sequence[str], bar: Progress) -> Path:
    """Return the study at one value of every parameter, derived if it was not traced."""
    study = with_parameters(study_dir)
    setting = one_setting(params, parameters(study))
    ensure_family(study, bar)
    if THREADS in setting:
        return over_threads().at(study, setting, bar).root
    path = instantiate(study.root, setting)
    bar.say(f"{setting_name(setting)}: {_origin(Study(path))}, {quote_word(path)}")
    return path


def _origin(at: Study) -> str:
    """Return where the model of a value comes from and what speaks against it."""
    from p3s.model.stage import read

    derived = read(at.model_path).derived
    if derived is None:
        return "traced"
    text = f"derived from {', '.join(derived.settings)}"
    if derived.outside > 1:
        text += f"; {derived.outside:.3g} times outside the traced values"
    if derived.left_out:
        text += f"; without {', '.join(derived.left_out)}, whose structure is another"
    return text
