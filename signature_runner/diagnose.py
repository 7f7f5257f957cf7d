"""Says in one line why a run failed, from its exit code, output and capture."""

from __future__ import annotations

import re
import shutil
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from p3s.base.artefacts import no_room
from p3s.base.errors import CAPTURES, P3SError
from p3s.base.host.command import Command
from p3s.base.host.mpi import (
    MPICH,
    OPENMPI,
    is_static,
    library_of,
    library_of_python,
    owner_of,
    remedy_for,
)
from p3s.capture.capture import Capture, read_capture
from p3s.capture.modules import is_elf
from p3s.signature_runner.archive import has_tracer, relink
from p3s.signature_runner.endings import (
    Death,
    End,
    RankEnd,
    describe_timeout,
    first_death,
    last_call,
)
from p3s.signature_runner.output import (
    OUTPUTS,
    Words,
    launcher_error,
    launcher_said,
    program_said,
    tail,
)

#: Beside the captures: programs that were started without the tracer in LD_PRELOAD, one a line.
LOST = "preload-lost"


@dataclass(frozen=True)
class Verdict:
    """``status`` complete, partial (some events, not to the end) or failed (nothing usable).

    A run that was ended because it had been seen long enough is "stopped".

    ``work_unit`` is what the ranks measured work in, None if there is none or they differ;
    ``left`` what a failed run has left to look at, as RunFailed has it.
    """

    status: str
    error: str | None = None
    problems: list[str] = field(default_factory=list)
    work_unit: str | None = None
    left: str = ""


