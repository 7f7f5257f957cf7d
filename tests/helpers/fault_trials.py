"""Trials of faults: a command is disturbed at one of its operations on files, then run again.

What holds after each: nothing that was there is lost, no process is left, no traceback, and the
second run gives what an undisturbed one gives.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from paths import ROOT

SHIM = ROOT / "tests" / "faults" / "shim.c"
#: Faults of the shim, and two processes that do the same at once.
FAULTS = (
    "kill", "stop", "term", "int", "slow", "full", "quota", "readonly", "close", "rename",
    "two writers",
)  # fmt: skip
#: Exit codes of disturbed commands: as without a fault, failed in one line, ended by a signal.
_ENDS = {"kill": (-signal.SIGKILL,), "term": (143,), "int": (130,), "stop": (), "slow": ()}
_MARK = "P3S_FAULT_TRIAL"
_LIMIT_S = 300.0
_GONE_S = 15.0


@dataclass(frozen=True)
class Command:
    """A command on the study directory ``study`` of its working directory.

    ``makes``: beginnings of the paths that it may change. ``exact``: what it writes is the same
    each time; else ``same`` tells what is.
    """

    name: str
    words: tuple[str, ...]
    makes: tuple[str, ...]
    exact: bool = True
    same: Callable[[Path], object] | None = None


def compiled(folder: Path) -> Path | None:
    """Return the shim, compiled; None where there is no compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        return None
    made = folder / "shim.so"
    words = [compiler, "-shared", "-fPIC", "-O1", str(SHIM), "-o", str(made), "-ldl"]
    done = subprocess.run(words, capture_output=True, timeout=120, check=False)
    return made if done.returncode == 0 else None


@dataclass(frozen=True)
class Outcome:
    """A trial: what was done, what was wrong afterwards (nothing: it was survived), exit codes."""

    command: str
    fault: str
    at: int
    codes: tuple[int, ...]
    wrong: tuple[str, ...] = ()

    def __str__(self) -> str:
        found = "; ".join(self.wrong) or "survived"
        codes = ", ".join(map(str, self.codes))
        return f"{self.command}: {self.fault} at {self.at} (exit code {codes}): {found}"


@dataclass(frozen=True)
class Undisturbed:
    """What a command does without a fault: exit code, tree of files, operations on files."""

    code: int
    tree: dict[str, str]
    facts: object
    operations: int


@dataclass
class Matrix:
    """Trials on copies of a study; ``work``: a directory of their own."""

    study: Path
    work: Path
    shim: Path
    environment: dict[str, str] = field(default_factory=dict)
    _known: dict[str, Undisturbed] = field(default_factory=dict)

    def undisturbed(self, command: Command) -> Undisturbed:
        """Return what a command does without a fault; it is run once."""
        if command.name not in self._known:
            count = self.work / "operations"
            process = self._start(self._copy(), command, f"count:1:{self._study}", "none")
            code = process.wait(_LIMIT_S)
            said = (self.work / "said").read_text()
            assert code in (0, 3), said
            operations = int(count.read_text())
            self._known[command.name] = Undisturbed(
                code, tree(self._study), self._facts(command), operations
            )
        return self._known[command.name]

    def trial(self, command: Command, fault: str, number: int) -> Outcome:
        """Disturb a command at an operation; run it again; say what was wrong."""
        usual = self.undisturbed(command)
        at = number % usual.operations + 1
        before = tree(self._copy())
        mark = f"{os.getpid()}-{command.name}-{fault}-{at}".replace(" ", "-")
        wrong: list[str] = []
        if fault == "two writers":
            both = [self._start(self._study, command, "", mark) for _ in range(2)]
            codes = [_end(process) for process in both]
        else:
            process = self._start(self._study, command, f"{fault}:{at}:{self._study}", mark)
            if fault == "stop":
                _go_on(process)
            codes = [_end(process)]
        allowed = (usual.code, *_ENDS.get(fault, (1,)))
        if fault == "two writers":
            allowed = (usual.code, 1)
        wrong += [f"exit code {code}" for code in codes if code not in allowed]
        said = (self.work / "said").read_text()
        if "Traceback" in said or "internal error" in said:
            wrong.append(f"said {said.strip().splitlines()[-1][:200]}")
        left = _left(mark)
        if left:
            wrong.append(f"{len(left)} processes left")
        wrong += self._lost(command, before, usual)
        code = _end(self._start(self._study, command, "", mark))
        wrong += self._differs(command, usual, code)
        return Outcome(command.name, fault, at, tuple(codes), tuple(wrong))

    @property
    def _study(self) -> Path:
        return self.work / "trial" / "study"

    def _copy(self) -> Path:
        shutil.rmtree(self.work / "trial", ignore_errors=True)
        shutil.copytree(self.study, self._study, symlinks=True)
        (self.work / "said").write_text("")
        return self._study

    def _start(
        self, study: Path, command: Command, fault: str, mark: str
    ) -> subprocess.Popen[bytes]:
        variables = {**os.environ, **self.environment, _MARK: mark, "PYTHONPATH": str(ROOT)}
        if fault:
            variables |= {"P3S_FAULT": fault, "P3S_FAULT_COUNT": str(self.work / "operations")}
            variables["LD_PRELOAD"] = str(self.shim)
        with open(self.work / "said", "ab") as said:
            return subprocess.Popen(
                [sys.executable, "-m", "p3s", *command.words],
                cwd=study.parent,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=said,
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


def _end(process: subprocess.Popen[bytes]) -> int:
    try:
        return process.wait(_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return 1000


def _go_on(process: subprocess.Popen[bytes]) -> None:
    """Let a process go on when it has been stopped."""
    while process.poll() is None:
        state = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]
        if state == "T":
            time.sleep(0.5)
            process.send_signal(signal.SIGCONT)
            return
        time.sleep(0.02)


def _left(mark: str) -> list[int]:
    """Return the processes of a trial that are still there after a while."""
    deadline = time.monotonic() + _GONE_S
    while found := list(_marked(mark)):
        if time.monotonic() > deadline:
            break
        time.sleep(0.1)
    return found


def _marked(mark: str) -> Iterator[int]:
    wanted = f"{_MARK}={mark}".encode()
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if wanted in Path("/proc", name, "environ").read_bytes().split(b"\0"):
                    yield int(name)
            except OSError:
                continue


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
    pairs = [(command, fault) for command in commands for fault in FAULTS]
    order: list[tuple[Command, str]] = []
    for _ in range(trials):
        order = order or rng.sample(pairs, len(pairs))
        yield (*order.pop(), rng.randrange(1 << 30))
