"""p3s submit of a replay: the batch script, and what becomes of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from commands import cli

from p3s.base.study import Study


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
