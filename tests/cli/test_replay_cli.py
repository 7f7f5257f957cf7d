"""p3s replay, and jobs that are submitted for replays."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from commands import cli
from replay_patterns import collectives, halo, ring

from p3s.base.errors import P3SError
from p3s.base.study import Study

TREE = """SwitchName=leaf0 Nodes=n[0-3]
SwitchName=leaf1 Nodes=n[4-7]
SwitchName=root Switches=leaf[0-1]
"""


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A study that holds scaled traces of 16 ranks (halo) and 8 ranks (collectives), and no MPI."""

    def no_mpi(*_: Any) -> None:
        raise P3SError("no MPI found (none in this test); run `p3s doctor`")

    root = tmp_path / "study"
    made = Study.create(root, ["mpiexec", "-n", "{np}", "./app"])
    halo(16, work=2e6).write(made.scaled_dir(16))
    collectives(8).write(made.scaled_dir(8))
    ring(4, work=1e6).write(made.scaled_dir(4))
    for stage in ("model", "compute", "scaled"):
        monkeypatch.setattr(f"p3s.pipeline.stages.ensure_{stage}", lambda *_, **__: None)
    monkeypatch.setattr("p3s.replay.launching.find_mpi", no_mpi)
    for name in ("SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_NODELIST"):
        monkeypatch.delenv(name, raising=False)
    return root


def plan(study: Path, *options: str, n: str = "16", cores: str = "4") -> dict[str, Any]:
    """Return the JSON of one plan."""
    words = ["replay", str(study), "-n", n, "--plan", "--json", *options]
    told = cli(*words, *(["--cores-per-node", cores] if cores else [])).data
    assert len(told["counts"]) == 1
    return told["counts"][0]


def test_no_mpi_to_measure_with_is_one_line(study: Path) -> None:
    streams = cli(f"replay {study} -n 4 --cores-per-node 2", code=1)
    assert "no MPI found" in streams.err and streams.out == ""
    assert not Study(study).replay_path(4).exists()


def test_a_damaged_trace_is_one_line(study: Path) -> None:
    next(Study(study).scaled_dir(16).glob("part-*.parquet")).write_bytes(b"PAR1")
    said = cli(f"replay {study} -n 16 --plan --cores-per-node 4", code=1, err="run p3s scale again")
    assert said.out == "" and said.err.count("\n") == 1


def test_plan_as_text(study: Path) -> None:
    streams = cli(f"replay {study} -n 4,16 --plan --cores-per-node 2")
    assert "run: 4 ranks on 2 nodes of 2" in streams.out
    assert "run: 16 ranks on 8 nodes of 2" in streams.out
    for word in ("processes:", "classes:", "loaded pairs of nodes:", "all four are this machine"):
        assert word in streams.out
    assert all(len(line) < 200 for line in streams.out.splitlines())
    assert not Study(study).replay_path(16).exists(), "a plan runs nothing"


def test_plan_as_json_says_what_is_run(study: Path) -> None:
    told = plan(study, "--hosts", "n[0-3]", "--budget", "2m")
    assert told["n"] == 16 and told["estimate"]["budget_s"] == 120
    assert told["mapping"] == {"kind": "block", "nodes": 4, "ranks_per_node": [4, 4]}
    assert told["placements"][0]["hosts"] == ["n0", "n1", "n2", "n3"]
    assert told["processes"]["measured"] == 8
    assert told["processes"]["total"] == sum(told["processes"]["per_node"])
    assert told["representative"] and told["why_not_representative"] is None
    assert {entry["distance"] for entry in told["messages"]} == {0, 1}
    # A 4x4 grid has 24 borders inside, crossed both ways; the weight of the phase is 10.
    assert sum(entry["events"] for entry in told["messages"] if entry["bytes"] > 100) == 480


def test_one_machine_is_not_representative(study: Path) -> None:
    told = plan(study)
    assert not told["representative"] and "one machine" in told["why_not_representative"]


def test_exhaustive_loads_every_pair(study: Path) -> None:
    few = plan(study)
    told = plan(study, "--exhaustive")
    pairs = {tuple(entry["pair"]) for entry in told["iterations"]}
    assert {(a, b) for a in range(4) for b in range(a + 1, 4)} <= pairs
    assert len(pairs) >= len({tuple(entry["pair"]) for entry in few["iterations"]})