@dataclass(frozen=True)
class EndedRun:
    """A run that ended with exit code ``code``, or was stopped after ``timeout_s``.

    ``counted`` tells that instructions were asked for; ``deaths`` are the process ids of ranks
    in the order in which they ended, as far as that was seen; ``unfinalized`` and ``accepted`` as
    in Recording.
    """

    run_dir: Path
    command: Command
    np: int
    code: int
    timeout_s: float | None
    traced: bool
    counted: bool = False
    deaths: Sequence[frozenset[int]] = ()
    unfinalized: bool = False
    accepted: int = 0

    @cached_property
    def captures(self) -> dict[int, Capture]:
        """The readable captures by rank."""
        return captures_of(self.run_dir) if self.traced else {}

    @property
    def shown(self) -> str:
        """The program as the user has named it."""
        return self.command.program[0]

    @property
    def ranks(self) -> str:
        """How many ranks it has, in words."""
        return "1 rank" if self.np == 1 else f"{self.np} ranks"

    def verdict(self) -> Verdict:
        """Judge the run."""
        judgement = self._judge()
        rank = find_uncounted(self.captures) if self.counted and not judgement.error else None
        if rank is not None:
            error = (
                f"{self.shown}: the instructions of rank {rank} were not counted, because it"
                " ran outside of qemu; name the program itself, not a script or program that starts"
                " it, or use --work cpu"
            )
            judgement = Verdict("failed", error)
        return replace(judgement, work_unit=work_unit(self.captures))

    def _judge(self) -> Verdict:
        np, label, captures, run_dir = self.np, self.shown, self.captures, self.run_dir
        sizes = {capture.header.size for capture in captures.values()}
        ended = sorted(r for r, capture in captures.items() if capture.complete)
        status, left_files = ("partial", CAPTURES) if captures else ("failed", "")
        if self.traced and sizes == {1} and np > 1:
            return Verdict(
                "failed",
                f"{label}: ran as {np} separate programs of 1 rank, not as one of {np}: the program"
                f" uses another MPI than {self.command.launcher}; {self._remedy()}",
            )
        if self.traced and captures and sizes != {np}:
            return Verdict(
                "failed",
                f"{label}: has {max(sizes)} ranks, not the {np} asked for; check where {{np}}"
                " stands",
            )
        if self.timeout_s is not None:
            return Verdict(
                status,
                f"{label}: not finished after {self.timeout_s:g} s at {np} ranks, stopped;"
                f"{describe_timeout(captures, program_said(run_dir).text)}",
                left=left_files,
            )
        if (run_dir / "other-mpi").exists():
            return Verdict(
                "failed",
                f"{label}: uses {_first_line(run_dir / 'other-mpi')}, another MPI than"
                f" {self.command.launcher}; {self._remedy()}",
            )
        if self.unfinalized and len(ended) == np and any(map(_no_finalize, captures.values())):
            return Verdict("complete")  # all ended with code 0; another one is the launcher's own
        if self.code not in (0, self.accepted) or (self.code and self.traced and len(ended) < np):
            if len(ended) == np:
                status = "failed"  # nothing is missing, but the program says it went wrong
            why, left_files = self._failure()
            return Verdict(status, why, left=left_files)
        if not self.traced:
            return Verdict("complete")
        if not captures:
            return Verdict("failed", self._no_call())
        stopped = [rank for rank, capture in captures.items() if capture.header.stopped_early]
        if stopped:
            problem = (
                f"{label}: ran to its end, but recording stopped early on rank {stopped[0]}"
                f"{_warning(run_dir)}"
            )
            return Verdict("partial", None, [problem])
        if len(ended) < np:
            rank = min(set(range(np)) - set(ended))
            return Verdict(
                "partial",
                f"{label}: rank {rank} of {np} ended without MPI_Finalize"
                f"{last_call(captures.get(rank))}{self._way()}",
                left=left_files,
            )
        return Verdict("complete")

    def _way(self) -> str:
        """Return what to do about a program that ends without MPI_Finalize."""
        if self.unfinalized:
            return (
                "; --end-without-finalize needs every rank to end by itself, with code 0; run it"
                " again"
            )
        return "; if this is its normal end, add --end-without-finalize"

    def _remedy(self) -> str:
        """Return what to do about a program of another MPI than its launcher's."""
        family, program = self.command.family, shutil.which(self.shown) or ""
        linked_to = library_of(program)
        python = library_of_python(program) if linked_to is None else None
        library = _first_line(self.run_dir / "other-mpi") or (linked_to or python or ("", ""))[1]
        if python and family in (MPICH, OPENMPI) and family != python[0]:
            return remedy_for(library, family)
        install = owner_of(library) if library else None
        if install is None or not install.mpiexec or install.family == family:
            return "start it with its own MPI's mpiexec"
        return f"start it with {install.mpiexec}"

    def _failure(self) -> tuple[str, str]:
        """Return why a run failed, and what it has left to look at."""
        captures = self.captures
        death = first_death(self.run_dir, captures, self.command.family, self.code, self.deaths)
        if self.traced and not captures:
            return self._before_init(death.how)
        words = _reason(death.how, program_said(self.run_dir))
        text = f": {words}" if words else ""
        if death.how.end is End.EXITED and captures and all(c.complete for c in captures.values()):
            text += f"; if this is its normal end, add --accept-exit {self.code}"
        if death.rank is not None and death.how.end in (End.NO_FINALIZE, End.UNKNOWN):
            text += self._way()
        return (f"{self.shown}: {self._describe_death(death)}{text}", CAPTURES if captures else "")

    def _describe_death(self, death: Death) -> str:
        """Return which rank ended how and where."""
        how, captures = str(death.how), self.captures
        # An MPI_Abort can return and its caller go on until the launcher ends it.
        aborted = any(capture.header.aborting for capture in captures.values())
        if captures and not aborted and all(capture.complete for capture in captures.values()):
            verb = "was" if death.how.end is End.SIGNALLED else "ended with"
            ended = f"{verb} {how}" if how else "failed"
            who = f"{self.ranks}:" if death.rank is None else f"rank {death.rank} of {self.np}"
            return f"{who} {ended} after MPI_Finalize"
        if death.rank is None:
            return f"failed at {self.ranks}" + (f" ({how})" if how else "")
        last = last_call(captures.get(death.rank))
        if death.how.end is End.NO_FINALIZE:
            return f"rank {death.rank} of {self.np} {how}{last}"
        facts = (how + last).removeprefix(", ")
        return f"rank {death.rank} of {self.np} died" + (f" ({facts})" if facts else "")

    def _before_init(self, how: RankEnd) -> tuple[str, str]:
        """Return why a run failed of which nothing was captured, and the file that says all of it.

        A crash comes first, then what the launcher gives as its reason, then the program's last
        words.
        """
        run_dir, launcher = self.run_dir, Path(self.command.launcher).name
        from_launcher, from_program = launcher_said(run_dir, launcher), program_said(run_dir)
        crashed = how.end is End.SIGNALLED
        if not from_launcher.text and not from_program.text and not crashed:
            from_launcher = launcher_error(run_dir, launcher)
        if from_launcher.text and not crashed:
            text = (
                f"{from_launcher.text}; {self.shown} was not started at {self.ranks}, or failed"
                " before MPI_Init returned"
            )
            return text + (
                f": {from_program.text}" if from_program.file == OUTPUTS[0] else ""
            ), from_launcher.file
        words = _reason(how, from_program) or from_launcher.text
        text = f"{self.shown}: failed at {self.ranks} before MPI_Init returned"
        text += (f" ({how})" if str(how) else "") + (f": {words}" if words else "")
        written = next((name for name in OUTPUTS if tail(run_dir / name).strip()), "")
        return text, from_program.file or from_launcher.file or written

    def _no_call(self) -> str:
        """Return why a program made no MPI call that was seen."""
        if obstacle := _warning(self.run_dir) or no_room(self.run_dir):
            return f"{self.shown}: nothing was captured{obstacle}"
        if why := lost_preload(self.run_dir):
            return f"{self.shown}: no MPI call seen: {why}"
        program = shutil.which(self.shown)
        if program and library_of(program) is None and is_elf(Path(program)):
            if is_static(program) and not has_tracer(program):
                why = f"it has MPI linked statically; {relink()}"
            else:
                why = "it is not linked to an MPI library and opens none; is it the right program?"
        else:
            why = (
                "it is not an MPI program, ends before MPI_Init, or uses another MPI than"
                f" {self.command.launcher}"
            )
        return f"{self.shown}: no MPI call seen: {why}"


