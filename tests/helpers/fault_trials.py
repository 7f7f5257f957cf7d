"""Trials of faults: a command is disturbed at one of its operations, then run again.

What holds after each: nothing that was there is lost, no process is left, no traceback, and the
second run gives what an undisturbed one gives.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path

from commands import P3S
from paths import ROOT

SHIM = ROOT / "tests" / "faults" / "shim.c"
#: The variable that tells the processes of a trial.
MARK = "P3S_FAULT_TRIAL"
#: Of the process itself, by the shim; and two processes that do the same at once.
FAULTS = (
    "kill", "stop", "term", "int", "slow", "full", "quota", "readonly", "close", "rename",
    "later", "earlier", "pause", "memory", "two writers",
)  # fmt: skip
#: Of the file system, where this user may mount one.
MOUNTS = ("small disk", "read-only disk")
#: Of rank 1 of its jobs, of their launcher, of all processes, by the kind of the shim.
RANKS = {
    "rank killed": "kill", "rank stopped": "stop", "rank frozen": "freeze", "rank slow": "slow",
    "rank closes": "close", "launcher ended": "end launcher", "launcher killed": "kill launcher",
    "batch system": "batch",
}  # fmt: skip
Process = subprocess.Popen[bytes]
#: Exit codes of disturbed commands beside the usual one; of others: 1, failed in one line.
_ENDS = {
    "kill": (-signal.SIGKILL,), "term": (143,), "int": (130,), "batch system": (143, -9, 1, 3),
    **dict.fromkeys(("stop", "slow", "later", "earlier", "rank stopped", "rank slow"), ()),
}  # fmt: skip
_FAILED = (1,)
#: What fails at one of several counts is told by 3: a job, or an operation that fails once.
_SOME_FAILED = (1, 3)
_ONCE = ("close", "rename")
_LIMIT_S = 300.0
#: How often a command is run without a fault until it succeeds.
_ATTEMPTS = 3
_GONE_S = 15.0
#: What starting and ending a command may take beyond its limit, on a machine with other work.
_SLACK_S = 30.0
#: Of a batch system, between SIGTERM and SIGKILL.
_KILL_S = 5.0


@dataclass(frozen=True)
class Command:
    """A command on the study directory ``study`` of its working directory.

    ``makes``: beginnings of the paths that it may change. ``exact``: what it writes is the same
    each time; else ``same`` tells what is. ``faults``: those it is tried with. ``limit_s``: by
    which it promises to have ended.
    """

    name: str
    words: tuple[str, ...]
    makes: tuple[str, ...]
    exact: bool = True
    same: Callable[[Path], object] | None = None
    faults: tuple[str, ...] = FAULTS
    limit_s: float = _LIMIT_S


def kind_of(fault: str, draw: int) -> str:
    """Return which operations of a rank a trial counts; nothing: those of the process."""
    return ("files", "clock")[draw % 2] if fault in RANKS else ""


def compiled(folder: Path) -> Path | None:
    """Return the shim, compiled; None where there is no compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        return None
    made = folder / "shim.so"
    words = [compiler, "-shared", "-fPIC", "-O1", str(SHIM), "-o", str(made), "-ldl"]
    done = subprocess.run(words, capture_output=True, timeout=120, check=False)
    return made if done.returncode == 0 else None


def can_mount(folder: Path) -> bool:
    """Tell whether this user can mount a file system."""
    place = folder / "mounted"
    place.mkdir()
    done = _mount(place, 1 << 20)
    if done:
        _unmount(place)
    place.rmdir()
    return done


