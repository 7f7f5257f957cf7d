"""p3s submit of traces: which jobs there are, what they run, and what becomes of the scripts."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path

import pytest
import typer
from commands import cli
from paths import ROOT

from p3s.base.study import Study
from p3s.cli.main import app

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


def test_it_is_submitted(here: Path) -> None:
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
