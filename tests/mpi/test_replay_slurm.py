"""A replay inside an allocation of a Slurm of its own, submitted as a batch job."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import slurm_cluster
from paths import ROOT
from replay_patterns import halo

from p3s.base.host.schedulers import SCHEDULERS, Job, Surroundings, script

MPIEXEC = Path("/usr/bin/mpiexec.openmpi")
WHY = slurm_cluster.missing() or ("" if MPIEXEC.exists() else "no Open MPI of Debian")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(WHY), reason=WHY)]
TIMEOUT_S = 240.0
#: Replays the first argument into the second, with the rest as the launcher.
CODE = """
import json, sys
from pathlib import Path
from p3s import replay
from p3s.base.host.hosts import allocated_hosts
settings = replay.ReplaySettings(cores_per_node=2, budget_s=4.0, launcher=tuple(sys.argv[3:]))
result = replay.run(Path(sys.argv[1]), Path(sys.argv[2]), settings)
print(json.dumps({"hosts": allocated_hosts(), "measured": result["measured_share"]}))
"""


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[slurm_cluster.Cluster]:
    with slurm_cluster.running(tmp_path_factory.mktemp("slurm")) as made:
        yield made


@pytest.mark.parametrize(
    "launcher", [[str(MPIEXEC), "--oversubscribe"], ["srun", "--mpi=pmix"]], ids=["mpiexec", "srun"]
)
def test_a_replay_takes_the_nodes_of_its_allocation(
    slurm: slurm_cluster.Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    launcher: list[str],
) -> None:
    for name, value in {**slurm.env, "PYTHONPATH": str(ROOT), **slurm_cluster.OPEN_MPI}.items():
        monkeypatch.setenv(name, value)
    scaled = halo(8).write(tmp_path / "np000008")
    result = tmp_path / "result.json"
    scheduler = SCHEDULERS["slurm"]
    job = Job("p3s-test", tmp_path / "job", nodes=4, time_s=300.0)
    words = [sys.executable, "-c", CODE, str(scaled), str(result), *launcher]
    path = tmp_path / "job.sh"
    path.write_text(script(scheduler, job, [list(map(shlex.quote, words))], Surroundings(tmp_path)))
    out = scheduler.log_of(job, scheduler.submit(path))
    deadline = time.monotonic() + TIMEOUT_S
    while not (result.exists() and out.read_text().count('"hosts"')):
        assert time.monotonic() < deadline, out.read_text() if out.exists() else "not started"
        assert not (out.exists() and "Error" in out.read_text()), out.read_text()
        time.sleep(0.5)
    said = json.loads(out.read_text().strip().splitlines()[-1])
    assert said["hosts"] == ["n0", "n1", "n2", "n3"] and said["measured"] > 0.0
    assert os.listdir(tmp_path / "result.parts")
