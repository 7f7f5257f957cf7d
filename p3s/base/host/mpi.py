"""The MPI installations of this machine, and which of them a program uses."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

OPENMPI = "openmpi"
MPICH = "mpich"
SLURM = "slurm"

_QUESTION = """#include <mpi.h>
#ifdef OPEN_MPI
p3s_is openmpi OMPI_MAJOR_VERSION.OMPI_MINOR_VERSION.OMPI_RELEASE_VERSION
#elif defined(MPICH_VERSION)
p3s_is mpich MPICH_VERSION
#endif
"""
_ANSWER = re.compile(r"^p3s_is\s+(openmpi|mpich)\s+(.*)$", re.MULTILINE)
_LIBRARY = re.compile(r"lib(?:mpi|mpich)\.so\.(?P<number>\d+)\s*(?:=>\s*(?P<path>/\S+))?")


@dataclass(frozen=True)
class MpiInstall:
    """One MPI: compiler wrapper, launcher, and whether more ranks than cores can be run."""

    family: str
    version: str
    mpicc: str
    mpiexec: str | None
    usable_oversubscribed: bool
    why_not: str


def ask(argv: list[str], timeout_s: float = 20.0) -> str | None:
    """Return what a short command prints (stdout then stderr), or None if it cannot run."""
    try:
        process = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
            start_new_session=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return process.stdout + process.stderr if process.returncode == 0 else None


def preprocess(mpicc: str, text: str) -> str | None:
    """Return C text after the preprocessor of a compiler wrapper, or None if that fails."""
    # Open MPI's wrapper adds its flags only when it sees the name of a source file.
    with tempfile.TemporaryDirectory(prefix="p3s-") as folder:
        source = Path(folder, "question.c")
        source.write_text(text)
        return ask([mpicc, "-E", "-P", str(source)])


@functools.cache
def describe(mpicc: str) -> MpiInstall | None:
    """Return what a compiler wrapper belongs to, or None if it cannot compile MPI programs."""
    match = _ANSWER.search(preprocess(mpicc, _QUESTION) or "")
    if match is None:
        return None
    family, version = match[1], match[2].replace('"', "").replace(" ", "")
    why_not = why_not_oversubscribed(family, version)
    return MpiInstall(family, version, mpicc, _launcher_of(mpicc, family), not why_not, why_not)


def why_not_oversubscribed(family: str, version: str) -> str:
    """Return why more ranks than cores should not be run with an MPI, empty if they can be."""
    if family == MPICH and re.match(r"[1-3]\.|4\.0(\.|$|[a-z])", version):
        return (
            f"MPICH {version} waits without yielding: with more ranks than cores runs take 10 to"
            " 50 times longer; use Open MPI or `pip install mpich`"
        )
    return ""


def _launcher_of(mpicc: str, family: str) -> str | None:
    folder, name = os.path.split(mpicc)
    suffix = name.partition(".")[2]
    names = [f"mpiexec.{suffix}", f"mpirun.{suffix}"] if suffix else []
    names += ["mpiexec", "mpirun", f"mpiexec.{family}", "mpiexec.hydra"]
    for candidate in names:
        path = os.path.join(folder, candidate)
        if os.access(path, os.X_OK) and launcher_family(path) == family:
            return path
    return None


def named_family(name: str) -> str | None:
    """Return openmpi, mpich or slurm where the name of a launcher says it, else None."""
    if name == "srun":
        return SLURM
    if ".openmpi" in name or name in ("orterun", "prterun", "prun"):
        return OPENMPI
    return MPICH if ".mpich" in name or ".hydra" in name else None


def launch_defaults(shared: bool) -> dict[str, str]:
    """Return variables that let a launcher start ranks, as root too; ``shared``: more than cores.

    What the user has set comes before them.
    """
    variables = {}
    if shared:
        variables["OMPI_MCA_rmaps_base_oversubscribe"] = "1"
        variables["PRTE_MCA_rmaps_default_mapping_policy"] = ":oversubscribe"
    if os.getuid() == 0:
        for prefix in ("OMPI", "PRTE"):
            variables[f"{prefix}_ALLOW_RUN_AS_ROOT"] = "1"
            variables[f"{prefix}_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1"
    return variables


@functools.cache
def launcher_family(launcher: str) -> str | None:
    """Return openmpi, mpich or slurm for a launcher that says so, else None."""
    if named := named_family(os.path.basename(launcher)):
        return named
    text = (ask([launcher, "--version"]) or "").lower()
    if "open mpi" in text or "openrte" in text or "prrte" in text:
        return OPENMPI
    if "hydra" in text or "mpich" in text:
        return MPICH
    return None


def _find_programs(names: Sequence[str], near: Sequence[str] = ()) -> list[str]:
    """Return the programs of some names beside this Python, on PATH and in the folders ``near``."""
    beside = str(Path(sys.executable).parent)
    folders = [beside, *os.environ.get("PATH", "").split(os.pathsep), *near]
    paths = [os.path.join(folder, name) for folder in folders if folder for name in names]
    return [path for path in dict.fromkeys(paths) if os.access(path, os.X_OK)]


def find_mpi(near: Sequence[str] = ()) -> list[MpiInstall]:
    """Return the MPI installations beside this Python, on PATH and in the folders ``near``.

    Those usable everywhere come first. Errors: none; an MPI whose compiler wrapper does not work is
    left out.
    """
    return list(_find(tuple(_find_programs(("mpicc", "mpicc.openmpi", "mpicc.mpich"), near))))


@functools.cache
def _find(compilers: tuple[str, ...]) -> tuple[MpiInstall, ...]:
    installs: dict[str, MpiInstall] = {}
    for mpicc in compilers:
        flags = ask([mpicc, "-show"])
        if flags is None or flags in installs:
            continue
        install = describe(mpicc)
        if install is not None:
            installs[flags] = install
    order = sorted(
        installs.values(), key=lambda m: (m.mpiexec is None, not m.usable_oversubscribed)
    )
    return tuple(order)


def list_libraries(program: str) -> str:
    """Return what ldd says of a program, empty if it is not dynamically linked."""
    return ask(["ldd", program]) or ""


def library_of(program: str) -> tuple[str, str] | None:
    """Return (family, path of libmpi) of a dynamically linked program, or None."""
    for match in _LIBRARY.finditer(list_libraries(program)):
        return _family_of_number(match["number"]), match["path"] or ""
    return None


def _family_of_number(number: str) -> str:
    # Open MPI's libmpi.so began at 40 with version 4; those of MPICH's ABI are at 12.
    return OPENMPI if int(number) >= 40 else MPICH


def family_of_library(path: str) -> str | None:
    """Return the family of a libmpi by its name, None for another file."""
    match = _LIBRARY.search(os.path.basename(path))
    return _family_of_number(match["number"]) if match else None


# Loads mpi4py's MPI library but does not start MPI: under a launcher that would be an MPI_Init.
# What lies in the current directory is not imported: it need not be the user's.
_MPI4PY = """import sys
sys.path = [folder for folder in sys.path if folder]
import mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI
print(open('/proc/self/maps').read())
"""


@functools.cache
def library_of_python(program: str) -> tuple[str, str] | None:
    """Return (family, path of libmpi) that mpi4py loads in a Python interpreter, or None."""
    if not os.path.basename(program).startswith("python"):
        return None
    text = ask([program, "-c", _MPI4PY]) or ""
    matches = re.findall(r"(/\S*/lib(?:mpi|mpich)\.so\.(\d+)\S*)\s*$", text, re.MULTILINE)
    if not matches:
        return None
    path, number = matches[0]
    return _family_of_number(number), path


def loaded_library() -> str | None:
    """Return the path of the libmpi that this process has loaded, None without one."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as file:
        match = re.search(r"(/\S*/lib(?:mpi|mpich)\.so\.\d+\S*)$", file.read(), re.MULTILINE)
    return match[1] if match else None


