"""What a prediction will need, looked at before anything is written or run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from p3s.base.errors import P3SError, UsageError
from p3s.base.text import quoted
from p3s.pipeline.basis import AUTO, Request, several_nodes
from p3s.pipeline.records import existing, named, opened
from p3s.pipeline.stages import MIN_COUNTS, check_room, too_few
from p3s.pipeline.tracing.counts import Asked
from p3s.pipeline.tracing.study import check_counts
from p3s.predict.commands import Commands
from p3s.predict.estimated import FROM_REPLAY
from p3s.signature_runner.traced_run import check_template, program_of

#: Free space below which nothing is begun: signatures, model and scaled traces of small programs.
LEAST_FREE = 16 << 20


def check_request(
    root: Path, counts: Sequence[int], request: Request, machine: Path | None, base: Path | None
) -> None:
    """Raise where options name something that is not there or cannot be used.

    ``machine``, ``base``: of the command line. A study need not be there yet.
    """
    from p3s.machine.cluster import cluster_of
    from p3s.program.collectives.choose import rules_of
    from p3s.program.types import MOST_PREDICTED, MOST_RANKS

    if counts[-1] > MOST_PREDICTED:
        raise UsageError(
            f"-n {counts[-1]}: more than {MOST_PREDICTED:,} processes cannot be predicted: the "
            "places of all of them on the process grid would not fit into memory"
        )
    listed = request.every_rank or request.topology or request.settings.rank_file
    if counts[-1] > MOST_RANKS and listed:
        raise UsageError(
            f"-n {counts[-1]}: --every-rank, --topology and --placement FILE need the rows of all "
            f"ranks, which {MOST_RANKS:,} processes have at most; leave them out"
        )
    rules_of(request.settings.collectives)
    if request.network:
        from p3s.pipeline.basis import measured_file

        if measured_file(request.network) is None:
            cluster_of(request.network)
    if request.topology:
        from p3s.machine.topology.read import check

        check(request.topology)
    _check_machines(root, machine, base)
    _check_estimator(root, counts, request, machine)
    check_room(root, LEAST_FREE)


def _check_machines(root: Path, machine: Path | None, base: Path | None) -> None:
    """Raise P3SError where a machine file that is named is not there, or that of the runs."""
    from p3s.machine.machinefile import Machine
    from p3s.predict.other_machine import base_path

    if machine is not None:
        Machine.load(machine)
        Machine.load(base_path(named(root), base))


def _check_estimator(
    root: Path, counts: Sequence[int], request: Request, machine: Path | None
) -> None:
    """Raise P3SError where an estimator lacks what it rests on, or nothing can be launched."""
    from p3s.machine.machinefile import NAME
    from p3s.predict.estimators import lacking

    name, study = request.estimator, named(root)
    if name != AUTO:
        why = lacking(name, study, machine or study.root / NAME)
        if why:
            raise P3SError(f"estimator {name}: {why}")
    replays = name in FROM_REPLAY or (
        name == AUTO
        and not request.network
        and not request.no_replay
        and several_nodes(request.settings)
    )
    if replays and any(not study.replay_path(n).exists() for n in counts if n > 1):
        _check_launch(request)


def _check_launch(request: Request) -> None:
    """Raise P3SError where no replay can be launched."""
    from p3s.replay.launching import find_mpi

    try:
        find_mpi(request.settings.launcher)
    except P3SError as err:
        raise P3SError(
            f"nothing can be replayed here: {err}; --network predicts for a typical "
            "network without a replay (p3s machine list)"
        ) from err


def check_launcher(root: Path, words: Sequence[str], counts: Sequence[int]) -> None:
    """Raise where a program cannot be traced at ``counts`` into the study at ``root``."""
    check_template(words)
    study = existing(root)
    check_counts(study, [n for n in counts if study is None or n not in study.counts()])
    program_of(words, counts[0] if counts else 1)


def check_study(root: Path) -> None:
    """Raise P3SError where a study holds too few process counts to be modelled."""
    from p3s.base.settings import sources
    from p3s.pipeline.weak import has_parameters

    if has_parameters(root):
        return  # each value is a study of its own
    study = opened(root)
    there = sorted({*study.counts(), *study.signature_counts()})
    if len(there) < MIN_COUNTS and not study.model_path.exists() and not sources(study):
        raise P3SError(too_few(study, there))


def check_there(root: Path, counts: Sequence[int]) -> None:
    """Raise P3SError where there is no study, and no command that would make one."""
    if existing(root) is None:
        listed = ",".join(map(str, counts))
        raise P3SError(
            f"{root}: no study here; give the launcher command to trace first: "
            f"p3s predict {quoted(root)} -n {listed} -- mpiexec -n {{np}} PROGRAM"
        )


def ahead(root: Path, words: Sequence[str], first: Asked) -> list[int]:
    """Return the counts to predict where none is named, of about 2 and 4 times the largest.

    words: the launcher command with which ``first`` are traced, none: the study is as it is.
    """
    study = existing(root)
    if study is not None and not words:
        return Commands(study).ahead()
    largest = max(first.counts, default=first.top)
    return [2 * largest, 4 * largest]
