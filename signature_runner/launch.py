"""Runs an MPI program, traced, and says what happened."""

from __future__ import annotations

import contextlib
import os
import shutil
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from p3s.base import workers
from p3s.base.artefacts import SCHEMA_VERSION, cannot_be_written, read_json, write_json
from p3s.base.errors import P3SError, RunFailure
from p3s.base.host import command, mpi
from p3s.base.host.cores import Team, cores, team_for
from p3s.base.host.processes import MARK, end_with_parent, new_mark, stop
from p3s.base.records import RUN_SCHEMA
from p3s.base.staging import new_file
from p3s.capture import layout
from p3s.capture import recording_plan as plan
from p3s.capture.chunks import read_header
from p3s.capture.layout import NAME
from p3s.capture.recording_plan import Plan
from p3s.signature_runner import build, emulate, standard_input
from p3s.signature_runner.deaths import Deaths
from p3s.signature_runner.diagnose import LOST, EndedRun, judge_stopped
from p3s.signature_runner.recording import INSTRUCTIONS, SHARING, Recording, with_preload
from p3s.signature_runner.standard_input import StandardInput

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Seconds between two looks; ranks on other machines are seen through the shared file system.
LOOK_S = 0.05


class Saturation:
    """Looks at the captures of a run that is under way."""

    def __init__(self, run_dir: Path, np: int, plan: Plan) -> None:
        self._run_dir = run_dir
        self._np = np
        self._ranks = dict(plan.ranks)
        self._at: dict[int, int] = {}  # rank -> where its chunk of phases begins

    def reached(self) -> bool:
        """Whether the program may be ended now: every phase was seen by as many ranks as wanted."""
        tables = []
        for rank in range(self._np) if self._ranks else ():
            table = self._table(rank)
            if table is None:
                return False
            tables.append(table)
        return bool(tables) and all(
            sum(bool(table["state"][phase]) for table in tables) >= min_ranks
            for phase, min_ranks in self._ranks.items()
        )

    def _table(self, rank: int) -> NDArray[np.void] | None:
        import numpy as np

        path = self._run_dir / NAME.format(rank)
        dtype = np.dtype(layout.PHASE_FIELDS)
        try:
            if rank not in self._at:
                read_header(path)  # whole, and of this version
            with open(path, "rb") as file:
                handle = file.fileno()
                if rank not in self._at:
                    raw = os.pread(handle, 8, layout.PHASES_AT_OFFSET)
                    self._at[rank] = int(struct.unpack("<Q", raw)[0])
                at = self._at[rank]
                if not at:
                    del self._at[rank]  # not written yet
                    return None
                state = layout.CHUNK.unpack(os.pread(handle, layout.CHUNK_BYTES, at))[-3]
                payload = os.pread(handle, state & 0xFFFFFFFF, at + layout.CHUNK_BYTES)
        except (OSError, P3SError, struct.error):
            return None
        rows = len(payload) // dtype.itemsize
        if rows <= max(self._ranks, default=-1):
            return None
        return np.frombuffer(payload[: rows * dtype.itemsize], dtype=dtype)


#: Called with "stdout" or "stderr" and a piece of text as it appears.
OnOutput = Callable[[str, str], None]

_GRACE_S = 5.0
_SRUN_GRACE_S = 30.0  # killed, it would leave its job behind on the nodes
_OF_A_RUN = ("rank-*.p3t", "run.json", "warned", "other-mpi", "insn-*", LOST)
_OWN = (
    "P3S_TRACE_DIR",
    "P3S_WORK",
    "P3S_COUNTERS",
    "P3S_LIMIT",
    "P3S_SIGNATURE",
    "P3S_POSIX_IO",
    "P3S_END",
)


@dataclass(frozen=True)
class RunOutcome:
    """A run that ended well enough to be used; ``problems`` are lines the user should see.

    ``stopped``: it was ended because it had been seen long enough.
    """

    exit_code: int
    wall_s: float
    np: int
    oversubscribed: bool
    run_dir: Path
    problems: list[str] = field(default_factory=list)
    stopped: bool = False