def owner_of(library: str) -> MpiInstall | None:
    """Return the installation a libmpi belongs to: of its family and, if there is one, place."""
    family = family_of_library(library)
    prefix = Path(os.path.realpath(library)).parents
    fitting = [install for install in find_mpi() if install.family == family and install.mpiexec]

    def near(install: MpiInstall) -> tuple[bool, bool]:
        own = Path(install.mpicc).parent.parent
        return own in prefix and own != Path("/"), install.usable_oversubscribed

    return max(fitting, key=near) if fitting else None


def own_launcher(library: str) -> str:
    """Return the launcher of the MPI that a library is of, in words where none is found."""
    install = owner_of(library) if library else None
    return str((install and install.mpiexec) or "the mpiexec of its own MPI")


def remedy_for(library: str, family: str) -> str:
    """Return what to do when mpi4py loads a library that is not of the launcher's family."""
    return f"start it with {own_launcher(library)}, or set MPI4PY_MPIABI={family}"


def is_static(program: str) -> bool:
    """Tell whether a program without a shared MPI library has MPI in itself."""
    try:
        with open(program, "rb") as file:
            return file.read(4) == b"\x7fELF" and b"PMPI_Init" in file.read()
    except OSError:
        return False


def family_of_srun(words: Sequence[str]) -> str | None:
    """Return the MPI that an srun command prepares for: pmi2 is MPICH's way, pmix Open MPI's."""
    text = " ".join(words)
    option = re.search(r"--mpi[= ](\w+)", text)
    kind = option[1] if option else os.environ.get("SLURM_MPI_TYPE", "")
    if kind.startswith("pmix"):
        return OPENMPI
    return MPICH if kind in ("pmi2", "cray_shasta") else None


