"""A bug report: what this machine and this P3S are, without what tells who and where."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from p3s.base.host import compiling, mpi
from p3s.base.host.cores import cores, quota
from p3s.base.host.private import hider
from p3s.base.text import one_line, size_text
from p3s.base.version import __version__
from p3s.signature_runner.trials import Check

#: Variables whose values tell how MPI and threads run here, and nothing else.
COPIED = (
    *("OMP_NUM_THREADS", "OMP_PROC_BIND", "OMP_PLACES", "OMP_SCHEDULE", "OPENBLAS_NUM_THREADS"),
    *("MKL_NUM_THREADS", "MPI4PY_MPIABI", "MPI4PY_RC_THREAD_LEVEL", "SLURM_MPI_TYPE"),
    *("SLURM_JOB_NUM_NODES", "SLURM_NTASKS", "SLURM_CPUS_ON_NODE", "SLURM_CPUS_PER_TASK"),
    *("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"),
    *("OMPI_MCA_rmaps_base_oversubscribe", "OMPI_MCA_mpi_yield_when_idle", "OMPI_MCA_pml"),
    *("OMPI_MCA_btl", "OMPI_MCA_mtl", "OMPI_MCA_coll", "PRTE_MCA_rmaps_default_mapping_policy"),
    *("MPIR_CVAR_DEVICE_COLLECTIVES", "MPIR_CVAR_ENABLE_HEAVY_YIELD", "UCX_TLS", "FI_PROVIDER"),
    *("MPIR_CVAR_POLLS_BEFORE_YIELD", "MPIR_CVAR_NOLOCAL", "MPICH_ASYNC_PROGRESS"),
    *("LD_PRELOAD", "CC", "LANG", "LC_ALL", "PYTHONSAFEPATH", "PYTHONNOUSERSITE", "NO_COLOR"),
    *("P3S_DEBUG", "P3S_REPLAY_MPI"),
)
#: Of other variables of these families only the names are told.
_NAMED = re.compile(
    r"(OMPI_|PRTE_|PMIX_|PMI_|MPIR_|MPICH_|I_MPI_|UCX_|FI_|PSM|OMP_|GOMP_|KMP_|LD_|P3S_|"
    r"XDG_C|TMPDIR$|PYTHON|VIRTUAL_ENV$|CONDA_|SLURM_|PBS_|LSB_|LOADEDMODULES$|EBROOT|SPACK_)"
)
_LEFT_OUT = (
    "names of users and hosts, e-mail and network addresses; paths, but for those that all "
    "machines have and for names of tools; values of environment variables that are not listed; "
    "input and output of your programs. Names that this report cannot know, such as that of a "
    "program behind --, may be left: read it before you send it."
)
_WHERE = (
    "as an issue on the site that you have P3S from (CONTRIBUTING.md, Reporting a bug). What could "
    "harm others goes to the maintainers alone (docs/security.md, Reporting)."
)
_TO_FILL = (
    "Command and what it printed, under P3S_DEBUG=1 (P3S keeps no errors of earlier commands):",
    "",
    "What you expected:",
    "",
)
_EXTRA = re.compile(r"extra\s*==\s*['\"](\w+)['\"]")
_NOT_TO_RUN = ("dev", "docs")


@dataclass(frozen=True)
class Section:
    """A part of the report: rows of a name and what there is to say about it."""

    title: str
    rows: tuple[tuple[str, str], ...]


def bug_report(look: Callable[[], Sequence[Check]]) -> str:
    """Return the report; ``look`` returns the checks of p3s doctor, and may fail."""
    hide = hider()
    sections = [
        Section("Versions", tuple(_versions())),
        Section("Machine", tuple(_machine())),
        Section("Checks", tuple(_checked(look))),
        Section("Packages", tuple(_packages())),
        Section("Environment", tuple(_environment(os.environ))),
    ]
    parts = ["P3S bug report", "==============", "", *_TO_FILL]
    for section in sections:
        width = max((len(name) for name, _ in section.rows), default=0)
        lines = [
            f"{name:{width}}  {hide(one_line(words))}".rstrip() for name, words in section.rows
        ]
        parts += [section.title, "-" * len(section.title), *lines, ""]
    return "\n".join([*parts, f"Left out: {_LEFT_OUT}", f"Send it: {_WHERE}"]) + "\n"


def _versions() -> Iterator[tuple[str, str]]:
    yield "p3s", __version__
    yield "python", f"{platform.python_version()} ({platform.python_implementation()})"
    yield "libc", " ".join(platform.libc_ver()).strip() or "not known"
    compiler = shutil.which("cc") or shutil.which("gcc")
    said = mpi.ask([compiler, "--version"], timeout_s=5.0) if compiler else None
    yield "compiler", said.partition("\n")[0] if said else "none that answers"
    came = ", ".join(f"{each.family} {each.version}" for each in compiling.libraries())
    yield "prebuilt", f"C for {came} came with P3S" if came else "no compiled C came with P3S"


def _machine() -> Iterator[tuple[str, str]]:
    yield "system", _field(Path("/etc/os-release"), "PRETTY_NAME", "=").strip('"') or "not known"
    yield "kernel", f"{platform.system()} {platform.release()} {platform.machine()}"
    yield "processor", _field(Path("/proc/cpuinfo"), "model name", ":") or "not known"
    granted = quota()
    limit = "" if granted is None else f", a quota of {granted:g}"
    yield "cores", f"{cores()} usable of {os.cpu_count()}{limit}"
    memory = _field(Path("/proc/meminfo"), "MemTotal", ":").removesuffix(" kB")
    yield "memory", size_text(1024.0 * int(memory)) if memory.isdecimal() else "not known"
    starters = ("srun", "qsub", "bsub", "flux", "aprun", "jsrun")
    yield "batch system", ", ".join(filter(shutil.which, starters)) or "none on PATH"


def _field(path: Path, name: str, mark: str) -> str:
    """Return the value behind a name in a file of lines, empty where there is none."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    for line in lines:
        key, _, value = line.partition(mark)
        if key.strip() == name:
            return value.strip()
    return ""


def _checked(look: Callable[[], Sequence[Check]]) -> Iterator[tuple[str, str]]:
    try:
        found = look()
    except Exception as error:  # what is to be reported may be just that
        yield "doctor", f"failed: {type(error).__name__}: {str(error)[:500]}"
        return
    for check in found:
        yield f"{check.status.upper():4} {check.name}", check.detail


def _packages() -> Iterator[tuple[str, str]]:
    """Yield what P3S needs, and what its options need, with the versions that are installed."""
    try:
        needed = importlib.metadata.requires("p3s") or []
    except importlib.metadata.PackageNotFoundError:
        yield "p3s", "is not installed, it runs from its files"
        return
    for name in dict.fromkeys(_to_run(needed)):
        try:
            yield name, importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            yield name, "not installed"


def _to_run(needed: Iterable[str]) -> Iterator[str]:
    """Yield the names of what P3S runs with, also with its options."""
    for text in needed:
        name, extra = re.match(r"[\w.-]+", text), _EXTRA.search(text)
        if name and not (extra and extra[1] in _NOT_TO_RUN):
            yield name[0]


def _environment(env: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield variables that change how MPI runs: values of those known to be harmless alone."""
    for name in sorted(env):
        if name in COPIED:
            yield name, env[name] or "empty"
        elif _NAMED.match(name):
            yield name, "set; its value is left out"
    yield "started in", "a virtual environment" if sys.prefix != sys.base_prefix else "no venv"
