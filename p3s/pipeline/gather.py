"""Takes runs that ``p3s exec`` has captured, and traces of other tools, into a study."""

from __future__ import annotations

import glob
import math
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from p3s.base.errors import P3SError, PartialResult, UsageError
from p3s.base.extensions import Reader, load_provided
from p3s.base.extents import extents_of, names_count, shape, with_count
from p3s.base.foreign_formats import ReadBy, refuse_foreign
from p3s.base.records import commit_run, stage_run
from p3s.base.settings import traces_of
from p3s.base.staging import discard
from p3s.base.study import RUN_SCHEMA, SCHEMA_VERSION, Study, read_json, write_json
from p3s.base.trust import is_signed, sign

if TYPE_CHECKING:
    from p3s.signature_runner.programs import Block

#: Levels of directories that are looked through: captures/np8, jobs/np8/runs.
_DEPTH = 2


@dataclass(frozen=True)
class CapturedRun:
    """A complete capture outside of a study.

    ``info`` is its run.json as the study will hold it, with ``command`` (a launcher command with
    {np}); ``events`` counts those of all ranks; ``identity`` tells two runs apart. ``timed``: it
    gives the time of instructions that another run has counted (timed/ of the study).
    """

    path: Path
    np: int
    events: int
    info: dict[str, Any]
    identity: str
    timed: bool = False
    parts: tuple[Block, ...] = ()

    @property
    def command(self) -> list[str]:
        """The launcher command that would run the same program again."""
        return list(self.info["command"])


@dataclass(frozen=True)
class Captures:
    """Runs as captures: ``sources``: capture -> what of another tool it was made from.

    ``left_out``: (MPI call, events) that are there and not in its capture; ``notes``: what it does
    not tell.
    """

    paths: tuple[Path, ...]
    sources: Mapping[Path, Path]
    left_out: tuple[tuple[str, int], ...] = ()
    notes: tuple[str, ...] = ()

    def source(self, path: Path) -> str:
        """Return what the user named for a capture."""
        return str(self.sources.get(path, path))

    def named(self, text: str) -> str:
        """Return a text about captures with what the user named."""
        for made, source in self.sources.items():
            text = text.replace(str(made), str(source))
        return text


@contextmanager
def captures(paths: Sequence[Path]) -> Iterator[Captures]:
    """Give each of these runs as a capture; traces of other tools are read into temporary ones.

    Errors: those of the readers.
    """
    import tempfile

    paths = [each for path in paths for each in directories(path)]
    sorts = [None if any(path.glob("rank-*.p3t")) else _find_reader(path) for path in paths]
    with tempfile.TemporaryDirectory(prefix="p3s-add-") as scratch:
        found, sources, notes, left_out = [], {}, dict[str, None](), Counter[str]()
        for number, (path, sort) in enumerate(zip(paths, sorts, strict=True)):
            if sort is not None:
                reader, source = sort
                directory = Path(scratch) / str(number)
                directory.mkdir()
                one = reader.read(source, directory)
                sources[directory] = path
                notes |= dict.fromkeys(one.notes)
                left_out += Counter(dict(one.left_out))
                path = directory
            found.append(path)
        told = tuple(sorted(left_out.items()))
        given = Captures(tuple(found), sources, told, tuple(notes))
        try:
            yield given
        except P3SError as error:
            raise type(error)(given.named(str(error))) from error


def _find_reader(path: Path) -> tuple[Reader, Path] | None:
    """Return the reader that knows what is at a path, and what it is to read; None where none."""
    for reader in load_provided("readers"):
        if (source := reader.recognise(path)) is not None:
            return reader, source
    return None


@dataclass(frozen=True)
class GatherResult:
    """Captured runs that can be added, why others cannot, and which are in the study already."""

    runs: tuple[CapturedRun, ...]
    refused: tuple[P3SError, ...] = ()
    there: tuple[P3SError, ...] = ()


