"""Tests P3S with several versions of Python and of what it needs, and with several MPIs.

    python3 .ci/matrix.py                                  every row, a quick part of the tests
    python3 .ci/matrix.py --python 3.12 --needs lowest     one row
    python3 .ci/matrix.py --python /opt/python3.13/bin/python3
    python3 .ci/matrix.py --all                            all tests that start no MPI
    python3 .ci/matrix.py --mpi                            the MPIs of this machine

``lowest``: the oldest version of everything that pyproject.toml allows and that has a wheel for
that Python; ``numpy1``: the newest with numpy 1, which pyarrow knows up to version 25 and Python
up to 3.12; ``newest``: the newest of everything. Each row has a virtual environment of its own
outside of this directory (--into, kept and used again). Pythons are looked for on PATH and in
pyenv's folder; one that this machine lacks is said and left out. --mpi needs `make` to have been
run; P3S_TEST_OPENMPI5 and P3S_TEST_MPICH5 may name virtual environments with these wheels, see
tests/helpers/conformance.py. Prints a table; exit code 1 where a row failed.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = ("3.11", "3.12", "3.13")
NEEDS = {"lowest": ("--resolution", "lowest-direct"), "numpy1": (), "newest": ()}
#: Rows that cannot be.
NO_WHEEL = {("3.13", "numpy1"): "numpy 1 has no wheel for Python 3.13"}
#: otf2 has no wheel.
EXTRAS = ("baseline", "placement", "frames")
#: What runs the tests is the newest in every row.
TESTERS = ("pytest>=8,<10", "pytest-xdist>=3.5,<4", "hypothesis>=6.90,<7", "setuptools>=77")
#: Tests that reach every library that P3S uses (mpi4py: --mpi), in some two minutes of a core.
QUICK = (
    *("tests/unit/test_api.py", "tests/unit/test_baseline.py", "tests/unit/test_export_runs.py"),
    *("tests/unit/test_fold.py", "tests/unit/test_lawfinder.py", "tests/unit/test_latex.py"),
    *("tests/unit/test_serialise.py", "tests/unit/test_study.py"),
    *("tests/unit/test_symbolic.py", "tests/unit/test_tables.py", "tests/unit/test_trees_grow.py"),
    *("tests/unit/test_trace_reader.py", "tests/unit/test_source.py", "tests/unit/test_times.py"),
    *("tests/unit/test_simulated_cluster.py", "tests/unit/test_placement_search.py"),
    "tests/unit/test_saved_prediction.py",
    *("tests/cli/test_cli.py", "tests/cli/test_commands.py", "tests/cli/test_compatibility.py"),
    *("tests/cli/test_renderers.py", "tests/cli/test_export.py"),
)
#: What of them takes long and asks nothing of the libraries: hundreds of mutations, another reader.
LONG = "damaged_model or addr2line"
#: What the tracer must do with every MPI, on two ranks: record messages, completions and
#: communicators, from C, both kinds of Fortran and Python; see tests/mpi/test_conformance.py.
CONFORMS = "blocking", "waits", "comms", "persistent", "mpif-p2p", "f08-collectives", "py-buffers"
_LIMIT_S = 3600
#: Prints the MPIs that tests know, and what their launchers say that they are.
_LAUNCHERS = """
import re, subprocess, sys
sys.path[:0] = ["tests/helpers", "."]
import conformance
for name, mpi in conformance.mpis().items():
    said = subprocess.run([mpi.mpiexec, "--version"], capture_output=True, text=True, timeout=60)
    version = re.search(r"(?:Version:|MPI\\)|OpenRTE\\)|PRRTE\\))\\s*(\\S+)", said.stdout)
    print(name, version[1] if version else "", sep="\\t")
