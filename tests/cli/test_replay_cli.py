"""p3s replay, and jobs that are submitted for replays and traces."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer
from commands import cli
from paths import ROOT
from replay_patterns import collectives, halo, ring

from p3s.base.errors import P3SError
from p3s.base.study import Study
from p3s.cli.main import app

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


def test_a_dry_run_writes_nothing(root: Path) -> None:
    before = sorted(root.rglob("*"))
    options = ["--nodes", "4", "--budget", "10m", "--partition", "long", "--sbatch=--constraint=a"]
    text = cli("submit", root, "-n", "512,1024", *options, "--dry-run", "--", "--timed").out
    assert sorted(root.rglob("*")) == before
    lines = text.splitlines()
    assert lines[0] == "#!/bin/bash"
    assert {
        "#SBATCH --nodes=4",
        "#SBATCH --exclusive",
        "#SBATCH --partition=long",
        "#SBATCH --constraint=a",
        "#SBATCH --time=1:00:00",
    } <= set(lines)
    plain = " ".join(text.replace("\\\n", "").split())
    assert plain.endswith(f"p3s replay '{root}' -n 512,1024 --budget 10m --timed")


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


SRUN = ["--", "srun", "--mpi=pmix", "-n", "{np}", "./my program", "in put"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "a run"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PATH", os.environ["PATH"])
    return folder


def scripts(*options: str) -> dict[str, str]:
    """Return what --dry-run prints, by the names of the scripts."""
    shown = cli("submit study -n 8,16,32", *options, "--dry-run", "--json", *SRUN)
    jobs = shown.data["jobs"]
    assert all(job["script"] is None for job in jobs)
    for job in jobs:
        checked = subprocess.run(["bash", "-n"], input=job["text"], text=True, timeout=60)
        assert checked.returncode == 0
    return {job["text"].split("job-name=")[1].split()[0]: job["text"] for job in jobs}


def commands(text: str) -> list[list[str]]:
    """Return the words of the commands of P3S in a script."""
    lines = text.replace("\\\n", " ").splitlines()
    return [
        shlex.split(line.removeprefix("step ")) for line in lines if "p3s" in line.split("#")[0]
    ]


def test_one_job_for_all_counts(here: Path) -> None:
    before = sorted(here.parent.rglob("*"))
    options = ["--ppn", "12", "-r", "3", "--trace=--work cpu", "--time", "20m", "--account", "x"]
    found = scripts(*options, "--module", "gcc/12", "--module", "openmpi")
    assert sorted(here.parent.rglob("*")) == before and list(found) == ["p3s-trace"]
    text = found["p3s-trace"]
    assert {
        "#!/bin/bash -l",
        "#SBATCH --nodes=3",
        "#SBATCH --ntasks=32",
        "#SBATCH --ntasks-per-node=12",
        "#SBATCH --exclusive",
        "#SBATCH --time=0:20:00",
        "#SBATCH --account=x",
        f'#SBATCH --output="{here}/study-jobs/trace-%j.out"',
        "module load gcc/12",
        "module load openmpi",
        f"cd '{here}'",
    } <= set(text.splitlines())
    (words,) = commands(text)[-1:]
    start = words.index("characterize")
    options = ["-n", "8,16,32", "-r", "3", "--work", "cpu", "-o", f"{here}/study"]
    assert words[start:] == ["characterize", *options, *SRUN]


def test_a_job_for_each_count(here: Path) -> None:
    found = scripts("--jobs", "each", "--ppn", "8", "--predict", "512,1024")
    assert list(found) == ["p3s-np8", "p3s-np16", "p3s-np32", "p3s-last"]
    for np, nodes in ((8, 1), (16, 2), (32, 4)):
        text = found[f"p3s-np{np}"]
        assert {f"#SBATCH --nodes={nodes}", f"#SBATCH --ntasks={np}"} <= set(text.splitlines())
        words = commands(text)[-1]
        options = ["--part", "-n", str(np), "--work", "cpu", "-o", f"{here}/study-jobs/np{np}"]
        assert words[words.index("characterize") :] == ["characterize", *options, *SRUN]
    last = found["p3s-last"]
    assert "--exclusive" not in last and "#SBATCH --ntasks=1" in last.splitlines()
    parts = [f"{here}/study-jobs/np{np}" for np in (8, 16, 32)]
    done = [words[words.index("add") :] for words in commands(last) if "add" in words]
    assert done == [["add", f"{here}/study", *parts]]
    assert [words[-4:] for words in commands(last) if "predict" in words] == [
        ["predict", f"{here}/study", "-n", "512,1024"]
    ]
    assert any("report" in words for words in commands(last))


def test_a_job_array(here: Path) -> None:
    text = scripts("--jobs", "array")["p3s-trace"]
    assert "#SBATCH --array=0-2" in text.splitlines()
    lines = text.replace("\\\n", " ").splitlines()
    command = next(line for line in lines if "--part" in line)
    asked = "\n".join(
        [
            *(line for line in lines if line.startswith(("counts=", "np="))),
            f"printf '%s|' {command}",
        ]
    )
    for task, np in enumerate((8, 16, 32)):
        env = {**os.environ, "SLURM_ARRAY_TASK_ID": str(task)}
        done = subprocess.run(["bash", "-c", asked], env=env, capture_output=True, text=True)
        words = done.stdout.split("|")[:-1]
        options = ["--part", "-n", str(np), "--work", "cpu", "-o", f"{here}/study-jobs/np{np}"]
        assert words[words.index("characterize") :] == ["characterize", *options, *SRUN], (
            done.stderr
        )


def test_counts_up_to_a_maximum() -> None:
    text = cli("submit study -n ..64 --ppn 8 --dry-run", *SRUN).out
    assert "#SBATCH --nodes=8" in text.splitlines() and " -n ..64 " in text


def test_traces_are_submitted(here: Path) -> None:
    sbatch = here / "sbatch"
    sbatch.write_text('#!/bin/bash\necho "$*" >> calls\nwc -l < calls\n')
    sbatch.chmod(0o755)
    os.environ["PATH"] = f"{here}{os.pathsep}{os.environ['PATH']}"
    options = ["--jobs", "each", "--submit", "-o", "elsewhere"]
    said = cli("submit study -n 8,16,32", *options, *SRUN)
    names = [f"trace-np{np}" for np in (8, 16, 32)]
    assert (here / "calls").read_text().splitlines() == [
        *(f"--parsable {here}/elsewhere/{name}.sh" for name in names),
        f"--parsable --dependency=afterany:1:2:3 {here}/elsewhere/last.sh",
    ]
    assert said.out.splitlines()[0] == f"job 1: {here}/elsewhere/trace-np8-1.out"
    assert "next, when they have ended: p3s model" in said.err
    # What was submitted already is said where a later one is refused.
    sbatch.write_text("#!/bin/bash\n[[ $* == *np16* ]] && { echo no >&2; exit 1; }\necho 7\n")
    cli("submit study -n 8,16,32", *options, *SRUN, code=1, err="no; submitted already: 7")


def test_scripts_are_written(here: Path) -> None:
    said = cli("submit study -n 8,16,32 --jobs each", *SRUN)
    written = sorted(path.name for path in (here / "study-jobs").iterdir())
    names = ["trace-np16.sh", "trace-np32.sh", "trace-np8.sh"]
    assert written == ["last.sh", "submit.sh", *names] and not (here / "study").exists()
    assert f"next: bash '{here}/study-jobs/submit.sh'" in said.err
    cli("submit study -n 8,16,32 -o one", *SRUN, err=f"next: sbatch '{here}/one/trace.sh'")


def test_a_study_that_is_there(here: Path) -> None:
    study = Study.create(here / "study", ["mpiexec", "-n", "{np}", "other"])
    folder = study.runs_dir(4)
    folder.mkdir()
    info = {"schema": "p3s.run", "schema_version": 1, "status": "complete", "np": 4}
    text = json.dumps({**info, "work_unit": "wall_ns", "command": ["mpiexec", "other"]})
    (folder / "run.json").write_text(text)
    # One count more is not too few with those that are there, but the command is another one.
    options = ["submit", "study", "-n", "8,16", "--jobs", "each"]
    cli(*options, *SRUN, code=2, err="another command")
    assert not (here / "study-jobs").exists()
    cli(*options, "--trace=--force", *SRUN)
    script = (here / "study-jobs" / "trace-np8.sh").read_text()
    assert "--work wall" in script.replace("\\\n    ", "")
    assert commands((here / "study-jobs" / "last.sh").read_text())[-1][-1] == "--force"


def test_the_virtual_environment(here: Path) -> None:
    venv = here / "my venv"
    (venv / "bin").mkdir(parents=True)
    words = ["submit", "study", "-n", "8,16,32", "--venv", str(venv), "--dry-run", *SRUN]
    cli(*words, code=2, err="bin/activate is missing")
    (venv / "bin" / "activate").write_text("")
    cli(*words, code=2, err="holds no P3S")
    (venv / "bin" / "p3s").write_text("")
    lines = cli(*words).out.splitlines()
    assert f". '{venv}/bin/activate'" in lines and any(
        line.startswith("p3s characterize") for line in lines
    )


PAGES = ("slurm.md", "pbs.md")


def told(page: str) -> list[list[str]]:
    """Return the commands of P3S on a page, also those inside of scripts."""
    text = (ROOT / "docs" / "howto" / page).read_text().replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines() if line.startswith("    ")]
    words = [shlex.split(line, comments=True) for line in lines if "p3s " in line]
    found = [each[each.index("p3s") + 1 :] for each in words if "p3s" in each]
    assert found
    return found


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_the_pages_are_such(page: str) -> None:
    group = typer.main.get_command(app)
    assert hasattr(group, "commands")
    for name, *words in told(page):
        command = group.commands[name]
        assert command.make_context(name, list(words)).params, (name, words)


@pytest.mark.parametrize("page", PAGES)
def test_what_the_pages_submit_can_be(page: str, here: Path) -> None:
    Study.create(here / "study", ["srun", "-n", "{np}", "./program", "input"])
    asked = [words for words in told(page) if words[0] == "submit"]
    assert asked
    made: list[str] = []
    for words in asked:
        at = words.index("--") if "--" in words else len(words)
        dry = [word for word in words[:at] if word != "--submit"]
        made += cli(*dry, "--dry-run", *words[at:]).out.splitlines()
    lines = (ROOT / "docs" / "howto" / page).read_text().splitlines()
    directives = [line.strip() for line in lines if line.startswith(("    #PBS", "    #BSUB"))]
    assert [line for line in directives if line not in made] == []
