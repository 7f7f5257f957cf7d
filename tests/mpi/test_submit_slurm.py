"""p3s submit under Slurm, from submission to the report: a controller and four nodes of our own."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import slurm_cluster
from commands import cli
from paths import PROGRAMS, ROOT

from p3s.base.host import mpi
from p3s.base.study import Study

MPICC = Path("/usr/bin/mpicc.openmpi")
WHY = slurm_cluster.missing() or ("" if MPICC.exists() else "no Open MPI of Debian")
pytestmark = [pytest.mark.mpi, pytest.mark.skipif(bool(WHY), reason=WHY or "Slurm is there")]
COUNTS = (1, 2, 3, 4)


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with slurm_cluster.running(tmp_path_factory.mktemp("slurm")) as cluster:
        yield {**cluster.env, **slurm_cluster.OPEN_MPI, "PYTHONPATH": str(ROOT)}


def ask(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, timeout=120, check=True).stdout


def test_from_submission_to_report(
    slurm: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each count has a job of its own; the one that fails takes no other with it."""
    folder = tmp_path / "a run"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for name, value in slurm.items():
        monkeypatch.setenv(name, value)
    assert mpi.describe(str(MPICC)) is not None
    source, target = str(PROGRAMS / "picky.c"), str(folder / "my program")
    subprocess.run([str(MPICC), source, "-o", target], check=True, timeout=120)
    options = ["--jobs", "each", "--ppn", "2", "--time", "10m", "--predict", "8", "--submit"]
    words = ["srun", "--mpi=pmix", "-n", "{np}", "./my program", "4"]
    listed = ",".join(map(str, COUNTS))
    jobs = cli("submit study -n", listed, *options, "--json", "--", *words).data["jobs"]
    assert len(jobs) == len(COUNTS) + 1
    last = str(jobs[-1]["job"])
    slurm_cluster.wait_for(lambda: not ask("squeue", "-h").strip(), "the jobs' end", 600.0)
    shown = [ask("scontrol", "show", "job", str(job["job"])) for job in jobs]
    nodes = [text.partition("NumNodes=")[2].split()[0] for text in shown]
    logs = {path.name: path.read_text() for path in (folder / "study-jobs").glob("*.out")}
    said = json.dumps(logs, indent=1)
    assert nodes == ["1", "1", "2", "2", "1"], said
    ended = [text.partition("JobState=")[2].split()[0] for text in shown[: len(COUNTS)]]
    assert ended == ["COMPLETED", "COMPLETED", "COMPLETED", "FAILED"], said
    times = [text.partition("EndTime=")[2].split()[0] for text in shown[: len(COUNTS)]]
    assert max(times) <= shown[-1].partition("StartTime=")[2].split()[0], said
    assert "MPI_Abort(7)" in logs[f"trace-np4-{jobs[3]['job']}.out"]
    assert "np4: a study without a complete run" in logs[f"last-{last}.out"]
    study = Study.open(folder / "study")
    assert sorted({each.np for each in study.runs()}) == [1, 2, 3] and study.command() == words
    predicted = json.loads(study.prediction_path.read_text())["counts"]
    assert [each["n"] for each in predicted] == [1, 2, 3, 8]
    assert "<svg" in study.report_path.read_text()