def collect(root: Path, paths: Sequence[Path], command: Sequence[str] | None) -> GatherResult:
    """Read captured runs and sort out those that can be added to the study at ``root``.

    ``paths``: captures, studies, directories of either, or patterns (``captures/*``). ``command``
    is the launcher command with {np}, None to put one together from run.json. A run is refused
    when a rank is not complete (PartialResult), or the directory holds no capture. Errors that
    concern them all: work was measured in another way here or there, runs of several commands.
    Nothing has been changed then.
    """
    if command is not None and not names_count(command):
        raise UsageError("the command after -- has no {np}; write mpiexec -n {np} PROGRAM ARGS")
    study = Study.find(root)
    records = [*study.runs(), *study.timed_runs()] if study is not None else []
    known = {_identity(record.path): record.path for record in records}
    runs: dict[str, CapturedRun] = {}
    refused, there = [], []
    by_place: dict[str, Path] = {}
    for each in (each for path in paths for each in directories(path)):
        by_place.setdefault(os.path.realpath(each), each)
    for path in by_place.values():
        try:
            run = _read(path, command)
        except P3SError as problem:
            refused.append(problem)
            continue
        if run.identity in known:
            there.append(P3SError(f"{path}: is the same run as {known[run.identity]}"))
        elif run.identity in runs:
            other = runs[run.identity].path
            refused.append(P3SError(f"{path}: is the same run as {other}; name each run once"))
        else:
            runs[run.identity] = run
    _name_programs(study, list(runs.values()))
    found = _told_apart(study, list(runs.values()))
    _check_alike(root, study, found)
    return GatherResult(tuple(found), tuple(refused), tuple(there))


def directories(path: Path) -> list[Path]:
    """Return the captures that a path, a pattern, a study or a directory of these stands for.

    The path itself where there are none: reading it says why.
    """
    if not path.exists() and glob.has_magic(str(path)):
        found = sorted(glob.glob(str(path)))
        return [each for name in found for each in directories(Path(name))] or [path]
    return _captures(path, _DEPTH) or [path]


def _captures(path: Path, depth: int) -> list[Path]:
    if any(path.glob("rank-*.p3t")):
        return [path]
    if (path / "study.json").is_file():
        study = Study(path)
        runs = [*study.runs(), *study.timed_runs()]
        return [run.path for run in runs if run.status == "complete"]
    inside = sorted(path.glob("*/")) if depth else []
    return [each for one in inside if one.name[0] != "." for each in _captures(one, depth - 1)]


def _check_alike(root: Path, study: Study | None, found: Sequence[CapturedRun]) -> None:
    """Raise P3SError for runs that cannot be in one study: of several commands, with different
    bytes on standard input, or with work in several units."""
    from p3s.base.text import differing
    from p3s.signature_runner.standard_input import digest_in

    commands = sorted({tuple(run.command) for run in found})
    if len(commands) > 1:
        one, two = differing(commands[0], commands[1])
        raise UsageError(
            f"{root}: these are runs of several commands ({one} and {two}); name the one that"
            " stands for all after --, with {np} for the process count"
        )
    known = [] if study is None else study.runs()
    timed = [] if study is None else study.timed_runs()
    units = {str(run.info["work_unit"]): str(run.path) for run in found if not run.timed}
    for record in known:
        if record.info:
            units.setdefault(str(record.info.get("work_unit", "cpu_ns")), str(record.path))
    if len(units) > 1:
        (first, here), (other, there) = list(units.items())[:2]
        raise P3SError(
            f"{root}: work was measured in {first} in {here}, in {other} in {there}; a study holds"
            " one unit: trace all with the same p3s exec --work (CPU time can go beside"
            " instructions of the same count)"
        )
    inputs = {digest_in(run.info): str(run.path) for run in [*known, *timed]}
    inputs |= {digest_in(run.info): str(run.path) for run in found}
    inputs.pop(None, None)
    if len(inputs) > 1:
        one, two = list(inputs.values())[:2]
        raise UsageError(
            f"{root}: {one} and {two} had different standard input; a study holds runs of one"
        )


def _name_programs(study: Study | None, found: Sequence[CapturedRun]) -> None:
    """Name all programs of launches with several in their commands: the study's, if it fits."""
    from p3s.signature_runner.programs import find_launch_words

    coupled = [run for run in found if run.parts]
    if not coupled:
        return
    known = [list(words) for words in study.manifest()["commands"][-1:]] if study else []
    exact = {run.np: find_launch_words([run.parts]) for run in coupled}
    words = known[0][1:] if known else find_launch_words([run.parts for run in coupled])
    if any(with_count(words, np) != with_count(one, np) for np, one in exact.items()):
        words = find_launch_words([run.parts for run in coupled])
    for run in coupled:
        run.info["command"] = [run.command[0], *words]
        if "signed" in run.info:
            run.info["signed"] = sign(run.command, str(run.info.get("directory")))


