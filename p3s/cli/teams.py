"""OpenMP threads on the command line: --threads of characterize and predict."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from p3s.base.errors import P3SError, UsageError
from p3s.base.study import Study
from p3s.cli.common import emit_json, out, progress, quoted, say, say_reasons

if TYPE_CHECKING:
    from p3s.pipeline.basis import Request
    from p3s.signature_runner.recording import Recording


def parse_threads(text: str) -> list[int]:
    """Return numbers of threads, ascending; raises UsageError for anything else."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() and int(word[:9]) > 0 for word in words):
        raise UsageError(f"--threads {text}: give numbers of threads, for example --threads 1,2,4")
    return sorted({int(word[:9]) for word in words})


def with_teams(
    params: Sequence[str],
    recording: Recording,
    threads: str,
    affinity: str,
    oversubscribe: bool,
    processes: Sequence[int],
) -> tuple[list[str], Recording]:
    """Return the parameters with threads as one of them, and the recording with the affinity.

    Errors: UsageError for affinities that there are not, for threads as a --param, and for more
    threads than cores without --oversubscribe.
    """
    from p3s.base.host.cores import AFFINITIES, check_affinity, check_threads, cores
    from p3s.base.settings import THREADS

    if any(word.partition("=")[0] == THREADS for word in params):
        raise UsageError("--param threads: write --threads, which tells the OpenMP runtime too")
    if affinity not in AFFINITIES:
        raise UsageError(f"--affinity {affinity}: not one of {', '.join(AFFINITIES)}")
    if not threads:
        return list(params), recording
    counts = parse_threads(threads)
    check_threads(counts, oversubscribe, cores())
    check_affinity(affinity, processes, counts, cores())
    if recording.work == "instructions" and counts != [1]:
        raise UsageError(
            "--work instructions counts those of a process's first thread only; with --threads "
            "take --work cpu"
        )
    return [*params, f"{THREADS}={','.join(map(str, counts))}"], replace(
        recording, affinity=affinity
    )


# ---- predict -----------------------------------------------------------------------------------
@dataclass(frozen=True)
class AskedThreads:
    """What the options of ``p3s predict`` say of threads; node: "" if not given."""

    threads: str
    node: str


def needs_threads(root: Path, params: Sequence[str]) -> bool:
    """Tell whether a study was traced with --threads and no --param says how many."""
    from p3s.base.settings import THREADS, has_threads

    named = any(word.partition("=")[0] == THREADS for word in params)
    return has_threads(Study(root)) and not named


def predict(
    root: Path,
    counts: Sequence[int],
    asked: AskedThreads,
    params: Sequence[str],
    request: Request,
    json_: bool,
    only: bool,
    allowed: Collection[str],
) -> int:
    """Predict run times over processes and threads; write and print the surface."""
    from p3s.base.settings import threads_in
    from p3s.machine.topology.inside import read_node
    from p3s.pipeline.teams import Wanted, over_threads
    from p3s.predict.surface import SURFACE, write
    from p3s.report.surface import render

    study = with_teams_of(root)
    threads = parse_threads(asked.threads) if asked.threads else threads_in(study)
    node = read_node(asked.node) if asked.node else None
    wanted = Wanted(counts, threads, inputs_of(study, params), node)
    with progress(2 * len(threads) * len(counts)) as bar:
        found = over_threads().surface(study, wanted, request, bar, only=only, allowed=allowed)
    path = write(study, found)
    if json_:
        emit_json(SURFACE.data(found))
    else:
        out(render(found))
    say(f"written: {quoted(path)}")
    say(f"next: p3s advise {quoted(root)} --cores {max(cell.cores for cell in found.cells)}")
    return say_reasons(found.reasons, told=not json_)


def with_teams_of(root: Path) -> Study:
    """Return a study that was traced with --threads; raises P3SError for any other."""
    from p3s.base.settings import has_threads, threads_in

    study = Study.open(root)
    if not has_threads(study):
        raise P3SError(f"{root}: was not traced with threads; trace it so: {_traced_so(study)}")
    if not threads_in(study):
        raise P3SError(f"{root}: holds no runs yet; run p3s characterize --threads first")
    return study


def _traced_so(study: Study) -> str:
    """Return the command that traces a study's program with threads, into another study."""
    from p3s.base.command_lines import launcher, shown

    words = ["p3s", "characterize", "-n", "2,4,8", "--threads", "1,2,4"]
    beside = str(study.root.with_name(f"{study.root.name}-threads"))
    return shown(study, [*words, "-o", beside, "--", *launcher(study)])


def inputs_of(study: Study, params: Sequence[str]) -> str:
    """Return the name of the values of the input's parameters, "" where there are none.

    Without --param the largest values that were traced; raises UsageError as --param does.
    """
    from p3s.base.settings import THREADS, inputs_in, one_setting, parameters, setting_name

    names = [name for name in parameters(study) if name != THREADS]
    if not names or not params:
        return inputs_in(study)[-1] if names else ""
    return setting_name(one_setting(params, names))
