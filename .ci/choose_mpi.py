"""Choose the MPI that the demo and the tests use, and write it to a file for the shell.

Takes the machine's MPI when its compiler, its launcher and mpi4py work together with more ranks
than cores; otherwise installs MPICH from its wheel beside this Python. Run by the Makefile:

    .venv/bin/python .ci/choose_mpi.py .venv/mpi
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from p3s.base.host.mpi import MpiInstall, find_mpi

TIMEOUT_S = 60.0

#: Prints the size of the world and the library mpi4py has loaded.
#: One write of one string: the output of two ranks may mix between writes, not inside one.
QUESTION = (
    "import sys; from mpi4py import MPI; "
    "sys.stdout.write('p3s %d %s\\n' % "
    "(MPI.COMM_WORLD.size, MPI.Get_library_version().split()[0]))"
)

#: More ranks than cores, as root too; each MPI ignores the settings of the others.
SETTINGS = {
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "MPIR_CVAR_DEVICE_COLLECTIVES": "none",
    "MPIR_CVAR_ENABLE_HEAVY_YIELD": "1",
    "MPIR_CVAR_POLLS_BEFORE_YIELD": "10",
}
if os.geteuid() == 0:
    for launcher in ("OMPI", "PRTE"):
        SETTINGS[f"{launcher}_ALLOW_RUN_AS_ROOT"] = "1"
        SETTINGS[f"{launcher}_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1"


def environment() -> dict[str, str]:
    """Return the environment of a trial; unbuffered output would be written piece by piece."""
    env = {**os.environ, **SETTINGS}
    env.pop("PYTHONUNBUFFERED", None)
    return env


def output_of(command: list[str]) -> tuple[str | None, str]:
    """Return what a command prints, or None when it fails, and what it says on stderr."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=environment(),
            start_new_session=True,
        )
    except OSError as err:
        return None, f"{command[0]}: {err.strerror}"
    try:
        text, said = process.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return None, f"no end within {TIMEOUT_S:g} s"
    finally:
        # Its own session: whatever the launcher has started goes with it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return (text if process.returncode == 0 else None), said


def last_line(text: str) -> str:
    """Return the last line that holds a letter, at most 200 characters of it."""
    lines = [line.strip() for line in text.splitlines() if any(map(str.isalpha, line))]
    return lines[-1][:200] if lines else ""


def fault_of(mpi: MpiInstall) -> str | None:
    """Return why an MPI cannot be used, None when it can."""
    if not mpi.usable_oversubscribed:
        return mpi.why_not
    if mpi.mpiexec is None:
        return "no mpiexec beside its mpicc"
    said = ""
    for _attempt in range(2):  # a busy machine can spoil one start
        text, said = output_of([mpi.mpiexec, "-n", "2", sys.executable, "-c", QUESTION])
        answers = re.findall(r"p3s (\d+) (\S+)$", text or "", re.MULTILINE)
        if len(answers) == 2:
            break
    else:
        why = last_line(said)
        return "two mpi4py processes did not start" + (f" ({why})" if why else "")
    library = {"Open": "openmpi", "MPICH": "mpich"}
    if any(size != "2" or library.get(name) != mpi.family for size, name in answers):
        return "mpi4py loads another MPI"
    return None


def usable() -> MpiInstall | None:
    """Return the first MPI that can be used; says why others cannot."""
    for mpi in find_mpi():
        fault = fault_of(mpi)
        if fault is None:
            return mpi
        print(f"not using {mpi.family} {mpi.version} ({mpi.mpicc}): {fault}")
    return None


def install_wheel() -> None:
    """Install MPICH beside this Python; exits when that is not possible."""
    print("installing MPICH beside this Python")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "mpich"]
    for _attempt in range(3):
        if subprocess.run(command, check=False, timeout=600).returncode == 0:
            return
    sys.exit("no MPI: pip install mpich failed; install openmpi-bin and libopenmpi-dev by hand")


def write(mpi: MpiInstall, folder: Path) -> None:
    """Make mpicc and mpiexec in a folder of their own, for tools that look for these names."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    assert mpi.mpiexec is not None
    for name, target in (("mpicc", mpi.mpicc), ("mpiexec", mpi.mpiexec)):
        script = folder / name
        # A script, not a link: both tools find their parts by the name they are called by.
        script.write_text(f'#!/bin/sh\nexec {shlex.quote(os.path.abspath(target))} "$@"\n')
        script.chmod(0o755)
    (folder / "choice").write_text(f"{mpi.family} {mpi.version} {mpi.mpicc}\n")


def main() -> None:
    """Choose and write."""
    folder = Path(sys.argv[1]).absolute()
    # what an earlier choice made would call itself
    places = os.environ.get("PATH", "").split(os.pathsep)
    os.environ["PATH"] = os.pathsep.join(
        place for place in places if Path(place).absolute() != folder
    )
    mpi = usable()
    if mpi is None:
        install_wheel()
        mpi = usable()
    if mpi is None:
        sys.exit("no usable MPI found; .venv/bin/p3s doctor says what is missing")
    write(mpi, folder)
    print(f"using {mpi.family} {mpi.version} ({mpi.mpicc})")


if __name__ == "__main__":
    main()