def _told_apart(study: Study | None, found: Sequence[CapturedRun]) -> list[CapturedRun]:
    """Mark the runs in CPU time at counts where instructions were counted, here or before."""
    infos = [(run.np, run.info) for run in found]
    if study is not None:
        infos += [(record.np, record.info) for record in study.runs()]
    counted = {np for np, info in infos if info.get("work_unit") == "instructions"}
    return [
        replace(run, timed=run.np in counted and run.info["work_unit"] == "cpu_ns") for run in found
    ]


def _identity(path: Path) -> str:
    """Return what no other run has: the first bytes of the first rank's file (when, which)."""
    for name in sorted(p.name for p in path.glob("rank-*.p3t"))[:1]:
        try:
            with open(path / name, "rb") as file:
                return file.read(64).hex()
        except OSError:
            break
    return str(path)


def _read(path: Path, command: Sequence[str] | None) -> CapturedRun:
    from p3s.capture import read_run
    from p3s.capture.layout import NAME
    from p3s.capture.order import backwards
    from p3s.capture.reader import no_capture
    from p3s.signature_runner.diagnose import lost_preload
    from p3s.signature_runner.programs import blocks

    if not path.is_dir():
        refuse_foreign(path, ReadBy.TRACE)
        raise P3SError(f"{path}: not a directory; give what p3s exec has made, as p3s-np8")
    if (path / "study.json").is_file():
        raise P3SError(f"{path}: a study without a complete run; trace its counts again")
    if not any(path.glob("rank-*.p3t")):
        refuse_foreign(path, ReadBy.TRACE)
        why = lost_preload(path)
        raise P3SError(
            f"{path}: holds no capture (rank-*.p3t): "
            + (why or f"{no_capture(path)}; give what p3s exec has made")
        )
    run = read_run(path)
    if run.problem:
        why = run.problem.partition("; ")[0]
        raise PartialResult(f"{why}, so this run cannot be added; trace the program again")
    try:
        info = read_json(path / "run.json", RUN_SCHEMA)
    except P3SError:
        info = {"schema": RUN_SCHEMA, "schema_version": SCHEMA_VERSION, "argv": [], "traced": True}
    # Launchers that do not say how many ranks there are leave it to the captures.
    info = {**info, "np": run.np, "status": "complete", "work_unit": run.work_unit}
    if info.get("work") == "instructions" and run.work_unit != "instructions":
        raise P3SError(
            f"{path}: its instructions were not counted, because the program ran outside of qemu;"
            " name the program itself after p3s exec --work instructions, not a script or program"
            " that starts it"
        )
    wall_ns, events = 0, 0
    for rank in run.ranks:
        events += len(rank.call)
        if turned := backwards(rank.start_ns, rank.elapsed_ns, rank.thread):
            raise PartialResult(
                f"{path / NAME.format(rank.rank)}: {turned}, so this run cannot be added; run the"
                " program again"
            )
        if len(rank.call):
            end = int(rank.start_ns[-1] + rank.elapsed_ns[-1])
            wall_ns = max(wall_ns, end - int(rank.start_ns[0]))
    if not events:
        raise P3SError(
            f"{path}: its ranks made no MPI call that is recorded, so this run cannot be added"
        )
    info.setdefault("wall_s", wall_ns * 1e-9)
    info.setdefault("exit_code", 0)  # all ranks reached MPI_Finalize
    parts = () if command or "command" in info else tuple(blocks(path, run.np))
    own = _is_own(info) and all(part.own for part in parts)
    info["command"] = list(command) if command else _command(path, info, own)
    info.pop("signed", None)
    if own or command:  # else P3S asks before it runs it
        where = str(info.get("directory")) if own else os.getcwd()
        info["signed"] = sign(info["command"], where)
    if extents := _extents(path, info):
        info["dims"] = extents
    return CapturedRun(path, run.np, events, info, _identity(path), parts=parts)