def judge_stopped(run_dir: Path) -> Verdict:
    """Judge a run that was ended because all ranks had seen every relevant phase often enough."""
    return Verdict("stopped", work_unit=work_unit(captures_of(run_dir)))


def work_unit(captures: Mapping[int, Capture]) -> str | None:
    """Return what all ranks measured work in (RunTrace.work_unit), None if they differ."""
    units = {capture.header.work_unit for capture in captures.values()}
    return units.pop() if len(units) == 1 else None


def find_uncounted(captures: Mapping[int, Capture]) -> int | None:
    """Return the first rank whose instructions were not counted, None if all were."""
    ranks = [r for r, c in captures.items() if c.header.work_unit != "instructions"]
    return min(ranks, default=None)


def _no_finalize(capture: Capture) -> bool:
    """Tell whether a rank whose capture is whole did not call MPI_Finalize."""
    return capture.complete and last_call(capture) != ", after MPI_Finalize"


def captures_of(run_dir: Path) -> dict[int, Capture]:
    """Return the readable captures of a run by rank."""
    captures = {}
    for path in sorted(run_dir.glob("rank-*.p3t")):
        try:
            capture = read_capture(path, completions=False, each=len)
        except P3SError:
            continue
        captures[capture.header.rank] = capture
    return captures


def _first_line(path: Path) -> str:
    return tail(path).strip().partition("\n")[0]


def _reason(how: RankEnd, last_words: Words) -> str:
    """Return the program's last words where they are why it ended, "" where that is not known.

    Whom a signal ends had no time for words, but for SIGABRT, which a program sends itself.
    """
    surprised = how.end is End.SIGNALLED and how.value != signal.SIGABRT.name
    return "" if surprised and not last_words.error else last_words.text


def _warning(run_dir: Path) -> str:
    """Return ": reason" if the tracer said why it could not write."""
    pattern = r"^p3s: warning: rank \d+: (.*); the program goes on"
    match = re.search(pattern, tail(run_dir / "stderr.txt"), re.MULTILINE)
    return f": {match[1]}" if match else ""


def lost_preload(run_dir: Path) -> str:
    """Return what started a program without the tracer, and the way; "" where nothing did."""
    started = tail(run_dir / LOST).split("\n")[:-1]
    programs = [name for name in started if library_of(shutil.which(name) or "")] or started[-1:]
    if not programs:
        return ""
    name = programs[0]
    return (
        f"it starts {name} with another LD_PRELOAD, which drops the tracer; put `p3s exec --`"
        f" before {name} there"
    )
