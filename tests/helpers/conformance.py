"""The MPIs of this machine and the small programs of programs/conformance, compiled and run."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tracer_helpers import PROGRAMS, the_mpi

from p3s.base.errors import P3SError
from p3s.base.host import mpi
from p3s.capture import RunTrace, read_run
from p3s.signature_runner.launch import run_traced
from p3s.signature_runner.recording import Recording

FOLDER = PROGRAMS / "conformance"
TIMEOUT_S = 300.0
COMPILE_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class Installed:
    """One MPI: its compilers and launcher (None: absent), and what its programs need.

    ``max_ranks`` is lower for an MPI that waits without yielding. ``python`` runs mpi4py with
    this MPI. ``library``: run with this libmpi, not with the one the compiler knows. ``osc``:
    Open MPI's ways of one-sided communication, where some of them fail on some machines.
    """

    name: str
    mpicc: str | None
    mpifort: str | None
    mpiexec: str | None
    python: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    max_ranks: int = 8
    library: str = ""
    osc: str = ""


def _beside(path: str, name: str) -> str | None:
    found = os.path.join(os.path.dirname(path), name)
    return found if os.access(found, os.X_OK) else None


def _own() -> list[Installed]:
    """The MPI all other tests use."""
    install = the_mpi()
    if install is None:
        return []
    if _is_debian_openmpi(install):
        return [_debian_openmpi("chosen")]
    return [Installed("chosen", install.mpicc, None, install.mpiexec, sys.executable)]


def _debian_openmpi(name: str) -> Installed:
    library = "/usr/lib/x86_64-linux-gnu/libmpi.so.40"
    which = shutil.which
    return Installed(
        name,
        which("mpicc.openmpi"),
        which("mpifort.openmpi"),
        which("mpiexec.openmpi"),
        sys.executable if os.path.exists(library) else None,
        # Beside another MPI mpi4py would take that one.
        {"MPI4PY_MPIABI": "openmpi", "MPI4PY_LIBMPI": library},
        osc="^ucx,rdma",
    )


def _is_debian_openmpi(install: mpi.MpiInstall) -> bool:
    """Tell whether the MPI is Debian's Open MPI, also behind a script that only forwards."""
    real = shutil.which("mpicc.openmpi")
    return real is not None and _links(install.mpicc) == _links(real)


def _links(mpicc: str) -> str:
    shown = subprocess.run(  # only Open MPI's compilers know the option
        [mpicc, "--showme:link"], capture_output=True, text=True, timeout=60, check=False
    )
    return shown.stdout.strip() if shown.returncode == 0 else mpicc


@functools.cache
def mpis() -> dict[str, Installed]:
    """Every MPI of this machine by name.

    ``chosen``, ``openmpi4``, ``mpich4``, ``mpich4-on-wheel``, ``openmpi5``, ``mpich5``: numbers 4
    are Debian's, numbers 5 the wheels of the virtual environments that P3S_TEST_OPENMPI5 and
    P3S_TEST_MPICH5 name; wheels have no Fortran, an MPI built by hand may be named instead.
    ``mpich4-on-wheel`` compiles with Debian's MPICH and runs on the MPICH beside this Python, which
    has the same binary interface.
    """
    found = {tested.name: tested for tested in _own()}
    own, which = the_mpi(), shutil.which
    if which("mpiexec.openmpi") and not (own and _is_debian_openmpi(own)):
        found["openmpi4"] = _debian_openmpi("openmpi4")
    mpicc, mpifort = which("mpicc.mpich"), which("mpifort.mpich")
    if which("mpiexec.mpich"):
        found["mpich4"] = Installed("mpich4", mpicc, mpifort, which("mpiexec.mpich"), max_ranks=2)
    hydra = _beside(sys.executable, "mpiexec.hydra")
    library = str(Path(sys.executable).parent.parent / "lib" / "libmpi.so.12")
    if hydra and mpifort and os.path.exists(library):
        found["mpich4-on-wheel"] = Installed(
            "mpich4-on-wheel", mpicc, mpifort, hydra, library=library
        )
    for name in ("openmpi5", "mpich5"):
        venv = os.environ.get(f"P3S_TEST_{name.upper()}")
        if venv:
            bin = Path(venv).absolute() / "bin"
            mpicc = str(bin / "mpicc")
            mpifort, python = _beside(mpicc, "mpifort"), _beside(mpicc, "python")
            found[name] = Installed(name, mpicc, mpifort, str(bin / "mpiexec"), python)
    return found