def _mount(place: Path, nbytes: int) -> bool:
    words = ["mount", "-t", "tmpfs", "-o", f"size={nbytes}", "tmpfs", str(place)]
    try:
        return subprocess.run(words, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def _mount_again(place: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", str(place)], check=True)


def _unmount(place: Path) -> None:
    if place.is_mount():
        subprocess.run(["umount", str(place)], check=True)


@dataclass(frozen=True)
class Outcome:
    """A trial: what was done, what was wrong afterwards (nothing: it was survived), exit codes.

    ``happened``: the command came to the operation; ``seconds``: of the disturbed command;
    ``said``: the last that it, or the second one, said.
    """

    command: str
    fault: str
    at: int
    codes: tuple[int, ...]
    wrong: tuple[str, ...] = ()
    happened: bool = True
    seconds: float = 0.0
    said: str = ""

    def __str__(self) -> str:
        found = "; ".join(self.wrong) or ("survived" if self.happened else "did not happen")
        codes = ", ".join(map(str, self.codes))
        said = f" ({self.said})" if self.wrong and self.said else ""
        return f"{self.command}: {self.fault} at {self.at} (exit code {codes}): {found}{said}"


@dataclass(frozen=True)
class Undisturbed:
    """What a command does without a fault: exit code, tree of files, bytes it writes.

    ``operations``: its number of them; of rank 1 of its jobs by kind (files, clock).
    """

    code: int
    tree: dict[str, str]
    facts: object
    written: int
    operations: dict[str, int]


@dataclass
class Matrix:
    """Trials on copies of a study; ``work``: a directory of their own.

    ``starts``: what starts the command line.
    """

    study: Path
    work: Path
    shim: Path
    starts: Sequence[str] = P3S
    environment: dict[str, str] = field(default_factory=dict)
    _known: dict[str, Undisturbed] = field(default_factory=dict)

    def at(self, work: Path, names: Collection[str]) -> Matrix:
        """Return the same in another directory, with what it knows of these commands.

        Of others it may not hold: what they write can name the directory.
        """
        known = {name: one for name, one in self._known.items() if name in names}
        return replace(self, work=work, _known=known)

    def undisturbed(self, command: Command, kind: str = "") -> Undisturbed:
        """Return what a command does without a fault; it is run once, and for each kind."""
        known = self._known.get(command.name)
        if known is None or kind not in known.operations:
            where = f"@1:{kind}" if kind else str(self._study)
            before = tree(self._copy())
            count = self.work / "operations"
            count.unlink(missing_ok=True)
            for _ in range(_ATTEMPTS):  # other work can keep a job from ending in its time
                code = self._start(command, f"count:1:{where}", "none").wait(_LIMIT_S)
                if code in (0, 3):
                    break
            else:
                raise RuntimeError((self.work / "said").read_text())
            operations = {kind: int(count.read_text())} if count.exists() else {kind: 1}
            now = tree(self._study)
            changed = [self._study / path for path in now if now[path] != before.get(path)]
            known = Undisturbed(
                known.code if known else code,
                known.tree if known else now,
                known.facts if known else self._facts(command),
                sum(path.stat().st_size for path in changed),
                {**(known.operations if known else {}), **operations},
            )
            self._known[command.name] = known
        return known

    def trial(self, command: Command, fault: str, number: int) -> Outcome:
        """Disturb a command at an operation; run it again; say what was wrong.

        A job's operations differ from run to run: where it has ended before, it is tried earlier.
        """
        kind = kind_of(fault, number)
        usual = self.undisturbed(command, kind)
        at = number // 2 % usual.operations[kind] + 1
        while True:
            outcome = self._trial(command, fault, kind, at, usual)
            if outcome.happened or outcome.wrong or at == 1:
                return outcome
            at = at // 2 or 1

    def _trial(
        self, command: Command, fault: str, kind: str, at: int, usual: Undisturbed
    ) -> Outcome:
        before = tree(self._copy(fault, at, usual))
        mark = f"{self.work.name}-{os.getpid()}-{command.name}-{fault}-{at}".replace(" ", "-")
        begin = time.monotonic()
        codes = self._disturbed(command, fault, kind, at, mark)
        seconds = time.monotonic() - begin
        parts = kind or (fault in _ONCE and "-n" in command.words)
        ends = _ENDS.get(fault, _SOME_FAILED if parts else _FAILED)
        wrong = [f"exit code {code}" for code in codes if code not in (usual.code, *ends)]
        if seconds > command.limit_s + _SLACK_S:
            wrong.append(f"took {seconds:.0f} s")
        said = (self.work / "said").read_text(errors="replace")
        if "Traceback" in said or "internal error" in said:
            wrong.append("a bug in itself")
        left = _left(mark)
        if left:
            wrong.append(f"{len(left)} processes left")
        if self._place.is_mount():
            _mount_again(self._place, f"rw,size={1 << 30}")
        wrong += self._lost(command, before, usual)
        code = _end(self._start(command, "", mark))
        wrong += self._differs(command, usual, code)
        done = fault in ("two writers", *MOUNTS) or (self.work / "done").exists()
        lines = (self.work / "said").read_text(errors="replace").strip().splitlines()
        last = lines[-1][:300] if lines else ""
        return Outcome(command.name, fault, at, tuple(codes), tuple(wrong), done, seconds, last)

    def _disturbed(self, command: Command, fault: str, kind: str, at: int, mark: str) -> list[int]:
        """Run a command with a fault; return its exit code, or those of both."""
        if fault == "two writers":
            return [_end(one) for one in [self._start(command, "", mark) for _ in range(2)]]
        if fault in MOUNTS:
            return [_end(self._start(command, "", mark))]
        where = f"@1:{kind}" if kind else str(self._study)
        process = self._start(command, f"{RANKS.get(fault, fault)}:{at}:{where}", mark)
        if fault in ("stop", "rank stopped"):
            _go_on(process, mark)
        if fault == "batch system":
            _end_all(process, mark, self.work / "done")
        return [_end(process)]

    @property
    def _place(self) -> Path:
        return self.work / "trial"

    @property
    def _study(self) -> Path:
        return self._place / "study"

    def _copy(self, fault: str = "", at: int = 0, usual: Undisturbed | None = None) -> Path:
        _unmount(self._place)
        shutil.rmtree(self._place, ignore_errors=True)
        self._place.mkdir()
        if fault in MOUNTS and not _mount(self._place, 1 << 30):
            raise OSError("no file system can be mounted here")
        shutil.copytree(self.study, self._study, symlinks=True)
        if fault == "read-only disk":
            _mount_again(self._place, "ro")
        if fault == "small disk" and usual is not None:
            used = os.statvfs(self._place)
            taken = (used.f_blocks - used.f_bfree) * used.f_frsize
            _mount_again(self._place, f"size={taken + at * 4096 % max(usual.written, 4096)}")
        (self.work / "said").write_text("")
        (self.work / "done").unlink(missing_ok=True)
        return self._study

    def close(self) -> None:
        """Give up what is mounted."""
        _unmount(self._place)

    def _start(self, command: Command, fault: str, mark: str) -> Process:
        variables = {**os.environ, **self.environment, MARK: mark, "PYTHONPATH": str(ROOT)}
        if fault:
            variables |= {
                "P3S_FAULT": fault,
                "P3S_FAULT_COUNT": str(self.work / "operations"),
                "P3S_FAULT_DONE": str(self.work / "done"),
                "LD_PRELOAD": str(self.shim),
            }
        with open(self.work / "said", "ab") as errors:
            return subprocess.Popen(
                [*self.starts, *command.words],
                cwd=self._place,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )

    def _facts(self, command: Command) -> object:
        return command.same(self._study) if command.same else None

    def _lost(self, command: Command, before: dict[str, str], usual: Undisturbed) -> list[str]:
        """Return files that are gone, or others than before and than they should be."""
        found = []
        after = tree(self._study)
        for path, digest in before.items():
            now = after.get(path)
            mine = path.startswith(command.makes)
            if now is None and not (mine and path not in usual.tree):
                found.append(f"{path} is lost")
            elif now not in (None, digest) and not (
                mine and (not command.exact or now == usual.tree.get(path))
            ):
                found.append(f"{path} has changed")
        return found

    def _differs(self, command: Command, usual: Undisturbed, code: int) -> list[str]:
        """Return how a second run differs from an undisturbed one."""
        if code != usual.code:
            return [f"run again: exit code {code}"]
        found = []
        now = tree(self._study)
        hidden = [path for path in now if any(p.startswith(".") for p in Path(path).parts)]
        found += [f"{path} is left" for path in hidden]
        if command.exact:
            paths = sorted((now.keys() | usual.tree.keys()) - set(hidden))
            found += [f"{path} differs" for path in paths if now.get(path) != usual.tree.get(path)]
        elif self._facts(command) != usual.facts:
            found.append("run again it gives something else")
        return found


def _end(process: Process) -> int:
    try:
        return process.wait(_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return 1000


def _go_on(process: Process, mark: str) -> None:
    """Let a process of a trial go on when it has been stopped for a while."""
    while process.poll() is None:
        stopped = [pid for pid in _marked(mark) if _state(pid) == "T"]
        if stopped:
            time.sleep(0.5)
            _signal(stopped, signal.SIGCONT)
            return
        time.sleep(0.02)


def _end_all(process: Process, mark: str, done: Path) -> None:
    """Do as a batch system at the end of a job's time: SIGTERM to all, SIGKILL some seconds later.

    ``done``: is there when the moment has come.
    """
    while not done.exists() and process.poll() is None:
        time.sleep(0.005)
    _signal(list(_marked(mark)), signal.SIGTERM)
    deadline = time.monotonic() + _KILL_S
    while (found := list(_marked(mark))) and time.monotonic() < deadline:
        process.poll()  # else it stays as a zombie
        time.sleep(0.05)
    _signal(found, signal.SIGKILL)


def _signal(pids: Sequence[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def _left(mark: str) -> list[int]:
    """Return the processes of a trial that are still there after a while."""
    deadline = time.monotonic() + _GONE_S
    while found := list(_marked(mark)):
        if time.monotonic() > deadline:
            break
        time.sleep(0.1)
    return found


def _marked(mark: str) -> Iterator[int]:
    wanted = f"{MARK}={mark}".encode()
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if wanted in Path("/proc", name, "environ").read_bytes().split(b"\0"):
                    yield int(name)
            except OSError:
                continue


def traced(study: Path) -> object:
    """Return the calls of each run of a study, complete or not at all."""
    words = [sys.executable, "-m", "p3s", "check", str(study), "--json"]
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=variables)
    runs = json.loads(done.stdout)["runs"]
    return [
        (Path(run["path"]).name, run["status"], sum(rank["events"] for rank in run["ranks"]))
        for run in runs
        if not run["path"].endswith((".failed", ".stopped"))
    ]


#: What of a file says when, by whom and how long: nothing that a second run could give again.
_CHANGING = ("created", "wall_s")


def tree(root: Path) -> dict[str, str]:
    """Return the digests of all files below a directory by their paths."""
    return {
        str(path.relative_to(root)): _digest(path)
        for path in sorted(root.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


def _digest(path: Path) -> str:
    data = path.read_bytes()
    if path.suffix == ".json":
        try:
            found = json.loads(data)
        except ValueError:
            return sha256(data).hexdigest()
        if isinstance(found, dict):
            kept = {name: value for name, value in found.items() if name not in _CHANGING}
            data = json.dumps(kept, sort_keys=True).encode()
    return sha256(data).hexdigest()


def drawn(
    commands: Sequence[Command], seed: int, trials: int
) -> Iterator[tuple[Command, str, int]]:
    """Give trials: all pairs of commands and faults in turn, at operations that are drawn."""
    rng = random.Random(seed)
    pairs = [(command, fault) for command in commands for fault in command.faults]
    order: list[tuple[Command, str]] = []
    for _ in range(trials):
        order = order or rng.sample(pairs, len(pairs))
        yield (*order.pop(), rng.randrange(1 << 30))
