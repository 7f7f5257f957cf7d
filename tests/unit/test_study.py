"""The study directory: atomic artefacts, versions, and nothing lost."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from p3s.base.artefacts import VERSIONS
from p3s.base.errors import P3SError, UsageError
from p3s.base.records import commit_run, keep_failed_run, stage_run
from p3s.base.study import Study, read_json, write_bytes, write_json
from p3s.base.text import differing
from p3s.formats.exported import new_directory, new_file
from p3s.pipeline.commands import counts_to_add

COMMAND = ["mpiexec", "-n", "{np}", "./app", "-o", "x y"]


def artefact(noun: str = "model", **more: object) -> dict[str, object]:
    return {"schema": f"p3s.{noun}", "schema_version": VERSIONS.get(f"p3s.{noun}", 1), **more}


def put_run(study: Study, np_: int, rep: int = 0, status: str = "complete", **info: object) -> Path:
    """Make a run directory as the launcher leaves it."""
    staged = stage_run(study.runs_dir(np_, rep))
    write_json(staged / "run.json", artefact("run", np=np_, status=status, **info))
    commit_run(staged, study.runs_dir(np_, rep))
    study.update()
    return study.runs_dir(np_, rep)


def test_written_artefact_is_read_back_with_plain_numbers(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    write_json(path, artefact(count=np.int64(3), share=np.float64(0.5), grid=np.array([2, 4])))
    assert read_json(path, "p3s.model") == artefact(count=3, share=0.5, grid=[2, 4])
    assert [p.name for p in tmp_path.iterdir()] == ["model.json"]


def test_nan_is_never_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        write_json(tmp_path / "model.json", artefact(x=float("nan")))
    assert list(tmp_path.iterdir()) == []


def test_failed_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.json"
    write_json(path, artefact(x=1))

    def full(_fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(P3SError, match="No space left") as err:
        write_json(path, artefact(x=2))
    assert str(path) in str(err.value)
    assert read_json(path, "p3s.model")["x"] == 1
    assert [p.name for p in tmp_path.iterdir()] == ["model.json"]


def test_another_version_names_both(tmp_path: Path) -> None:
    path = tmp_path / "study.json"
    path.write_text(json.dumps({"schema": "p3s.study", "schema_version": 7}))
    with pytest.raises(P3SError) as err:
        read_json(path, "p3s.study")
    text = str(err.value)
    assert "version 7" in text and "reads version 1" in text and "\n" not in text


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b"null",
        b'{"schema": "p3s.other", "schema_version": 1}',
        b'{"schema": "p3s.model"}',
        b'{"schema": "p3s.model", "schema_version": true}',
        b'{"schema": "p3s.model", "schema_version": 1, "x": NaN}',
        b"[" * 100_000,
    ],
)
def test_damage_is_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.json"
    path.write_bytes(content)
    with pytest.raises(P3SError) as err:
        read_json(path, "p3s.model")
    assert str(path) in str(err.value) and "\n" not in str(err.value)


def test_absent_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(P3SError, match="not there"):
        read_json(tmp_path / "x.json", "p3s.model")


def test_names_of_the_contract(tmp_path: Path) -> None:
    study = Study(tmp_path)
    names = {
        study.runs_dir(8): "runs/np0008.r0",
        study.runs_dir(12345, 2): "runs/np12345.r2",
        study.signature_path(8): "signature/np0008.json",
        study.scaled_path(512): "scaled/np000512/scaled.json",
        study.replay_path(512): "replay/np000512.json",
        study.replay_table(512): "replay/np000512.parquet",
        study.validate_path(64): "validate/np000064.json",
        study.validate_run_dir(64): "validate/np000064.r0",
    }
    for path, name in names.items():
        assert path == tmp_path / name


def test_adding_counts_keeps_everything(tmp_path: Path) -> None:
    root = tmp_path / "study"
    study = Study.create(root, COMMAND)
    put_run(study, 2, exit_code=0)
    study.update(owner="somebody")
    again = Study.create(root, COMMAND)
    put_run(again, 4)
    manifest = again.manifest()
    assert manifest["owner"] == "somebody"
    assert [run["np"] for run in manifest["runs"]] == [2, 4]
    assert again.counts() == [2, 4]
    assert again.command() == COMMAND


def test_command_of_an_empty_study_may_change(tmp_path: Path) -> None:
    Study.create(tmp_path / "s", ["mpiexec", "-n", "{np}", "./tpyo"])
    study = Study.create(tmp_path / "s", COMMAND)
    assert study.manifest()["commands"] == [COMMAND]


def test_a_foreign_directory_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(P3SError, match="not a study"):
        Study.create(tmp_path, COMMAND)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


def test_partial_runs_do_not_count(tmp_path: Path) -> None:
    study = Study.create(tmp_path / "s", COMMAND)
    put_run(study, 2)
    put_run(study, 4, status="partial")
    assert study.counts() == [2]
    assert [run.status for run in study.runs()] == ["complete", "partial"]
    (study.runs_dir(2) / "run.json").write_text("{")
    assert study.counts() == []


def characterized(tmp_path: Path, *counts: int) -> Study:
    """Make a study with a run and a signature per count."""
    study = Study.create(tmp_path / "s", COMMAND)
    for n in counts:
        put_run(study, n)
        write_json(study.signature_path(n), artefact("signature"))
    return study


def test_runs_that_were_deleted_are_noticed(tmp_path: Path) -> None:
    study = characterized(tmp_path, 2, 4, 8)
    put_run(study, 8, 1)
    for gone in (study.runs_dir(2), study.runs_dir(8, 1)):
        shutil.rmtree(gone)
    for _ in range(2):  # also after the list of runs was written again
        assert study.counts() == study.signature_counts() == [4, 8]
        assert study.gone_counts() == [2]
        study.update(trips={})
    status = {row["dir"]: row["status"] for row in study.manifest()["runs"]}
    assert status == {
        "runs/np0002.r0": "gone",
        "runs/np0004.r0": "complete",
        "runs/np0008.r0": "complete",
        "runs/np0008.r1": "gone",
    }
    study.manifest_path.unlink()
    assert Study.open(study.root).signature_counts() == [4, 8]
    put_run(study, 2)
    assert study.counts() == study.signature_counts() == [2, 4, 8] and not study.gone_counts()
    shutil.rmtree(study.root / "runs")
    assert study.signature_counts() == [] and study.gone_counts() == [2, 4, 8]


def test_counts_that_are_left_out_keep_their_runs(tmp_path: Path) -> None:
    study = characterized(tmp_path, 2, 4, 8)
    study.update(without=[2])
    assert study.counts() == study.signature_counts() == [4, 8]
    assert study.complete_counts() == [2, 4, 8] and study.left_out() == [2]
    assert [run.np for run in study.runs()] == [2, 4, 8]
    study.update(without=[])
    assert study.counts() == study.signature_counts() == [2, 4, 8]


def test_counts_the_program_refused_are_known(tmp_path: Path) -> None:
    study = characterized(tmp_path, 4, 9)
    for path in (study.runs_dir(6), study.validate_run_dir(5), study.runs_dir(9, 1)):
        (path.parent / f"{path.name}.failed").mkdir(parents=True)
    assert study.failed_counts() == [5, 6]
    put_run(study, 6)
    write_json(study.validate_run_dir(5) / "run.json", artefact("run", status="complete"))
    assert study.failed_counts() == []


def test_counts_that_the_user_stopped_are_not_those_that_failed(tmp_path: Path) -> None:
    study = characterized(tmp_path, 4, 9)
    for path in (study.runs_dir(6), study.timed_dir(5), study.runs_dir(9, 1)):
        staged = stage_run(path)
        (staged / "stdout.txt").write_text("")
        kept = keep_failed_run(staged, path, stopped=True)
        assert kept is not None and kept.name == f"{path.name}.stopped"
    assert study.stopped_counts() == [5, 6] and study.failed_counts() == []
    assert study.counts() == [4, 9] and counts_to_add(study, 3) == [5, 6]
    (study.root / "runs" / "np0006.r0.failed").mkdir()
    assert study.stopped_counts() == [5] and study.failed_counts() == [6]
    put_run(study, 5)
    assert study.stopped_counts() == []


def test_repeated_run_replaces_only_when_done(tmp_path: Path) -> None:
    study = Study.create(tmp_path / "s", COMMAND)
    place = put_run(study, 2, wall_s=1.0)
    (place / "old").write_text("")
    put_run(study, 2, wall_s=2.0)
    assert not (place / "old").exists()
    assert study.runs(2)[0].info["wall_s"] == 2.0
    assert sorted(p.name for p in (study.root / "runs").iterdir()) == ["np0002.r0"]


def test_study_can_be_moved(tmp_path: Path) -> None:
    study = Study.create(tmp_path / "a", COMMAND)
    put_run(study, 2)
    moved = study.root.rename(tmp_path / "b")
    assert str(tmp_path) not in (moved / "study.json").read_text()
    assert Study.open(moved).counts() == [2]


def test_no_study_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(P3SError, match="p3s characterize"):
        Study.open(tmp_path)


@pytest.mark.parametrize("umask", [0o002, 0o022, 0o077])
def test_study_follows_the_umask(tmp_path: Path, umask: int) -> None:
    """A group that may read what its members write can read their reports."""
    before = os.umask(umask)
    try:
        study = Study.create(tmp_path / "new" / "study", COMMAND)
        put_run(study, 2)
        write_bytes(study.report_path, b"1")
        with (
            new_directory(study.root / "export") as directory,
            new_file(directory / "x.goal") as file,
        ):
            file.write("1")
    finally:
        os.umask(before)
    made = {path: path.stat().st_mode & 0o777 for path in (tmp_path / "new").rglob("*")}
    assert len(made) == 8
    assert all(mode == (0o777 if path.is_dir() else 0o666) & ~umask for path, mode in made.items())


def with_runs(root: Path, *commands: list[str]) -> Study:
    """Make a study with one run per command, at 2, 3, ... processes."""
    study = Study.create(root, COMMAND)
    for at, words in enumerate(commands):
        place = put_run(study, 2 + at, command=words)
        os.utime(place / "run.json", (1000 - at, 1000 - at))
    return study


@pytest.mark.parametrize("content", [None, "", '{"schema": "p3s.study", "schema_ver', "[]x"])
def test_lost_manifest_is_made_again_from_the_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None
) -> None:
    other = ["mpiexec", "-n", "{np}", "./other"]
    study = with_runs(tmp_path / "s", other, COMMAND, other)
    study.manifest_path.unlink()
    if content is not None:
        study.manifest_path.write_text(content)
    again = Study.open(study.root)
    assert again.counts() == [2, 3, 4]
    assert again.manifest()["commands"] == [other, COMMAND]  # as old as their runs
    assert [run["np"] for run in again.manifest()["runs"]] == [2, 3, 4]
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "made again from 3 runs" in said
    kept = study.root / "study.json.damaged"
    assert kept.exists() == (content is not None)
    assert content is None or kept.read_text() == content
    assert Study.open(study.root).counts() == [2, 3, 4] and capsys.readouterr().err == ""


def test_lost_manifest_does_not_make_a_study_foreign(tmp_path: Path) -> None:
    study = with_runs(tmp_path / "s", COMMAND)
    study.manifest_path.unlink()
    assert Study.create(study.root, COMMAND).counts() == [2]
    study.manifest_path.unlink()
    (study.runs_dir(2) / "run.json").write_text("{")
    assert Study.create(study.root, COMMAND).command() == COMMAND
    assert study.runs_dir(2).is_dir()


@pytest.mark.parametrize("words", [None, [], "./app", [1], [["x"]]])
def test_runs_that_do_not_say_their_command_need_force(tmp_path: Path, words: object) -> None:
    study = Study.create(tmp_path / "s", COMMAND)
    put_run(study, 2, command=words)
    study.manifest_path.unlink()
    with pytest.raises(P3SError, match=r"-n \d+ -o .* --force -- mpiexec -n \{np\} PROGRAM$"):
        Study.open(study.root).command()
    with pytest.raises(UsageError, match="--force"):
        Study.create(study.root, COMMAND)
    assert Study.create(study.root, COMMAND, force=True).command() == COMMAND
    assert study.counts() == [2]


def test_manifest_of_another_version_is_not_replaced(tmp_path: Path) -> None:
    study = with_runs(tmp_path / "s", COMMAND)
    text = study.manifest_path.read_text().replace('"schema_version": 1', '"schema_version": 2', 1)
    study.manifest_path.write_text(text)
    with pytest.raises(P3SError, match="version 2"):
        Study.open(study.root)
    assert study.manifest_path.read_text() == text


def test_damage_without_runs_says_what_to_do(tmp_path: Path) -> None:
    study = Study.create(tmp_path / "s", COMMAND)
    study.manifest_path.write_text("{")
    with pytest.raises(P3SError, match="no runs to make it again from; delete it"):
        Study.open(study.root)


def test_commands_are_shown_whole_where_they_differ() -> None:
    long = ["mpiexec", "-n", "{np}", "./app", *["same"] * 40]
    one, other = differing([*long, "--nx", "300", *long], [*long, "--nx", "400", *long])
    assert (one, other) == ("... 300 ...", "... 400 ...")
    one, other = differing([*long, "x" * 90], long)
    assert one == "... " + "x" * 90 and other == "..."
    assert differing(["a b", "{np}"], ["c"]) == ("'a b' {np}", "c")