@dataclass(frozen=True)
class Program:
    """One small program: its sources in FOLDER, and how it is built and run.

    ``exit_code`` is what it ends with everywhere; ``least_ranks`` what it needs; ``counts_vary``
    that the number of its calls depends on timing (MPI_Waitsome, a task farm); ``library`` is a
    source that becomes a shared library beside it, linked if ``linked``; one in Fortran makes the
    calls; ``needs`` an MPI function that not every MPI has.
    """

    name: str
    source: str
    args: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    exit_code: int = 0
    least_ranks: int = 1
    counts_vary: bool = False
    library: str = ""
    linked: bool = False
    needs: str = ""

    @property
    def language(self) -> str:
        """Return c, fortran or python: what its calls are made in."""
        source = self.library if self.library.endswith(".f90") else self.source
        return {".c": "c", ".py": "python"}.get(Path(source).suffix, "fortran")


def compiler(program: Program, tested: Installed) -> str | None:
    """Return the compiler wrapper a program needs; None for Python and where it is absent."""
    return {"c": tested.mpicc, "fortran": tested.mpifort}.get(program.language)


def missing(program: Program, tested: Installed) -> str:
    """Return why a program cannot be run with an MPI, empty if it can."""
    if tested.mpiexec is None:
        return f"{tested.name}: no mpiexec"
    if program.needs and not _has(tested, program.needs):
        return f"{tested.name}: no {program.needs}"
    if program.language == "python":
        return "" if tested.python else f"{tested.name}: no mpi4py for it"
    if compiler(program, tested) is None:
        return f"{tested.name}: no {'mpifort' if program.language == 'fortran' else 'mpicc'}"
    return ""


@functools.cache
def _functions(mpicc: str) -> str:
    return mpi.preprocess(mpicc, "#include <mpi.h>\n") or ""


def _has(tested: Installed, function: str) -> bool:
    """Tell whether an MPI's mpi.h declares a function."""
    if tested.mpicc is None:
        return False
    return re.search(rf"\b{function}\s*\(", _functions(tested.mpicc)) is not None


def _compile(command: list[str], folder: Path) -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=COMPILE_TIMEOUT_S,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"


def _sources(name: str) -> list[str]:
    """Return what a source is compiled of: Fortran needs the module first."""
    own = [str(FOLDER / name)]
    return own if name.endswith(".c") else [str(FOLDER / "conform.f90"), *own]


def build(program: Program, tested: Installed, folder: Path) -> list[str]:
    """Compile a program into ``folder`` (once); return its command."""
    if program.language == "python":
        assert tested.python is not None
        return [tested.python, str(FOLDER / program.source), *program.args]
    target = folder / program.name
    wrapper = compiler(program, tested)
    assert wrapper is not None
    library = folder / f"lib{Path(program.library).stem}.so" if program.library else None
    if not target.exists():
        flags = ["-O1", "-g", "-w"]
        if library:
            _compile(
                [
                    wrapper,
                    *flags,
                    "-shared",
                    "-fPIC",
                    *_sources(program.library),
                    "-o",
                    str(library),
                ],
                folder,
            )
        link = [str(library), f"-Wl,-rpath,{folder}"] if program.linked else ["-ldl"]
        sources = _sources(program.source)
        if program.language == "c":
            flags += ["-std=gnu11", "-pthread"]
        _compile([wrapper, *flags, *program.flags, *sources, "-o", str(target), *link], folder)
    opened = [str(library)] if library and not program.linked else []
    return [str(target), *opened, *program.args]


