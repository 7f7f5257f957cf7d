"""A bug report: what this machine and this P3S are, without what tells who and where."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import pwd
import re
import shutil
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from p3s.base.errors import P3SError
from p3s.base.host import compiling, mpi
from p3s.base.host.cores import cores, quota
from p3s.base.host.hosts import expand_hosts
from p3s.base.text import one_line, size_text
from p3s.base.version import __version__
from p3s.signature_runner.examine import Check

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
        Section("Checks", tuple(_run_checks(look))),
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
    banner = mpi.ask([compiler, "--version"], timeout_s=5.0) if compiler else None
    yield "compiler", banner.partition("\n")[0] if banner else "none that answers"
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


def _run_checks(look: Callable[[], Sequence[Check]]) -> Iterator[tuple[str, str]]:
    try:
        checks = look()
    except Exception as error:  # what is to be reported may be just that
        yield "doctor", f"failed: {type(error).__name__}: {str(error)[:500]}"
        return
    for check in checks:
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


# ---- text without what tells who and where: users and hosts, private paths, secrets
HIDDEN_PATH, HIDDEN_USER, HIDDEN_HOST, HIDDEN_SECRET = "[path]", "[user]", "[host]", "[secret]"
HIDDEN_ADDRESS = "[address]"

#: Folders that are alike on all machines; paths elsewhere tell of people and projects.
_COMMON = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/dev", "/proc", "/sys")
#: Names of files in such folders are those of tools.
_TOOLS = ("bin", "sbin", "lib", "lib64")
_PATH = re.compile(r"(?<![\w.\]-])(?:~\w*|\[path\])?/[^\s:;,'\"()<>=]*|\[path\]")
_MAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)*")
_NUMBERS = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.])")
_HEXADECIMAL = re.compile(r"(?<![\w:])(?:[0-9a-fA-F]{0,4}:){3,7}[0-9a-fA-F]{1,4}(?![\w:])")
_SECRET = re.compile(r"TOKEN|SECRET|PASS|KEY|CREDENTIAL|AUTH|COOKIE")
_SECRET_FROM = 6  # shorter values are words such as "yes"
_NO_USERS = ("", "root")
_NO_HOSTS = ("", "localhost")
_HOSTS = ("HOSTNAME", "HOST", "SLURMD_NODENAME", "SLURM_SUBMIT_HOST", "PBS_O_HOST", "LSB_SUB_HOST")
_HOST_LISTS = ("SLURM_JOB_NODELIST", "SLURM_NODELIST")
_CLUSTERS = ("SLURM_CLUSTER_NAME", "SLURM_JOB_ACCOUNT", "SLURM_CLUSTERS")


def hider(environment: Mapping[str, str] | None = None) -> Callable[[str], str]:
    """Return a function that hides in a text what tells who and where, or is secret.

    Names are those of this process's user, of this host and of the job's nodes; paths are hidden
    but for those that all machines have, and for the names of tools; so are addresses of mail and
    network, and the values of variables that are named as secrets are. ``root`` is no name.
    """
    env = os.environ if environment is None else environment
    patterns = [
        *((_words(name, any_case=True), HIDDEN_USER) for name in _users(env)),
        *((_words(name, r"(?:\.[\w-]+)*"), HIDDEN_HOST) for name in _hosts(env)),
    ]
    literal = [(value, HIDDEN_SECRET) for value in _secrets(env)]
    literal += [(home, HIDDEN_PATH) for home in _homes(env)]

    def hide(text: str) -> str:
        for value, label in literal:
            text = text.replace(value, label)
        text = _MAIL.sub(HIDDEN_ADDRESS, _PATH.sub(_without_place, text))
        for pattern, label in patterns:
            text = pattern.sub(label, text)
        return _HEXADECIMAL.sub(HIDDEN_ADDRESS, _NUMBERS.sub(HIDDEN_ADDRESS, text))

    return hide


def _without_place(match: re.Match[str]) -> str:
    """Return a path without where it is, unless all machines have that place."""
    path = match[0]
    plain = os.path.normpath(path)
    if any(plain == folder or plain.startswith(f"{folder}/") for folder in _COMMON):
        return path
    folder, name = os.path.split(plain)
    if name and os.path.basename(folder) in _TOOLS:
        return f"{HIDDEN_PATH}/{os.path.basename(folder)}/{name}"
    return HIDDEN_PATH if plain != "/" else path


def _words(name: str, behind: str = "", *, any_case: bool = False) -> re.Pattern[str]:
    flags = re.IGNORECASE if any_case else re.NOFLAG
    return re.compile(rf"(?<![A-Za-z0-9]){re.escape(name)}{behind}(?![A-Za-z0-9])", flags)


def _longest_first(values: Iterable[str], but: tuple[str, ...] = ("",)) -> list[str]:
    return sorted({each for each in values if each not in but}, key=lambda each: (-len(each), each))


def _users(env: Mapping[str, str]) -> list[str]:
    """Return the names of the user: of the account, and the person's."""
    names = [env.get("USER", ""), env.get("LOGNAME", "")]
    with suppress(KeyError):  # a number without an entry, as in containers
        entry = pwd.getpwuid(os.getuid())
        names += [entry.pw_name, entry.pw_gecos.partition(",")[0]]
    return _longest_first(names, _NO_USERS)


def _hosts(env: Mapping[str, str]) -> list[str]:
    """Return the names of this host, of its cluster and of the nodes of its job."""
    full = [socket.gethostname(), os.uname().nodename, *(env.get(name, "") for name in _HOSTS)]
    for name in _HOST_LISTS:
        with suppress(P3SError):
            full += expand_hosts(env[name]) if env.get(name) else []
    short = [name.partition(".")[0] for name in full]
    return _longest_first([*full, *short, *(env.get(name, "") for name in _CLUSTERS)], _NO_HOSTS)


def _secrets(env: Mapping[str, str]) -> list[str]:
    named = (value for name, value in env.items() if _SECRET.search(name.upper()))
    return _longest_first(value for value in named if len(value) >= _SECRET_FROM)


def _homes(env: Mapping[str, str]) -> list[str]:
    homes = [home for home in (env.get("HOME", ""), os.path.expanduser("~")) if home]
    folders = [each for home in homes for each in (home.rstrip("/"), os.path.realpath(home))]
    return _longest_first(folders, ("", "/", "."))
