"""The kernels as programs: compiled, and run as processes that are asked line by line.

They are compiled here once per compiler and source, or came with P3S.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from p3s.base.errors import P3SError
from p3s.base.host import compiling
from p3s.base.host.compiling import c_compiler, compile_cached, version_of

#: Of the base instruction set, as most programs are: a binary that runs on both machines.
FLAGS = ("-O2", "-ftree-vectorize", "-std=gnu11", "-w")
#: Programs that call MPI come as libraries without a libmpi: it has other names elsewhere.
LIBRARY_FLAGS = (*FLAGS, "-fPIC", "-shared")
KERNELS, NETWORK, FILES = "kernels.c", "network.c", "files.c"
#: Loads a libmpi and such a library, and calls its main.
_STARTER = Path(__file__).with_name("loaded.py")


@dataclass(frozen=True)
class Built:
    """A program: its path, compiler, that compiler's first line of --version, flags.

    ``libmpi``: of one that came without, the library that it is loaded with.
    """

    path: Path
    compiler: str
    version: str
    flags: str
    libmpi: str | None = None

    @property
    def words(self) -> list[str]:
        """The words that start it."""
        if self.libmpi is None:
            return [str(self.path)]
        return [sys.executable, "-I", str(_STARTER), self.libmpi, str(self.path)]


def source_of(source: str) -> Path:
    """Return the path of a source file of this package."""
    return Path(__file__).with_name(source)


def name_of(source: str, ending: str = "") -> str:
    """Return under which name what a source compiles to is kept, and came with P3S."""
    return f"machine-{Path(source).stem}{ending}"


def built(source: str, compiler: str, more: Sequence[str] = ()) -> Built:
    """Return ``source`` (a file of this package) compiled, from the cache if it is there.

    more: flags beside FLAGS. Errors: P3SError when the compiler fails or no place is writable.
    """
    path, flags = source_of(source), (*FLAGS, *more)
    made = compile_cached(name_of(source), [path], flags, compiler=compiler, what=path.name)
    return Built(made, compiler, version_of(compiler), _filter_flags(flags))


def kernels() -> Built:
    """Return the program of the kernels, as it came with P3S or compiled here.

    Errors: P3SError, which says what to install, when there is neither, or as of :func:`built`.
    """
    found = _came(name_of(KERNELS), KERNELS, FLAGS)
    return found or built(KERNELS, c_compiler("the kernels of p3s machine measure"))


def for_ranks(source: str, mpicc: str, libmpi: str | None) -> Built:
    """Return a program that calls MPI: compiled with ``mpicc``, or as it came with P3S.

    ``mpicc``: "" where there is none that works; ``libmpi``: path of the library that is loaded
    then. Errors: P3SError when nothing came that fits, or as of :func:`built`.
    """
    if not mpicc and libmpi is not None:
        found = _came(name_of(source, ".so"), source, LIBRARY_FLAGS, libmpi)
        if found is not None:
            return found
    return built(source, mpicc)


def _came(name: str, source: str, flags: Sequence[str], library: str | None = None) -> Built | None:
    """Return what came compiled with P3S, None where nothing that fits did."""
    sources = [source_of(source)]
    found = compiling.came(name, sources, flags, library)
    made = compiling.taken(name, sources, flags, library) if found else None
    if found is None or made is None:
        return None
    return Built(made, "came with P3S", found.compiler, _filter_flags(flags), library)


def _filter_flags(flags: Sequence[str]) -> str:
    """Return the flags that matter to what is measured."""
    return " ".join(flag for flag in flags if flag not in ("-std=gnu11", "-w", "-fPIC", "-shared"))


#: Longest that one answer may take; a kernel takes a fraction of a second.
_ANSWER_S = 120.0
#: Between telling all processes when to start and the start; more for each of them.
_HEAD_START_NS, _HEAD_START_EACH_NS = 1_000_000, 50_000


@dataclass(frozen=True)
class Shot:
    """One timing of a kernel: ns of CPU time per operation; wall time over CPU time."""

    ns: float
    wall_over_cpu: float
    late: bool = False


class LineProgram:
    """A compiled program that answers line by line; P3SError where it does not."""

    def __init__(self, words: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        self._name = Path(words[0]).name
        try:
            self._process = subprocess.Popen(
                list(words),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
                env=env,
            )
        except OSError as error:
            raise P3SError(f"{words[0]}: cannot be started: {error.strerror}") from error

    def say(self, line: str) -> None:
        """Ask something."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # told by the missing answer
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()

    def words(self) -> list[str]:
        """Return the words of the next answer; P3SError when a result was wrong or none comes."""
        words = self.answer().split()
        if words[:1] == ["wrong"]:
            raise P3SError(
                f"kernel {words[-1]} computed a wrong result, so its time means nothing; the"
                " compiler or the machine is at fault: set CC to another compiler"
            )
        return words

    def answer(self) -> str:
        """Return the next line; P3SError when the program ends, or does not answer in time."""
        assert self._process.stdout is not None
        watch = threading.Timer(_ANSWER_S, self._process.kill)
        watch.daemon = True
        watch.start()
        try:
            line = self._process.stdout.readline()
        finally:
            watch.cancel()
        if not line:
            code = self._process.wait()
            raise P3SError(
                f"{self._name} ended (exit code {code}) before it answered; is there enough memory?"
            )
        return line

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


class Runner(LineProgram):
    """A process that runs kernels on one core, with its own memory."""

    def __init__(self, program: Path, core: int, largest_bytes: int) -> None:
        super().__init__([str(program), str(core), str(largest_bytes)])
        words = self.answer().split()
        if words[:1] != ["ready"]:
            self.close()
            raise P3SError(
                f"the kernels got no {largest_bytes} bytes of memory; free some and measure again"
            )
        self.pinned = words[1:] == ["1"]


class Runners:
    """One process per core, which run the same kernel at the same time."""

    def __init__(self, program: Path, cores: Sequence[int], largest_bytes: int) -> None:
        self._all: list[Runner] = []
        with contextlib.ExitStack() as stack:
            for core in cores:
                self._all.append(Runner(program, core, largest_bytes))
                stack.callback(self._all[-1].close)
            self._stack = stack.pop_all()

    @property
    def pinned(self) -> bool:
        """Whether every process stays on its core."""
        return all(one.pinned for one in self._all)

    def run(self, kernel: str, working_set: int, for_ns: int) -> Shot:
        """Run a kernel everywhere at once (alone where there is one process).

        Returns the mean over the processes; late when a process missed the common start.
        """
        together = len(self._all) > 1
        for one in self._all:
            one.say(f"{kernel} {working_set} {for_ns} {int(together)}")
        if together:
            if {one.answer().strip() for one in self._all} != {"warm"}:
                raise P3SError("the kernels answer what they should not; measure again")
            ahead = _HEAD_START_NS + _HEAD_START_EACH_NS * len(self._all)
            at_ns = time.monotonic_ns() + ahead
            for one in self._all:
                one.say(str(at_ns))
        timings = [[int(word) for word in one.words()] for one in self._all]
        return Shot(
            sum(cpu_ns / max(operations, 1) for cpu_ns, _, operations, _ in timings) / len(timings),
            max(wall_ns / max(cpu_ns, 1) for cpu_ns, wall_ns, _, _ in timings),
            any(late for *_, late in timings),
        )

    def __enter__(self) -> Runners:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