"""
_VERSION = "import sys; print('%d.%d' % sys.version_info[:2])"


@dataclass(frozen=True)
class Row:
    """What one environment showed: versions, and the last line of its tests."""

    python: str
    needs: str
    versions: str
    said: str
    good: bool
    seconds: float = 0.0


def main() -> int:
    """Run the rows; return the exit code."""
    given = options()
    rows: list[Row] = []
    if given.mpi:
        return int(not mpis())
    uv = uv_of(given.into)
    for version in given.python or PYTHONS:
        python = interpreter(version)
        if python is None:
            print(f"Python {version} is not on this machine: left out")
            continue
        version = _says([python, "-c", _VERSION])
        for needs in given.needs or NEEDS:
            if (version, needs) in NO_WHEEL:
                print(f"{version} {needs}: left out, {NO_WHEEL[version, needs]}")
                continue
            begin = time.monotonic()
            row = tried(uv, python, version, needs, given)
            rows.append(Row(**{**row.__dict__, "seconds": time.monotonic() - begin}))
            print(f"{version} {needs}: {row.said}", flush=True)
    print("\n| Python | needs | numpy, scipy, pyarrow, cattrs | tests |\n|---|---|---|---|")
    for row in rows:
        print(f"| {row.python} | {row.needs} | {row.versions} | {row.said} |")
    return int(not all(row.good for row in rows))


def interpreter(version: str) -> str | None:
    """Return a Python, of which its path or version is given: on PATH, or of pyenv."""
    if "/" in version:
        return version if _says([version, "-c", _VERSION]) else None
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    places = sorted(root.glob(f"{version}.*/bin/python3"))
    for candidate in (shutil.which(f"python{version}"), *map(str, reversed(places))):
        if candidate and _says([candidate, "-c", _VERSION]) == version:
            return candidate
    return None


def _says(command: Sequence[str], env: dict[str, str] | None = None) -> str:
    try:
        ran = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=60)
    except OSError:
        return ""
    return ran.stdout.strip() if ran.returncode == 0 else ""


def uv_of(into: Path) -> str:
    """Return uv, installed into an environment of its own where there is none."""
    found = shutil.which("uv")
    if found:
        return found
    place = into / "uv"
    if not (place / "bin" / "uv").exists():
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True, timeout=120)
        pip = [str(place / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, "--disable-pip-version-check", "uv"], check=True, timeout=300)
    return str(place / "bin" / "uv")


def tried(uv: str, python: str, version: str, needs: str, given: argparse.Namespace) -> Row:
    """Make an environment, install P3S into it and run its tests."""
    place = given.into / f"{version}-{needs}"
    own = place / "bin" / "python"
    env = {**os.environ, "VIRTUAL_ENV": str(place), "PATH": f"{place / 'bin'}:{os.environ['PATH']}"}
    env.pop("PYTHONPATH", None)
    pins = given.into / f"{version}-{needs}.txt"
    try:
        if not own.exists():
            run([uv, "venv", "--quiet", "--python", python, str(place)], env)
        run([*_compile(uv, version, needs), "-o", str(pins)], env)
        run([uv, "pip", "sync", "--quiet", "--python", str(own), str(pins)], env)
        # What runs the tests must not change what is tested.
        known = ["--constraint", str(pins)]
        run([uv, "pip", "install", "--quiet", "--python", str(own), *known, *TESTERS], env)
        run([uv, "pip", "install", "--quiet", "--python", str(own), "--no-deps", str(ROOT)], env)
    except Failed as error:
        return Row(version, needs, "", f"not installed: {error}", False)
    return Row(version, needs, versions(own), *tested(own, env, given))


class Failed(Exception):
    """A command failed; its last line."""


def run(command: Sequence[str], env: dict[str, str]) -> None:
    """Run a command of the set-up. Raises Failed."""
    ran = subprocess.run(
        command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=_LIMIT_S, check=False
    )
    if ran.returncode:
        lines = [line.strip() for line in ran.stderr.splitlines() if line.strip()]
        raise Failed(" ".join(lines[-4:])[:300])


def _compile(uv: str, version: str, needs: str) -> list[str]:
    command = [uv, "pip", "compile", "--quiet", "--no-header", "--python-version", version]
    command += [word for extra in EXTRAS for word in ("--extra", extra)]
    # A source that must be compiled tells nothing of P3S.
    command += ["--only-binary", ":all:", *NEEDS[needs], "--upgrade", "pyproject.toml"]
    if needs == "numpy1":
        limit = Path(tempfile.gettempdir()) / "p3s-numpy1.txt"
        limit.write_text("numpy<2\npyarrow<26\n")
        command += ["--constraint", str(limit)]
    return command


def versions(python: Path) -> str:
    """Return the versions of what matters most."""
    code = (
        "from importlib.metadata import version;"
        "print(', '.join(map(version, ('numpy', 'scipy', 'pyarrow', 'cattrs'))))"
    )
    return _says([str(python), "-c", code])


def tested(python: Path, env: dict[str, str], given: argparse.Namespace) -> tuple[str, bool]:
    """Run the tests; return pytest's last line and whether they passed."""
    paths = ["tests/unit", "tests/cli"] if given.all else [*QUICK, "-k", f"not ({LONG})"]
    command = [str(python), "-m", "pytest", "-q", "-n", str(given.workers), "--no-header"]
    command += ["-p", "no:cacheprovider", "-m", "not slow and not mpi", *paths]
    try:
        ran = subprocess.run(
            command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=_LIMIT_S
        )
    except subprocess.TimeoutExpired:
        return f"not done after {_LIMIT_S} s", False
    lines = ran.stdout.strip().splitlines() or [ran.stderr.strip()[-200:]]
    if ran.returncode:
        print("\n".join(line for line in lines if re.match("(FAILED|ERROR)", line))[:4000])
    return lines[-1].strip("= "), ran.returncode == 0


