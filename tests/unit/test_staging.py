"""What is being written has a hidden name; what a process that is gone has left is removed."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from paths import ROOT

from p3s.base import staging
from p3s.base.artefacts import LastRead, write_bytes
from p3s.base.errors import P3SError

#: A process that begins to write a file and a directory, says so, and waits.
WRITER = """
import os, sys, time
from pathlib import Path
from p3s.base import staging

place = Path(sys.argv[1])
handle, name = staging.new_file(place / "file")
directory = staging.new_directory(place / "directory")
(directory / "inside").write_text("x")
print(name, directory, flush=True)
time.sleep(600)
"""


def writer(place: Path) -> tuple[subprocess.Popen[str], list[Path]]:
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(place)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout is not None
    return process, [Path(name) for name in process.stdout.readline().split()]


def hidden(place: Path) -> list[str]:
    return sorted(name for name in os.listdir(place) if name.startswith("."))


def sweep(place: Path) -> None:
    staging.sweep(place, time.time())


def test_what_a_killed_process_left_is_removed_by_the_next_writer(tmp_path: Path) -> None:
    process, names = writer(tmp_path)
    try:
        sweep(tmp_path)
        assert all(name.exists() for name in names)  # of a process that lives
        process.send_signal(signal.SIGSTOP)  # also when it does not move
        sweep(tmp_path)
        assert all(name.exists() for name in names)
    finally:
        process.kill()
        process.wait()
    assert len(hidden(tmp_path)) == 2
    write_bytes(tmp_path / "new", b"whole")
    assert os.listdir(tmp_path) == ["new"]


def test_own_names_stay(tmp_path: Path) -> None:
    directory = staging.new_directory(tmp_path / "run")
    sweep(tmp_path)
    assert directory.is_dir()
    staging.put_in_place(directory, tmp_path / "run")
    assert os.listdir(tmp_path) == ["run"]


def test_those_of_another_machine_stay_for_a_day(tmp_path: Path) -> None:
    name = staging.hidden_beside(tmp_path / "file")
    mark = staging._host()
    other = name.with_name(name.name.replace(f"p3s-{mark}", f"p3s-{int(mark, 16) ^ 1:04x}"))
    other.write_text("x")
    staging.sweep(tmp_path, other.stat().st_mtime + 3600.0)
    assert other.exists()
    staging.sweep(tmp_path, other.stat().st_mtime + 90_000.0)
    assert not other.exists()


def test_files_of_others_are_not_touched(tmp_path: Path) -> None:
    for name in (".file.1a2b3c4d", ".bashrc", ".x.p3s-12", "x.p3s-1a2b3c4d1a2b"):
        (tmp_path / name).write_text("mine")
    sweep(tmp_path)
    assert len(os.listdir(tmp_path)) == 4


@pytest.mark.parametrize("exchange", [True, False])
def test_a_directory_takes_the_place_of_an_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchange: bool
) -> None:
    if not exchange:
        monkeypatch.setattr(staging, "_exchange", lambda one, other: False)
    target = tmp_path / "run"
    for text in ("old", "new"):
        staged = staging.new_directory(target)
        (staged / "what").write_text(text)
        staging.put_in_place(staged, target)
    assert (target / "what").read_text() == "new"
    assert os.listdir(tmp_path) == ["run"]


def test_what_was_put_aside_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed between two renames, where the file system cannot exchange names."""
    target = tmp_path / "run"
    target.mkdir()
    (target / "what").write_text("old")
    monkeypatch.setattr(staging, "_exchange", lambda one, other: False)
    rename = os.rename

    def killed(one: Path, other: Path) -> None:
        if other == target:
            os._exit(9)
        rename(one, other)

    child = os.fork()
    if child == 0:
        monkeypatch.setattr(os, "rename", killed)
        staging.put_in_place(staging.new_directory(target), target)
    os.waitpid(child, 0)
    assert not target.exists()
    sweep(tmp_path)
    assert (target / "what").read_text() == "old"
    assert os.listdir(tmp_path) == ["run"]