# Else srun waits for the others when a rank has died, and they wait for it.
_SRUN = {"SLURM_KILL_BAD_EXIT": "1"}


def _environment(oversubscribed: bool, mark: str) -> dict[str, str]:
    """Return the launcher's environment; what the user set is kept."""
    env = {name: value for name, value in os.environ.items() if name not in _OWN}
    sharing = SHARING if oversubscribed else {}
    return {**mpi.launch_defaults(oversubscribed), **sharing, **_SRUN, **env, MARK: mark}


def _copy(
    name: str, pipe: IO[bytes], target: IO[bytes], on_output: OnOutput, failed: list[OSError]
) -> None:
    """Keep and pass on what is written; where it cannot be kept, read on, or the program waits."""
    while piece := os.read(pipe.fileno(), 65536):
        try:
            unwritten = b"" if failed else piece
            while unwritten:
                unwritten = unwritten[target.write(unwritten) :]
        except OSError as error:
            failed.append(error)
        on_output(name, piece.decode("utf-8", "replace"))


@dataclass(frozen=True)
class _LauncherEnd:
    """How a launcher ended, and in which order ranks did (process ids, see Deaths)."""

    exit_code: int
    wall_s: float
    timed_out: bool
    stopped: bool
    deaths: list[frozenset[int]]


@dataclass(frozen=True)
class _Limit:
    """How long a run may take, from the first capture on if ``start_s`` is the most until then."""

    run_dir: Path
    timeout_s: float | None
    start_s: float

    def begun(self) -> bool:
        """Whether a rank has started MPI, or nobody asks."""
        return not self.start_s or any(self.run_dir.glob("rank-*.p3t"))

    @property
    def most_s(self) -> float | None:
        """Seconds that a run has had which reached the limit."""
        if self.timeout_s is None or self.begun():
            return self.timeout_s
        return self.start_s + self.timeout_s


def _wait(process: subprocess.Popen[bytes], limit: _Limit, saturation: Saturation | None) -> str:
    """Wait for the end of a launcher; return "ended", "timed out", or "seen" all there was to."""
    begun = limit.begun()
    deadline = None if limit.most_s is None else time.monotonic() + limit.most_s
    while True:
        remaining_s = None if deadline is None else max(deadline - time.monotonic(), 0)
        try:
            looks = saturation is not None or not begun
            process.wait(min(LOOK_S, remaining_s or LOOK_S) if looks else remaining_s)
            return "ended"
        except subprocess.TimeoutExpired:
            if deadline is not None and time.monotonic() >= deadline:
                return "timed out"
            if saturation is not None and saturation.reached():
                return "seen"
        if not begun and limit.begun() and limit.timeout_s is not None:
            begun, deadline = True, time.monotonic() + limit.timeout_s


def _execute(
    argv: list[str],
    env: dict[str, str],
    run_dir: Path,
    limit: _Limit,
    on_output: OnOutput | None,
    np: int,
    saturation: Saturation | None,
    on_timeout: Callable[[], None] | None,
) -> _LauncherEnd:
    """Run a launcher to its end, or until all there was to see has been."""
    how = "ended"
    failed: list[OSError] = []
    # Unbuffered: what could not be written is not tried again when they are closed.
    with (
        open(run_dir / "stdout.txt", "wb", buffering=0) as out,
        open(run_dir / "stderr.txt", "wb", buffering=0) as err,
        standard_input.open_input(run_dir) as stdin,
    ):
        begin = time.monotonic()
        try:
            process = subprocess.Popen(
                argv,
                stdin=stdin,
                stdout=subprocess.PIPE if on_output else out,
                stderr=subprocess.PIPE if on_output else err,
                env=env,
                start_new_session=True,
                preexec_fn=end_with_parent(),
            )
        except OSError as error:
            raise P3SError(f"{argv[0]}: cannot be started: {error.strerror}") from error
        threads = []
        if on_output is not None:
            streams = (("stdout", process.stdout, out), ("stderr", process.stderr, err))
            for name, pipe, target in streams:
                assert pipe is not None
                thread = threading.Thread(
                    target=_copy, args=(name, pipe, target, on_output, failed), daemon=True
                )
                thread.start()
                threads.append(thread)
        deaths = Deaths(run_dir, np)
        deaths.start()
        srun = any(os.path.basename(word) == "srun" for word in argv[:8])
        grace_s = _SRUN_GRACE_S if srun else _GRACE_S
        try:
            how = _wait(process, limit, saturation)
            if how == "timed out" and on_timeout is not None:
                on_timeout()
        finally:
            order = deaths.end()
            wall_s = time.monotonic() - begin
            if how == "seen":  # the launcher ends its ranks when it is told to end itself
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(grace_s)
            stop(process, env[MARK], grace_s)
            for thread in threads:
                thread.join(_GRACE_S)
    if failed:
        raise cannot_be_written(run_dir, failed[0]) from failed[0]
    return _LauncherEnd(process.returncode, wall_s, how == "timed out", how == "seen", order)