def _extents(path: Path, info: Mapping[str, Any]) -> list[int]:
    """Return the extents of the process grid that a run was given, if its command names them."""
    argv = [str(word) for word in info.get("argv") or ()]
    try:
        extents = extents_of(info["command"], argv)
    except UsageError as error:
        raise UsageError(f"{path}: {error}; give the launcher command of these runs") from error
    if extents and math.prod(extents) != info["np"]:
        raise UsageError(f"{path}: {info['np']} processes on a grid of {shape(extents)}")
    return list(extents)


def _is_own(info: Mapping[str, Any]) -> bool:
    """Tell whether this user has made a run that has such a run.json."""
    where, mpicc = str(info.get("directory")), str(info.get("mpicc") or "")
    with suppress(P3SError):  # without a key nobody knows
        return any(
            is_signed(info.get("signed"), info[key], where, of)
            for key, of in (("argv", mpicc), ("command", ""))
            if isinstance(info.get(key), list)
        )
    return False


def _command(path: Path, info: dict[str, Any], own: bool) -> list[str]:
    """Return the plainest launcher command for a program that was started by ``p3s exec``."""
    whole = info.get("command")  # of a run that p3s characterize has made
    if isinstance(whole, list) and whole and all(isinstance(word, str) for word in whole):
        return whole
    argv = info.get("argv")
    if not isinstance(argv, list) or not argv or not all(isinstance(word, str) for word in argv):
        raise UsageError(
            f"{path}: does not say which program was run; give the launcher command after --, for"
            " example -- mpiexec -n {np} PROGRAM ARGS"
        )
    return [_launcher(info, own), "-n", "{np}", *argv]


def _launcher(info: dict[str, Any], own: bool) -> str:
    if info.get("launcher") == "srun":
        return "srun"
    from p3s.base.host.mpi import describe, find_mpi

    # That of the program's MPI: plain mpiexec may be another one's. A compiler is asked, that is
    # executed: not one that only somebody else's file names.
    mpicc = str(info.get("mpicc") or "")
    known = mpicc if own else next((m.mpicc for m in find_mpi() if m.mpicc == mpicc), "")
    install = describe(known) if known else None
    return install.mpiexec if install is not None and install.mpiexec else "mpiexec"


def put_runs(root: Path, found: Sequence[CapturedRun], *, force: bool = False) -> Study:
    """Copy checked runs into the study at ``root``, as further repeats of their counts.

    Errors: UsageError when the study holds runs of another command and ``force`` is not given;
    P3SError when it cannot be written.
    """
    made = not Path(root).exists()
    study = Study.create(
        root,
        found[0].command,
        force=force,
        remedy="add them to another study, give that command after --, or mix them with --force",
    )
    try:
        for run in found:
            there = study.timed_runs(run.np) if run.timed else study.runs(run.np)
            used = {record.rep for record in there}
            rep = next(number for number in range(len(used) + 1) if number not in used)
            place = study.timed_dir if run.timed else study.runs_dir
            _put(study, run, place(run.np, rep))
    except BaseException:
        if made:
            study.remove_if_empty()
        raise
    study.update()
    return study


def _put(study: Study, run: CapturedRun, target: Path) -> None:
    from p3s.signature_runner.standard_input import NAME

    staged = stage_run(target)
    try:
        for source in sorted(run.path.glob("rank-*.p3t")):
            shutil.copyfile(source, staged / source.name)
        if (run.path / NAME).is_file():
            shutil.copyfile(run.path / NAME, staged / NAME)
        write_json(staged / "run.json", run.info)
        commit_run(staged, target)
    except OSError as error:
        raise P3SError(
            f"{run.path}: cannot be copied to {target}: {os.strerror(error.errno or 0)}"
        ) from error
    finally:
        discard(staged)


def characterize_added(study: Study, counts: Sequence[int]) -> list[str]:
    """Find the phases of counts; return why that failed at some."""
    from p3s.signature.signature import characterize

    failed = []
    for np in counts:
        try:
            characterize(traces_of(study), np)
        except P3SError as problem:
            failed.append(f"np={np}: {problem}")
    study.update()
    return failed
