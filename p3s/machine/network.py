"""What messages between two ranks cost: runs network.c and fits LogGP parameters."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from p3s.base.errors import P3SError

if TYPE_CHECKING:
    from p3s.base.host.mpi import MpiInstall

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


def measure(launcher: Sequence[str] | None, budget_s: float) -> dict[str, Any]:
    """Measure messages between two ranks and return the ``network`` of a machine file.

    Errors: P3SError when there is no launcher, no compiler of its MPI, or the run fails.
    """
    from p3s.machine.programs import NETWORK, for_ranks

    found_launcher = launcher_of(launcher)
    install = found_launcher.install
    program = for_ranks(NETWORK, install.mpicc, found_launcher.libmpi)
    text = run_ranks(
        [*found_launcher.argv(2), *program.words, str(int(budget_s * 1e9))],
        _START_S + 10 * budget_s,
        "two ranks",
        2,
    )
    found = parse_network(text)
    return {
        "mpi": f"{install.family} {install.version}",
        "launcher": found_launcher.words,
        "compiler_version": program.version,
        **found,
        "ranges": ranges(found),
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
    if install is None and (found := compiling.runtime(program, path, likely)):
        libmpi, install = found
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
    found = measure(launcher, budget_s)
    if launcher is None or len(set(found["hosts"])) == 1:
        return found
    with contextlib.suppress(P3SError):
        inside = measure(None, budget_s / 2)
        if len(set(inside["hosts"])) == 1 and inside["hosts"][0] in found["hosts"]:
            return {**found, "inside": inside}
    return found


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
    found = [str(one.mpiexec) for one in installs if one.mpiexec is not None]
    if not found:
        raise P3SError(
            "no MPI found; install one (for example `pip install mpich`) or run `p3s doctor`"
        )
    return found[:1]


def run_ranks(argv: list[str], timeout_s: float, who: str, processes: int) -> str:
    """Return what ranks printed; P3SError, which says who they are, when they fail or hang."""
    from p3s.base import workers
    from p3s.base.host.cores import cores
    from p3s.base.host.mpi import launch_defaults
    from p3s.base.host.processes import run_session

    workers.check_may_launch()
    variables = {**launch_defaults(cores() < processes), **os.environ}
    try:
        done = run_session(argv, timeout_s, env=variables, grace_s=_GRACE_S)
    except OSError as error:
        raise P3SError(f"{argv[0]}: cannot be started: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise P3SError(f"{argv[0]}: {who} did not end within {timeout_s:.0f} s") from error
    if done.returncode != 0:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip(" -=*")]
        raise P3SError(
            f"{argv[0]}: {who} ended with exit code {done.returncode}: "
            f"{(lines or ['no message'])[0][:160]}"
        )
    return done.stdout


def parse_network(text: str) -> dict[str, Any]:
    """Return what network.c printed: hosts, cores, limits, and the table of sizes as columns.

    A receive time of -1 becomes None. Errors: P3SError when something is missing.
    """
    found: dict[str, Any] = {"hosts": [], "cores": []}
    rows: list[list[float]] = []
    try:
        for line in text.splitlines():
            match line.split():
                case ["rank", _, host, core]:
                    found["hosts"].append(host)
                    found["cores"].append(int(core))
                case ["eager" | "unattended" as what, size]:
                    found[f"{what}_bytes"] = int(size)
                case ["post", ns, median]:
                    found["post_ns"], found["post_median_ns"] = float(ns), float(median)
                case ["create", what, ns, median]:
                    found.setdefault("create", {})[what] = [float(ns), float(median)]
                case ["pack", what, size, *ns] if len(ns) == 4:
                    row = [int(size), *map(float, ns)]
                    found.setdefault("pack", {}).setdefault(what, []).append(row)
                case ["size", *numbers] if len(numbers) == len(_COLUMNS):
                    rows.append([float(number) for number in numbers])
    except ValueError as error:
        raise P3SError(f"the two ranks printed what cannot be read: {error}") from error
    if len(found["hosts"]) != 2 or len(rows) < 4 or "eager_bytes" not in found:
        raise P3SError("the two ranks ended without results; does the launcher drop their output?")
    sizes: dict[str, list[Any]] = {
        name: list(column) for name, column in zip(_COLUMNS, zip(*rows, strict=True), strict=True)
    }
    for name in ("bytes", "timings"):
        sizes[name] = [int(value) for value in sizes[name]]
    for name in ("receive_ns", "receive_median_ns"):
        sizes[name] = [None if value < 0 else value for value in sizes[name]]
    found.setdefault("unattended_bytes", -1)
    found["sizes"] = sizes
    return found


def ranges(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Return LogGP parameters (Alexandrov et al. 1995) for eager and for rendezvous messages.

    One way of ``bytes`` takes o_send + L + o_receive + G bytes. G and the sum of the constants are
    the line with the least relative misfit to the one-way times; the overheads are measured; L
    is what is left. g: gap between messages of a stream, of the smallest size of the range;
    ``stream_G_ns_per_byte``: what a byte costs in a stream. ``misfit``: largest relative one.
    """
    sizes = found["sizes"]
    eager = int(found["eager_bytes"])
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