def _identify_mpi(
    program: str | None, launcher: str | None, likely: str | None
) -> tuple[str | None, str, str | None]:
    """Return the family of a program's MPI, its libmpi if known, and the path of its launcher."""
    library = library_of(program) if program else None
    launcher_path = shutil.which(launcher) or launcher if launcher else None
    family = library[0] if library else None
    if family is None and launcher_path:
        family = launcher_family(launcher_path)
    if family not in (OPENMPI, MPICH):
        library = library_of_python(program) if program else None
        family = library[0] if library else likely
    return family, library[1] if library else "", launcher_path


def libmpi_for(program: str | None, launcher: str | None, likely: str | None = None) -> str | None:
    """Return the libmpi of a program started by a launcher, None where none is found.

    The program is linked to it, or its mpi4py loads it, or else it lies beside the launcher.
    """
    family, library, launcher_path = _identify_mpi(program, launcher, likely)
    python = library_of_python(program) if program and not library else None
    if python and family in (python[0], None):
        library = python[1]
    if library or launcher_path is None:
        return library or None
    names = {OPENMPI: ("libmpi.so.40",), MPICH: ("libmpi.so.12", "libmpich.so.12")}
    multiarch = str(sysconfig.get_config_var("MULTIARCH") or "")
    for place in dict.fromkeys((launcher_path, os.path.realpath(launcher_path))):
        for folder in ("lib64", "lib", f"lib/{multiarch}"):
            for name in names.get(family or "", ()):
                path = Path(place).parent.parent / folder / name
                if path.is_file():
                    return str(path)
    return None


def launchers() -> list[str]:
    """Return the launchers of MPIs beside this Python and on PATH."""
    return _find_programs(("mpiexec", "mpiexec.openmpi", "mpiexec.mpich"))


def mpi_for(
    program: str | None, launcher: str | None, likely: str | None = None
) -> MpiInstall | None:
    """Return the installation whose tracer fits a program started by a launcher.

    A linked libmpi decides; a program without one (Python, a script) follows its launcher; where
    that is not of one MPI (srun, one that P3S does not know) Python says what mpi4py loads, and
    a script follows ``likely``, a family, if it is given.
    """
    family, library, launcher_path = _identify_mpi(program, launcher, likely)
    folder = os.path.dirname(launcher_path or "")
    prefix = str(Path(library).parent.parent) if library else ""

    # An MPI need not be on PATH to be used: its compiler is beside its launcher and its library.
    installs = find_mpi([path for path in (folder, prefix and f"{prefix}/bin") if path])

    def closeness(install: MpiInstall) -> tuple[int, int, int]:
        install_prefix = str(Path(install.mpicc).parent.parent)
        return (
            int(family is not None and install.family == family),
            int(bool(prefix) and install_prefix == prefix),
            int(os.path.dirname(install.mpicc) == folder),
        )

    fitting = [m for m in installs if family not in (OPENMPI, MPICH) or m.family == family]
    return max(fitting, key=closeness) if fitting else None