def test_two_writers_of_one_directory_both_end(tmp_path: Path) -> None:
    target = tmp_path / "run"
    staged = [staging.new_directory(target) for _ in range(2)]
    for number, one in enumerate(staged):
        (one / "what").write_text(str(number))
    for one in staged:
        staging.put_in_place(one, target)
    assert (target / "what").read_text() == "1"
    assert os.listdir(tmp_path) == ["run"]


#: A process that is alone at a file, says so, and goes on when it is told to.
ALONE = """
import sys
from pathlib import Path
from p3s.base import staging

with staging.alone(Path(sys.argv[1]), lambda: print("waits", flush=True)):
    print("alone", flush=True)
    sys.stdin.readline()
"""


def alone(path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", ALONE, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


@pytest.mark.parametrize("killed", [False, True])
def test_one_process_at_a_time_is_at_a_file(tmp_path: Path, killed: bool) -> None:
    """The next one has it when the first is done, or gone, and nothing is left beside the file."""
    first = alone(tmp_path / "file")
    assert first.stdout is not None and first.stdout.readline() == "alone\n"
    second = alone(tmp_path / "file")
    try:
        assert second.stdout is not None and second.stdout.readline() == "waits\n"
        if killed:
            first.kill()
        first.communicate("\n", timeout=60)
        assert second.stdout.readline() == "alone\n"
        second.communicate("\n", timeout=60)
        assert second.returncode == 0 and os.listdir(tmp_path) == []
    finally:
        for process in (first, second):
            process.kill()
            process.wait()


def test_nobody_waits_where_there_are_no_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(staging.fcntl, "flock", none)
    with staging.alone(tmp_path / "file", lambda: pytest.fail("waits")):
        pass
    with staging.alone(tmp_path / "none" / "file", lambda: pytest.fail("waits")):
        pass


def test_a_full_disk_is_said_with_the_name_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    run = staging.new_directory(tmp_path / "np0004.r0")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(P3SError) as caught:
        write_bytes(run / "run.json", b"{}")
    assert str(caught.value) == (
        f"{tmp_path}/np0004.r0/run.json: cannot be written: No space left on device; "
        "make room there, or choose another disk"
    )
    assert os.listdir(run) == []


def test_a_file_is_read_again_where_it_has_changed(tmp_path: Path) -> None:
    read: list[str] = []

    def reader(path: Path) -> str:
        read.append(path.read_text())
        return read[-1]

    last, one, other = LastRead(reader), tmp_path / "one", tmp_path / "other"
    one.write_text("a")
    other.write_text("a")
    assert [last(one), last(one)] == ["a", "a"] and read == ["a"]
    stat = one.stat()
    one.write_text("b")
    os.utime(one, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # as long and as old
    assert last(one) == "b"
    assert (last(other), len(read)) == ("a", 3)
    last.keep(one, "kept")
    assert (last(one), len(read)) == ("kept", 3)
    one.write_text("c")
    assert (last(one), len(read)) == ("c", 4)
    one.unlink()
    with pytest.raises(FileNotFoundError):
        last(one)


def test_of_several_files_those_that_were_read_last_are_remembered(tmp_path: Path) -> None:
    read: list[str] = []

    def reader(path: Path) -> str:
        read.append(path.name)
        return path.read_text()

    last, paths = LastRead(reader, files=2), [tmp_path / name for name in "abc"]
    for path in paths:
        path.write_text(path.name)
    assert [last(path) for path in (*paths[:2], *paths[:2])] == ["a", "b", "a", "b"]
    assert read == ["a", "b"]
    assert [last(paths[2]), last(paths[1]), last(paths[0])] == ["c", "b", "a"]
    assert read == ["a", "b", "c", "a"]
    paths[0].write_text("d")
    assert last(paths[0]) == "d"