def test_timed_adds_whole_iterations(study: Path) -> None:
    assert plan(study)["timed"] == []
    told = plan(study, "--timed")
    loaded = {tuple(entry["pair"]) for entry in told["iterations"]}
    assert {tuple(entry["pair"]) for entry in told["timed"]} == loaded


def test_mappings_deal_ranks_to_nodes(study: Path, tmp_path: Path) -> None:
    def inside(told: dict[str, Any]) -> float:
        return sum(
            entry["events"]
            for entry in told["messages"]
            if entry["distance"] == 0 and entry["bytes"] > 100
        )

    block = plan(study)
    cyclic = plan(study, "--mapping", "cyclic")
    assert cyclic["mapping"]["kind"] == "cyclic"
    # Rows of the 4x4 grid are the blocks; dealt in turn, columns share a node.
    assert inside(block) == inside(cyclic) == 240
    path = tmp_path / "ranks"
    path.write_text("".join(f"rank {r}=h{(r * 7 % 16) // 8} slot={r % 8}\n" for r in range(16)))
    told = plan(study, "--rank-file", str(path))
    assert told["mapping"] == {"kind": "rank file", "nodes": 2, "ranks_per_node": [8, 8]}
    assert inside(told) != inside(block)


def test_topology_gives_distances(study: Path, tmp_path: Path) -> None:
    path = tmp_path / "topology.conf"
    path.write_text(TREE)
    told = plan(study, "--topology", str(path), "--hosts", "n0,n1,n4,n5", cores="2")
    assert {entry["distance"] for entry in told["messages"]} == {0, 1, 3}
    assert str(path) in told["topology"]


def test_collectives_are_those_asked_for(study: Path, tmp_path: Path) -> None:
    def algorithms(told: dict[str, Any]) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for entry in told["collectives"]:
            name = entry["call"].lower().removeprefix("mpi_")
            found.setdefault(name, set()).add(entry["algorithm"])
        return found

    usual = algorithms(plan(study, n="8", cores="2"))
    assert usual
    changed = algorithms(plan(study, "--collectives", "allreduce=ring", n="8", cores="2"))
    assert "ring" in " ".join(changed["allreduce"]) and changed != usual
    path = tmp_path / "choice.toml"
    path.write_text('allreduce = "ring"\n')
    assert algorithms(plan(study, "--collectives", str(path), n="8", cores="2")) == changed


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    root = tmp_path / "my study"
    Study.create(root, ["mpiexec", "-n", "{np}", "x"])
    return root


def _sbatch(folder: Path, text: str) -> None:
    """Put an sbatch of ours first on PATH."""
    folder.mkdir()
    (folder / "sbatch").write_text(f"#!/bin/sh\n{text}\n")
    (folder / "sbatch").chmod(0o755)
    os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"


@pytest.fixture
def path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.environ["PATH"])


def test_the_script_is_written_and_not_submitted(root: Path, path: None, tmp_path: Path) -> None:
    _sbatch(tmp_path / "bin", "echo called >&2; exit 1")
    said = cli("submit", root, "-n", "64", "--nodes", "2")
    assert said.out.strip() == str(root / "replay" / "submit.sh") and "called" not in said.err
    assert "#SBATCH --nodes=2" in (root / "replay" / "submit.sh").read_text()


def test_it_is_submitted(root: Path, path: None, tmp_path: Path) -> None:
    _sbatch(tmp_path / "bin", 'cp "$2" got; echo "4711;cluster"')
    result = cli("submit", root, "-n", "64", "--submit", "--json", "-o", "here.sh").data
    assert result["schema"] == "p3s.submission" and result["job"] == 4711
    assert (tmp_path / "got").read_text() == (tmp_path / "here.sh").read_text() == result["text"]


def test_what_sbatch_says_is_told(root: Path, path: None, tmp_path: Path) -> None:
    _sbatch(tmp_path / "bin", "echo 'sbatch: error: no such' >&2; echo partition >&2; exit 1")
    said = cli("submit", root, "-n", "64", "--submit", code=1).err.strip()
    assert "sbatch: error: no such partition" in said and "\n" not in said
