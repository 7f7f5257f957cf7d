"""What is measured with: kernels asked line by line, and two ranks that send messages.

Programs are compiled here once per compiler and source, or came with P3S. What network.c prints
becomes LogGP parameters.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from p3s.base.errors import P3SError
from p3s.base.host import compiling
from p3s.base.host.compiling import c_compiler, compile_cached, version_of

if TYPE_CHECKING:
    from p3s.base.host.mpi import MpiInstall


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
    binary = compile_cached(name_of(source), [path], flags, compiler=compiler, what=path.name)
    return Built(binary, compiler, version_of(compiler), _filter_flags(flags))


def kernels() -> Built:
    """Return the program of the kernels, as it came with P3S or compiled here.

    Errors: P3SError, which says what to install, when there is neither, or as of :func:`built`.
    """
    prebuilt = _came(name_of(KERNELS), KERNELS, FLAGS)
    return prebuilt or built(KERNELS, c_compiler("the kernels of p3s machine measure"))


def for_ranks(source: str, mpicc: str, libmpi: str | None) -> Built:
    """Return a program that calls MPI: compiled with ``mpicc``, or as it came with P3S.

    ``mpicc``: "" where there is none that works; ``libmpi``: path of the library that is loaded
    then. Errors: P3SError when nothing came that fits, or as of :func:`built`.
    """
    if not mpicc and libmpi is not None:
        prebuilt = _came(name_of(source, ".so"), source, LIBRARY_FLAGS, libmpi)
        if prebuilt is not None:
            return prebuilt
    return built(source, mpicc)


def _came(name: str, source: str, flags: Sequence[str], library: str | None = None) -> Built | None:
    """Return what came compiled with P3S, None where nothing that fits did."""
    sources = [source_of(source)]
    prebuilt = compiling.came(name, sources, flags, library)
    binary = compiling.taken(name, sources, flags, library) if prebuilt else None
    if prebuilt is None or binary is None:
        return None
    return Built(binary, "came with P3S", prebuilt.compiler, _filter_flags(flags), library)


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


#: What starting two ranks may take beyond the measuring itself.
_START_S = 90.0
#: Between asking the launcher to end, and ending it.
_GRACE_S = 5.0
_NP = ("-n", "{np}")
_COLUMNS = (
    "bytes",
    "timings",
    "one_way_ns",
    "one_way_median_ns",
    "send_ns",
    "send_median_ns",
    "receive_ns",
    "receive_median_ns",
    "gap_ns",
)


def measure_messages(launcher: Sequence[str] | None, budget_s: float) -> dict[str, Any]:
    """Measure messages between two ranks and return the ``network`` of a machine file.

    Errors: P3SError when there is no launcher, no compiler of its MPI, or the run fails.
    """
    found_launcher = launcher_of(launcher)
    install = found_launcher.install
    program = for_ranks(NETWORK, install.mpicc, found_launcher.libmpi)
    text = run_ranks(
        [*found_launcher.argv(2), *program.words, str(int(budget_s * 1e9))],
        _START_S + 10 * budget_s,
        "two ranks",
        2,
    )
    results = parse_network(text)
    return {
        "mpi": f"{install.family} {install.version}",
        "launcher": found_launcher.words,
        "compiler_version": program.version,
        **results,
        "ranges": ranges(results),
    }


@dataclass(frozen=True)
class Launcher:
    """The words of a launcher, and the MPI that its ranks are compiled with.

    ``kind``: family of the launcher itself (openmpi, mpich, slurm). ``libmpi``: where that MPI has
    no compiler, path of the libmpi that what came compiled with P3S is for.
    """

    words: tuple[str, ...]
    kind: str
    install: MpiInstall
    libmpi: str | None = None

    def argv(self, processes: int) -> list[str]:
        """Return the words that start so many processes of what comes behind them."""
        words = self.words if any("{np}" in word for word in self.words) else (*self.words, *_NP)
        return [word.replace("{np}", str(processes)) for word in words]


def launcher_of(launcher: Sequence[str] | None, program: str | None = None) -> Launcher:
    """Return the launcher that some words name, and the MPI of a program that it starts.

    Without words: the mpiexec that ``p3s characterize`` would take (PATH, then beside this Python),
    unless its MPI cannot share cores or has no compiler here. Errors: P3SError when there is none,
    or neither a compiler of the same MPI nor something compiled for it that came with P3S.
    """
    from p3s.base.host import command, compiling, mpi

    words = list(launcher or ()) or _default()
    place = next(
        (i for i, word in enumerate(words) if os.path.basename(word) in command.LAUNCHERS), 0
    )
    path = words[place] = command.find_launcher(words[place])
    kind, libmpi = mpi.launcher_family(path) or "", None
    likely = mpi.family_of_srun(words) if kind == mpi.SLURM else None
    if likely:
        install = next((one for one in mpi.find_mpi() if one.family == likely), None)
    else:
        install = mpi.mpi_for(program, path)
    if install is None and (runtime := compiling.runtime(program, path, likely)):
        libmpi, install = runtime
    if install is None or (kind in (mpi.OPENMPI, mpi.MPICH) and install.family != kind):
        raise P3SError(
            f"{path}: no mpicc of this launcher's MPI ({likely or kind or 'unknown'}) "
            "found; put its bin directory on PATH or run `p3s doctor`"
        )
    return Launcher(tuple(words), kind, install, libmpi)


def measured_both(launcher: Sequence[str] | None, budget_s: float) -> dict[str, Any]:
    """Measure messages between two ranks; of two hosts also between two ranks of one.

    The latter is ``inside`` of the result, where the usual launcher puts both ranks on one of the
    hosts. Errors: as in measure.
    """
    results = measure_messages(launcher, budget_s)
    if launcher is None or len(set(results["hosts"])) == 1:
        return results
    with contextlib.suppress(P3SError):
        inside = measure_messages(None, budget_s / 2)
        if len(set(inside["hosts"])) == 1 and inside["hosts"][0] in results["hosts"]:
            return {**results, "inside": inside}
    return results


def _default() -> list[str]:
    """Return the launcher to use when none is named."""
    from p3s.base.host import command, compiling, mpi

    with contextlib.suppress(P3SError):
        path = command.find_launcher("mpiexec")
        install = mpi.mpi_for(None, path)
        if (
            install is not None
            and install.usable_oversubscribed
            and install.family == mpi.launcher_family(path)
        ):
            return [path]
    installs = mpi.find_mpi()
    installs = installs or compiling.runtimes(installs)
    launchers = [str(one.mpiexec) for one in installs if one.mpiexec is not None]
    if not launchers:
        raise P3SError(
            "no MPI found; install one (for example `pip install mpich`) or run `p3s doctor`"
        )
    return launchers[:1]


def run_ranks(argv: list[str], timeout_s: float, who: str, processes: int) -> str:
    """Return what ranks printed; P3SError, which says who they are, when they fail or hang."""
    from p3s.base import workers
    from p3s.base.host.cores import cores
    from p3s.base.host.mpi import launch_defaults
    from p3s.base.host.processes import run_session

    workers.check_may_launch()
    variables = {**launch_defaults(cores() < processes), **os.environ}
    try:
        process = run_session(argv, timeout_s, env=variables, grace_s=_GRACE_S)
    except OSError as error:
        raise P3SError(f"{argv[0]}: cannot be started: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise P3SError(f"{argv[0]}: {who} did not end within {timeout_s:.0f} s") from error
    if process.returncode != 0:
        lines = [line.strip() for line in process.stderr.splitlines() if line.strip(" -=*")]
        raise P3SError(
            f"{argv[0]}: {who} ended with exit code {process.returncode}: "
            f"{(lines or ['no message'])[0][:160]}"
        )
    return process.stdout


def parse_network(text: str) -> dict[str, Any]:
    """Return what network.c printed: hosts, cores, limits, and the table of sizes as columns.

    A receive time of -1 becomes None. Errors: P3SError when something is missing.
    """
    results: dict[str, Any] = {"hosts": [], "cores": []}
    rows: list[list[float]] = []
    try:
        for line in text.splitlines():
            match line.split():
                case ["rank", _, host, core]:
                    results["hosts"].append(host)
                    results["cores"].append(int(core))
                case ["eager" | "unattended" as item, size]:
                    results[f"{item}_bytes"] = int(size)
                case ["post", ns, median]:
                    results["post_ns"], results["post_median_ns"] = float(ns), float(median)
                case ["create", item, ns, median]:
                    results.setdefault("create", {})[item] = [float(ns), float(median)]
                case ["pack", item, size, *ns] if len(ns) == 4:
                    row = [int(size), *map(float, ns)]
                    results.setdefault("pack", {}).setdefault(item, []).append(row)
                case ["size", *numbers] if len(numbers) == len(_COLUMNS):
                    rows.append([float(number) for number in numbers])
    except ValueError as error:
        raise P3SError(f"the two ranks printed what cannot be read: {error}") from error
    if len(results["hosts"]) != 2 or len(rows) < 4 or "eager_bytes" not in results:
        raise P3SError("the two ranks ended without results; does the launcher drop their output?")
    sizes: dict[str, list[Any]] = {
        name: list(column) for name, column in zip(_COLUMNS, zip(*rows, strict=True), strict=True)
    }
    for name in ("bytes", "timings"):
        sizes[name] = [int(value) for value in sizes[name]]
    for name in ("receive_ns", "receive_median_ns"):
        sizes[name] = [None if value < 0 else value for value in sizes[name]]
    results.setdefault("unattended_bytes", -1)
    results["sizes"] = sizes
    return results


def ranges(results: dict[str, Any]) -> list[dict[str, Any]]:
    """Return LogGP parameters (Alexandrov et al. 1995) for eager and for rendezvous messages.

    One way of ``bytes`` takes o_send + L + o_receive + G bytes. G and the sum of the constants are
    the line with the least relative misfit to the one-way times; the overheads are measured; L
    is what is left. g: gap between messages of a stream, of the smallest size of the range;
    ``stream_G_ns_per_byte``: what a byte costs in a stream. ``misfit``: largest relative one.
    """
    sizes = results["sizes"]
    eager = int(results["eager_bytes"])
    received = [value for value in sizes["receive_ns"] if value is not None]
    parts = []
    for kind in ("eager", "rendezvous"):
        at = [i for i, size in enumerate(sizes["bytes"]) if (size <= eager) == (kind == "eager")]
        if not at:
            continue
        nbytes = [sizes["bytes"][i] for i in at]
        constant, per_byte, misfit = _line(nbytes, [sizes["one_way_ns"][i] for i in at])
        _, stream, _ = _line(nbytes, [max(sizes["gap_ns"][i], 1e-3) for i in at])
        send, send_byte, _ = _line(nbytes, [sizes["send_ns"][i] for i in at])
        # A rendezvous message cannot have arrived before its receive: the call costs the same.
        receive = received[0] if received else 0.0
        parts.append(
            {
                "kind": kind,
                "from_bytes": nbytes[0] if kind == "eager" else eager + 1,
                "to_bytes": eager if kind == "eager" else nbytes[-1],
                "L_ns": max(constant - send - receive, 0.0),
                "o_send_ns": send,
                "o_send_ns_per_byte": send_byte,
                "o_receive_ns": receive,
                "g_ns": sizes["gap_ns"][at[0]],
                "G_ns_per_byte": per_byte,
                "stream_G_ns_per_byte": stream,
                "misfit": misfit,
            }
        )
    return parts


def _line(nbytes: Sequence[float], ns: Sequence[float]) -> tuple[float, float, float]:
    """Return constant, slope (neither negative) and largest relative misfit of a line."""
    import numpy as np

    from p3s.laws.statistics import nonnegative

    times = np.array(ns, dtype=float)
    matrix = np.column_stack([np.ones(len(times)), np.array(nbytes, dtype=float)])
    constant, slope = nonnegative(matrix, times, 1.0 / times)
    misfit = np.abs(matrix @ (constant, slope) / times - 1).max()
    return float(constant), float(slope), float(misfit)