@dataclass(frozen=True)
class Seen:
    """What a run showed: exit code, sorted lines of its output, and each rank's own file."""

    exit_code: int
    stdout: list[str]
    files: list[list[str]]

    def comparable(self, program: Program) -> tuple[int, list[str], list[list[str]]]:
        """Return all that must not depend on the tracer; how many polls fail may."""
        left_out = ("polls ", "counts ") if program.counts_vary else ("polls ",)
        kept = [[line for line in file if not line.startswith(left_out)] for file in self.files]
        return self.exit_code, self.stdout, kept


def run(
    program: Program, tested: Installed, np: int, binaries: Path, run_dir: Path, traced: bool
) -> Seen:
    """Run a program, with the tracer or without; its files appear in ``run_dir``."""
    run_dir.mkdir(parents=True)
    command = build(program, tested, binaries)
    assert tested.mpiexec is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(run_dir)
        for name, value in _environment(tested, binaries).items():
            patch.setenv(name, value)
        try:
            run_traced(
                [tested.mpiexec, "-n", "{np}", *command],
                np,
                run_dir,
                timeout_s=TIMEOUT_S,
                trace=traced,
                recording=Recording(posix_io=False),  # of what it notes for the test
            )
        except P3SError as error:
            if program.exit_code == 0:
                raise AssertionError(f"{error}\n{tail(run_dir)}") from error
    info = json.loads((run_dir / "run.json").read_text())
    files = [run_dir / f"output-{rank:06d}.txt" for rank in range(np)]
    return Seen(
        info["exit_code"],
        sorted((run_dir / "stdout.txt").read_text().splitlines()),
        [file.read_text().splitlines() for file in files],
    )


def tail(run_dir: Path) -> str:
    """Return the end of what a run wrote to stderr."""
    return (run_dir / "stderr.txt").read_text()[-2000:]


def _environment(tested: Installed, binaries: Path) -> dict[str, str]:
    if not tested.library:
        return tested.env
    folder = binaries / "abi"
    if not folder.exists():
        folder.mkdir()
        (folder / "libmpich.so.12").symlink_to(tested.library)
    beside = os.path.dirname(tested.library)
    return {"LD_LIBRARY_PATH": f"{folder}:{beside}:{beside}/mpich"}


def claimed(lines: list[str]) -> tuple[dict[str, tuple[int, int | None]], int]:
    """Return what a rank counted itself: op -> (events, bytes or None), and failed polls."""
    assert lines[0].startswith("counts ") and lines[1].startswith("polls ")
    counts = {}
    for word in lines[0].split()[1:]:
        op, _, numbers = word.partition("=")
        events, _, moved = numbers.partition("/")
        counts[op] = (int(events), None if moved == "-" else int(moved))
    return counts, int(lines[1].split()[1])


def check_sites(trace: RunTrace) -> None:
    """Assert that call sites are the program's: no frame of the tracer or the MPI library."""
    foreign = ("tracer-", "libmpi", "libfmpich", "libopen-", "mca_")
    for site in trace.sites:
        assert site.frames and not any(f.startswith(foreign) for f in site.frames), site


def captured(trace: RunTrace, rank: int) -> dict[str, tuple[int, int]]:
    """Return what the trace has of a rank's MPI calls: op -> (events, bytes)."""
    events: Counter[str] = Counter()
    moved: Counter[str] = Counter()
    for number in trace.ranks[rank].call.tolist():
        call = trace.calls[number]
        if call.op.startswith("MPI_"):  # its output goes into a file, too
            events[call.op] += 1
            moved[call.op] += call.bytes
    return {op: (events[op], moved[op]) for op in events}


def check_counts(run_dir: Path, seen: Seen, np: int) -> None:
    """Assert that the trace of a run holds exactly what its program counted."""
    trace = read_run(run_dir)
    assert trace.np == np and trace.problem == ""
    check_sites(trace)
    for rank in range(np):
        own, polls = claimed(seen.files[rank])
        found = captured(trace, rank)
        for op, (_, moved) in own.items():
            if moved is None and op in found:
                found[op] = (found[op][0], None)  # type: ignore[assignment]
        more, less = set(found.items()) - set(own.items()), set(own.items()) - set(found.items())
        assert not more and not less, f"rank {rank} captured {more}, but counted {less}"
        assert trace.ranks[rank].failed_polls == polls, f"rank {rank}"
