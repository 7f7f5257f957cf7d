"""``mpiexec -n 4 p3s --mpi ...``: the files are those of one process, byte for byte."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import old_studies
import pytest
from cluster.network import Cluster, missing, openmpi_words
from conformance import mpis
from tracer_helpers import the_mpi

from p3s.base.host import mpi
from p3s.signature_runner.recording import SHARING

pytestmark = [pytest.mark.mpi, pytest.mark.skipif(the_mpi() is None, reason="no usable MPI")]
TIMEOUT_S = 500.0
#: More than one part of a scaled trace.
PREDICT = ["predict", "study", "-n", "24,2100"]
ROOT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_ALLOW_RUN_AS_ROOT": "1",
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}


def runs_only(folder: Path) -> Path:
    """Put a study of which nothing is made yet into a folder; return the folder."""
    study = old_studies.unpack("capture-2.4", folder)
    for path in study.iterdir():
        if path.is_dir() and path.name != "runs":
            shutil.rmtree(path)
        elif path.is_file() and path.name not in ("study.json", "machine.json"):
            path.unlink()
    return folder


def started(ranks: int, words: list[str], folder: Path) -> subprocess.Popen[str]:
    """Start p3s on some ranks, alone with 0."""
    before = [the_mpi().mpiexec, "-n", str(ranks)] if ranks else []
    return subprocess.Popen(
        [*before, sys.executable, "-m", "p3s", *(["--mpi"] if ranks else []), *words],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **SHARING, **ROOT},
        start_new_session=True,
    )


def ended(process: subprocess.Popen[str], timeout_s: float = TIMEOUT_S) -> tuple[int, str, str]:
    """Return exit code and output of a process; none of its session outlives a timeout."""
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    return process.returncode, out, err


def digests(study: Path) -> dict[str, str]:
    """Return the digest of every file of a study."""
    return {
        str(path.relative_to(study)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(study.rglob("*"))
        if path.is_file()
    }


def own_lines(text: str) -> list[str]:
    """Return the lines of p3s in what a launcher has printed too."""
    return [line for line in text.splitlines() if line.startswith(("p3s: ", "n=", "np=", "model "))]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, str], int, str, list[str]]:
    """What one process makes of a study: files, exit code, what it prints, what it says."""
    folder = runs_only(tmp_path_factory.mktemp("alone"))
    code, out, err = ended(started(0, PREDICT, folder))
    assert code in (0, 3), err
    return digests(folder / "study"), code, out, own_lines(err)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_the_files_are_the_same_for_any_number_of_ranks(
    ranks: int, alone: tuple[dict[str, str], int, str, list[str]], tmp_path: Path
) -> None:
    files, code, out, said = alone
    folder = runs_only(tmp_path)
    there, printed, err = ended(started(ranks, PREDICT, folder))
    assert (there, printed) == (code, out), err
    assert own_lines(err) == said
    made = digests(folder / "study")
    assert {name for name in files | made if files.get(name) != made.get(name)} == set()
    assert len([name for name in files if name.startswith("scaled/np002100/part-")]) == 2


def _mpich() -> str:
    """Return the launcher of an MPICH that goes by TCP between hosts, empty where there is none."""
    found = [each.mpiexec for name, each in mpis().items() if name in ("mpich5", "mpich4-on-wheel")]
    usable = [
        m.mpiexec for m in mpi.find_mpi() if m.family == mpi.MPICH and m.usable_oversubscribed
    ]
    return next((os.path.realpath(one) for one in (*found, *usable) if one), "")


def _over_nodes(family: str, cluster: Cluster) -> list[str]:
    """Return the words that start one rank on each node of a cluster."""
    if family == mpi.OPENMPI:
        hosts = ",".join(f"{host}:1" for host in cluster.hosts)
        return [*openmpi_words(cluster), "--host", hosts, "-n", str(cluster.nodes)]
    fixed = ["-launcher", "ssh", "-launcher-exec", str(cluster.agent), "-iface", "eth0"]
    among = ["-hosts", ",".join(cluster.hosts), "-ppn", "1", "-n", str(cluster.nodes)]
    tcp = ["-genv", "MPIR_CVAR_CH4_NETMOD", "ofi", "-genv", "FI_PROVIDER", "tcp"]
    library = Path(_mpich()).parents[1] / "lib"
    same = ["-genv", "MPI4PY_MPIABI", "mpich", "-genv", "LD_LIBRARY_PATH", str(library)]
    return cluster.command(0, _mpich(), *fixed, *among, *tcp, *same)


@pytest.mark.skipif(bool(missing()), reason=missing())
@pytest.mark.parametrize("nodes", [2, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize("family", [mpi.OPENMPI, mpi.MPICH])
def test_the_files_are_the_same_from_several_nodes(
    family: str, nodes: int, alone: tuple[dict[str, str], int, str, list[str]], tmp_path: Path
) -> None:
    """One rank on each of some hosts with names and networks of their own."""
    if family == mpi.OPENMPI and not Path("/usr/bin/mpiexec.openmpi").exists():
        pytest.skip("Debian's Open MPI is not installed")
    if family == mpi.MPICH and not _mpich():
        pytest.skip("no MPICH that goes by TCP (P3S_TEST_MPICH5)")
    folder = runs_only(tmp_path / "runs")
    with Cluster(tmp_path / "cluster", nodes, rate="1gbit") as cluster:
        words = _over_nodes(family, cluster)
        done = subprocess.run(
            [*words, sys.executable, "-m", "p3s", "--mpi", *PREDICT],
            cwd=folder,
            env={**os.environ, **SHARING, **ROOT},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
    files, code, out, _ = alone
    assert (done.returncode, done.stdout) == (code, out), done.stderr
    made = digests(folder / "study")
    assert {name for name in files | made if files.get(name) != made.get(name)} == set()


def test_a_damaged_run_ends_all_ranks_with_one_line(tmp_path: Path) -> None:
    folder = runs_only(tmp_path)
    for run in (folder / "study" / "runs").iterdir():
        (run / "rank-000001.p3t").write_bytes(b"no capture")
    code, out, err = ended(started(3, ["model", "study"], folder))
    assert code == 1 and out == "", err
    lines = [line for line in err.splitlines() if line.startswith("p3s: ")]
    assert len(lines) == 1 and "rank-000001.p3t" in lines[0], err
    assert "Traceback" not in err


def test_ranks_do_not_start_mpi_programs(tmp_path: Path) -> None:
    words = ["characterize", "-n", "2,4", "-o", "new", "--", "mpiexec", "-n", "{np}", "/bin/true"]
    code, _, err = ended(started(2, words, tmp_path))
    assert code == 2 and "a rank cannot start MPI programs" in err, err
    assert len([line for line in err.splitlines() if line.startswith("p3s: ")]) == 1
    assert not (tmp_path / "new").exists()


def test_an_interrupt_ends_all_ranks(tmp_path: Path) -> None:
    """Sent to the launcher, as Ctrl-C is, while rank 0 waits for the others."""
    folder = runs_only(tmp_path)
    process = started(3, ["predict", "study", "-n", "100000"], folder)
    deadline = time.monotonic() + TIMEOUT_S
    while not (folder / "study" / "model.json").exists() and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    ranks = [int(name) for name in os.listdir("/proc") if name.isdigit() and of(int(name), folder)]
    process.send_signal(signal.SIGINT)
    code, _, _ = ended(process)
    assert code != 0 and len(ranks) >= 3
    deadline = time.monotonic() + 300
    while any(os.path.exists(f"/proc/{pid}") for pid in ranks) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(os.path.exists(f"/proc/{pid}") for pid in ranks)


def of(pid: int, folder: Path) -> bool:
    """Tell whether a process runs in a folder."""
    try:
        return Path(os.readlink(f"/proc/{pid}/cwd")) == folder
    except OSError:
        return False