def _prepare(run_dir: Path) -> None:
    """Make the run directory and empty it of an earlier run's files."""
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        for pattern in (*_OF_A_RUN, plan.NAME, standard_input.NAME):
            for path in run_dir.glob(pattern):
                path.unlink()
        handle, probe = new_file(run_dir / "probe")
        os.close(handle)
        probe.unlink()
    except OSError as error:
        raise cannot_be_written(run_dir, error) from error


def info_of(run_dir: Path) -> dict[str, Any]:
    """Return what a run's run.json says, nothing where there is none that can be read."""
    with contextlib.suppress(P3SError):
        return read_json(run_dir / "run.json", RUN_SCHEMA)
    return {}


def _check_family(parsed: command.Command, word: str) -> None:
    program = shutil.which(word)
    library = mpi.library_of(program) if program else None
    if library and parsed.family in (mpi.OPENMPI, mpi.MPICH) and library[0] != parsed.family:
        raise P3SError(
            f"{word}: is linked to {library[1] or library[0]}, but {parsed.launcher}"
            f" is the launcher of another MPI ({parsed.family}); start it with"
            f" {mpi.own_launcher(library[1])}"
        )


def _tracer(parsed: command.Command, likely: str | None) -> build.TracerBuild:
    for words in parsed.programs:
        _check_family(parsed, words[0])
    program = shutil.which(parsed.program[0])
    return build.ensure_tracer(None, program, parsed.launcher, likely)


def _argv(
    parsed: command.Command,
    tracer: build.TracerBuild | None,
    run_dir: Path,
    recording: Recording,
    mark: str,
    team: Team | None,
) -> list[str]:
    """Return the whole command; what the ranks need is on it, as launchers may drop variables."""
    if tracer is None:
        return parsed.argv()
    variables = {**recording.environment(run_dir), MARK: mark}
    if recording.work == INSTRUCTIONS:
        more = team.environment() if team else {}
        variables |= more
        return parsed.argv(
            lambda program: emulate.with_counter(tracer.path, run_dir, variables, program)
        )
    return parsed.argv(lambda program: [*with_preload(tracer.path, variables, team), *program])


def _other_family(
    parsed: command.Command, tracer: build.TracerBuild | None, run_dir: Path
) -> str | None:
    """Return the MPI family a program turned out to use where its launcher could not tell."""
    if tracer is None or parsed.family in (mpi.OPENMPI, mpi.MPICH):
        return None
    try:
        family = mpi.family_of_library((run_dir / "other-mpi").read_text())
    except OSError:
        return None
    return family if family != tracer.mpi_family else None


