"""Disks that are full and directories that may not be read: one line, with the name of the file."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from capture_writer import small
from commands import cli

from p3s.base import artefacts
from p3s.base.host.command import parse
from p3s.signature_runner.diagnose import EndedRun


def study_of(place: Path) -> Path:
    """Return a directory with the captures of three runs."""
    for count in (2, 3, 4):
        folder = place / "runs" / f"np{count:04d}.r0"
        folder.mkdir(parents=True)
        for rank in range(count):
            (folder / f"rank-{rank:06d}.p3t").write_bytes(small(rank, count).data())
    return place


def test_one_unreadable_run_does_not_hide_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = study_of(tmp_path / "study")
    listdir = os.listdir

    def denied(path: object = ".") -> list[str]:
        if str(path).endswith("np0003.r0"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return listdir(path)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "listdir", denied)
    said = cli(f"check {study}", code=3)
    assert "np0003.r0: unreadable, 0 ranks" in said.out
    assert "cannot be read: Permission denied" in said.out
    assert "np0004.r0: " in said.out
    assert "Traceback" not in said.err


def test_a_full_disk_is_not_taken_for_a_program_without_mpi(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tracer could write neither a capture nor, as stderr.txt is on that disk, a warning."""

    def full(_handle: int, _begin: int, _length: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    command = parse(["mpiexec", "-n", "{np}", "/bin/true"], 2)
    why = EndedRun(tmp_path, command, 2, 0, None, True).verdict().error or ""
    assert f"nothing was captured: {tmp_path}: cannot be written: No space left on device" in why
    assert os.listdir(tmp_path) == []


def test_what_a_library_says_of_a_full_disk_gets_the_name_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(artefacts.P3SError) as caught, artefacts.writing(tmp_path / "part.parquet"):
        raise OSError(errno.ENOSPC, "Error writing bytes to file. Detail: [errno 28] No space left")
    text = str(caught.value)
    assert text.startswith(f"{tmp_path}/part.parquet: cannot be written: No space left on device")


def test_a_library_for_which_there_is_no_memory_is_no_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    def unable(*_: object, **__: object) -> None:
        raise ImportError("x.so: failed to map segment from shared object", name="x")

    monkeypatch.setattr("p3s.cli.main.app", unable)
    said = cli("scale study", code=1).err
    assert said.startswith("p3s: x cannot be loaded: ") and said.count("\n") == 1