def mpis() -> bool:
    """Run the smoke test with every MPI that is found; return whether all passed."""
    own = ROOT / ".venv"
    env = {**os.environ, "PATH": f"{own / 'mpi'}:{own / 'bin'}:{os.environ['PATH']}"}
    python = str(own / "bin" / "python") if own.exists() else sys.executable
    command = [python, "-m", "pytest", "-v", "-rN", "--no-header"]
    command += [str(ROOT / "tests" / "mpi" / "test_conformance.py")]
    command += ["-k", " or ".join(f"{program}-2]" for program in CONFORMS)]
    try:
        ran = subprocess.run(
            command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=_LIMIT_S
        )
    except subprocess.TimeoutExpired:
        print(f"not done after {_LIMIT_S} s")
        return False
    found: dict[str, list[str]] = {}
    for line in ran.stdout.splitlines():
        if match := re.match(r"\S+::\S+\[(.+?)\] (PASSED|FAILED|SKIPPED|ERROR)", line):
            name = re.match(r"chosen|mpich4-on-wheel|[a-z]+\d", match[1])
            found.setdefault(name[0] if name else match[1], []).append(match[2])
    launchers = dict(
        line.split("\t") for line in _says([python, "-c", _LAUNCHERS], env).splitlines()
    )
    print("| MPI | launcher | passed | failed | skipped |\n|---|---|---|---|---|")
    for name, ends in sorted(found.items()):
        counts = [ends.count("PASSED"), ends.count("FAILED") + ends.count("ERROR")]
        cells = (launchers.get(name, ""), *map(str, counts), str(ends.count("SKIPPED")))
        print(f"| {name} | " + " | ".join(cells) + " |")
    if ran.returncode or not found:
        print(ran.stdout[-2000:], ran.stderr[-2000:])
    return ran.returncode == 0 and bool(found)


def options() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", action="append", help="a version, such as 3.12, or a path")
    parser.add_argument("--needs", action="append", choices=NEEDS)
    parser.add_argument("--all", action="store_true", help="all tests that start no MPI")
    parser.add_argument("--mpi", action="store_true", help="the MPIs of this machine instead")
    parser.add_argument("--workers", type=int, default=2)
    place = Path(tempfile.gettempdir()) / f"p3s-matrix-{os.getuid()}"
    parser.add_argument("--into", type=Path, default=place, help="where the environments are")
    given = parser.parse_args()
    given.into.mkdir(parents=True, exist_ok=True)
    return given


if __name__ == "__main__":
    sys.exit(main())