def run_traced(
    template: Sequence[str],
    np: int,
    run_dir: Path,
    *,
    timeout_s: float | None = None,
    trace: bool = True,
    on_output: OnOutput | None = None,
    recording: Recording | None = None,
    sharing: bool | None = None,
    on_timeout: Callable[[], None] | None = None,
    start_s: float = 0.0,
    stdin: StandardInput = standard_input.NONE,
) -> RunOutcome:
    """Run a launcher command at ``np`` ranks with the tracer before the program.

    ``{np}`` in ``template`` is replaced. ``run_dir`` gets one .p3t file per rank, run.json,
    stdout.txt and stderr.txt. ``recording`` says how work is measured and how much is kept. With
    ``trace`` False the program runs as it is. ``sharing``: whether ranks share cores; None: if
    there are more than this machine has cores. ``on_timeout`` is called when the time is over,
    while all processes are still there. ``start_s``: the time begins when the first rank has
    started MPI, for which there are so many seconds. ``stdin``: what the program gets; ``run_dir``
    keeps a copy.
    Errors: UsageError for a command P3S cannot read; P3SError, one line naming the likely cause,
    when the program does not exist, made no MPI call, ran as singletons, failed, or was timed
    out. What was captured stays in ``run_dir`` and run.json tells its status.
    """
    if np < 1:
        raise P3SError(f"{np} processes: at least 1 is needed")
    workers.check_may_launch()
    run_dir = Path(run_dir).resolve()
    parsed = command.parse(template, np)
    recording = recording or Recording()
    likely = mpi.family_of_srun(parsed.before) if parsed.family == mpi.SLURM else None
    tracer = _tracer(parsed, likely) if trace else None
    width = max(recording.threads, 1)
    team = (
        team_for(recording.threads, recording.affinity, parsed, np) if recording.threads else None
    )
    oversubscribed = np * width > cores() if sharing is None else sharing
    limit = _Limit(run_dir, timeout_s, start_s)

    def attempt(tracer: build.TracerBuild | None) -> _LauncherEnd:
        mark = new_mark()
        argv = _argv(parsed, tracer, run_dir, recording, mark, team)
        _prepare(run_dir)
        stdin.put(run_dir)
        env = _environment(oversubscribed, mark)
        saturation = None
        if recording.plan is not None and tracer is not None:
            recording.plan.write(run_dir)
            saturation = Saturation(run_dir, np, recording.plan) if recording.stop else None
        return _execute(argv, env, run_dir, limit, on_output, np, saturation, on_timeout)

    ended = attempt(tracer)
    actual_family = _other_family(parsed, tracer, run_dir)
    if actual_family:  # MPI_Init failed, nothing was run yet; now it is known which MPI it is
        tracer = _tracer(parsed, actual_family)
        ended = attempt(tracer)
    for path in run_dir.glob("insn-*"):  # of ranks that were killed
        path.unlink(missing_ok=True)
    counted = recording.work == INSTRUCTIONS
    limit_s = limit.most_s if ended.timed_out else None
    code, wall_s = ended.exit_code, ended.wall_s
    if ended.stopped:
        verdict = judge_stopped(run_dir)
    else:
        verdict = EndedRun(
            run_dir,
            parsed,
            np,
            code,
            limit_s,
            trace,
            counted,
            ended.deaths,
            recording.unfinalized,
            recording.accepted,
        ).verdict()
    family = tracer.mpi_family if tracer else parsed.family
    info: dict[str, Any] = {
        "schema": RUN_SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "np": np,
        "argv": parsed.argv(),
        **command.origin_of(parsed.program[0]),
        "exit_code": code,
        "wall_s": wall_s,
        "timeout_s": timeout_s,
        "oversubscribed": oversubscribed,
        "cores": cores(),
        "mpi": f"{family} {tracer.version}" if tracer else family,
        "traced": trace,
        standard_input.KEY: stdin.as_info(),
        **({"threads": team.as_info()} if team else {}),
        "status": verdict.status,
        **({**recording.as_info(), "work_unit": verdict.work_unit} if trace else {}),
    }
    write_json(run_dir / "run.json", info)
    if verdict.error:
        raise RunFailure(verdict.error, code, verdict.status, verdict.left)
    return RunOutcome(code, wall_s, np, oversubscribed, run_dir, verdict.problems, ended.stopped)
