"""Files of programs: what their calls cost, and in the simulation."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from paths import PROGRAMS

from p3s.base.errors import P3SError
from p3s.base.ops import file_work, is_file_collective, is_modelled, kind_of, leaves_file_request
from p3s.costs.files import FilePlace, FileSample, as_traced, span_of
from p3s.machine.filesystem import (
    DENSE,
    FILE_SYSTEM,
    OWN,
    SHARED,
    FileSystem,
    Rate,
    names,
    parse_rates,
    typical,
)


def system(*rates: tuple[int, float, float], way: str = "posix", sharing: str = OWN) -> FileSystem:
    """A file system that writes, with (processes, seconds of a call, seconds of a byte)."""
    return FileSystem(
        "one", "ext4", tuple(Rate(way, sharing, "write", DENSE, k, c, b, 0.1) for k, c, b in rates)
    )


def seconds(of: FileSystem, processes: float, calls: float, nbytes: float) -> float:
    """Seconds of a write."""
    found = of.seconds(
        "posix", OWN, "write", DENSE, processes=processes, calls=calls, nbytes=nbytes
    )
    assert found is not None
    assert found.low_s <= found.s <= found.high_s
    return found.s


def test_own_rates_stay_what_they_are() -> None:
    free = system((1, 1e-6, 1e-9), (2, 1e-6, 1e-9), (4, 1e-6, 1e-9))
    assert seconds(free, 4, 10, 1000) == pytest.approx(11e-6)
    assert seconds(free, 64, 10, 1000) == pytest.approx(11e-6)
    found = free.seconds("posix", OWN, "write", DENSE, processes=64, calls=10, nbytes=1000)
    assert found is not None
    assert found.high_s == pytest.approx(11e-6 * 16 * 1.1)  # a limit that was not seen yet


def test_a_limit_that_shows_is_shared() -> None:
    limited = system((1, 0.0, 1e-9), (2, 0.0, 1e-9), (4, 0.0, 2e-9), (8, 0.0, 4e-9))
    assert seconds(limited, 4, 1, 1e9) == pytest.approx(2.0)
    assert seconds(limited, 64, 1, 1e9) == pytest.approx(32.0)


def test_a_published_limit_holds() -> None:
    of = system((1, 0.0, 1e-9))
    published = FileSystem("two", "lustre", of.rates, limits={"write": 10e9})
    assert seconds(published, 4, 1, 1e9) == pytest.approx(1.0)
    assert seconds(published, 100, 1, 1e9) == pytest.approx(10.0)


def test_what_was_not_measured_is_taken_from_the_most_alike() -> None:
    of = system((1, 0.0, 1e-9), sharing=SHARED)
    asked = {"processes": 1, "calls": 1, "nbytes": 1e9}
    for way in ("stdio", "mpi", "collective", "aggregated", "direct"):
        assert of.seconds(way, OWN, "write", "strided", **asked).s == pytest.approx(1.0)
    assert of.seconds("posix", OWN, "sync", DENSE, **asked) is None


def test_rates_of_a_measurement() -> None:
    small = "posix own write dense 4096 256 0.003 0.002 0.002\n"
    text = small + "posix own write dense 1048576 8 0.01\n"
    (rate,) = parse_rates(text, 2)
    for size, calls, took in ((4096, 256, 0.002), (1 << 20, 8, 0.01)):
        assert calls * rate.call_s + size * calls * rate.byte_s == pytest.approx(took)
    (sync,) = parse_rates("posix own sync dense 1048576 8 0.01 0.01\n", 1)
    assert sync.call_s + (8 << 20) * sync.byte_s == pytest.approx(0.01)
    with pytest.raises(P3SError, match="measure again"):
        parse_rates("posix own write dense many 8 0.01\n", 1)


def test_a_file_of_it_comes_back(tmp_path: Path) -> None:
    of = system((1, 1e-6, 1e-9), (2, 2e-6, 1e-9))
    of.save(tmp_path / "files.json")
    assert FileSystem.load(tmp_path / "files.json") == of
    wrong = FileSystem("one", "ext4", (Rate("posix", OWN, "write", DENSE, 0, 0.0, 0.0),))
    (tmp_path / "wrong.json").write_text(json.dumps(FILE_SYSTEM.data(wrong)))
    with pytest.raises(P3SError, match="damaged"):
        FileSystem.load(tmp_path / "wrong.json")


def test_typical_file_systems_can_be_read() -> None:
    for name in names():
        found = typical(name)
        assert found.source and found.limits and found.rates
    with pytest.raises(P3SError, match="no file system"):
        typical("none")


def place(*seen: FileSample, what: str = "write") -> FilePlace:
    """A place with what was seen of it."""
    return FilePlace("s", "POSIX_write", what, "posix", OWN, "", DENSE, 0.0, tuple(seen))


def seen(n: int, processes: int, nbytes: float, took: float) -> FileSample:
    """What was seen at a count."""
    return FileSample(n, processes, 1.0, 1.0, nbytes, took)


def test_the_runs_tell_rates_and_limits() -> None:
    free = place(seen(2, 2, 1e6, 0.01), seen(4, 4, 1e6, 0.01), seen(8, 8, 1e6, 0.01))
    assert span_of(free, 32, 1e6, 1e6, None).s == pytest.approx(0.01)
    limited = place(seen(2, 2, 1e6, 0.01), seen(4, 4, 1e6, 0.02), seen(8, 8, 1e6, 0.04))
    assert span_of(limited, 32, 1e6, 1e6, None).s == pytest.approx(0.16)
    found = as_traced(free, 32, 1e6, 32e6)
    assert found.low_s <= 0.01 <= 0.04 <= found.high_s  # as if the highest rate were a limit


def test_one_writer_stays_one() -> None:
    root = place(seen(2, 1, 1e6, 0.01), seen(4, 1, 1e6, 0.01))
    assert root.processes(64) == 1
    half = place(seen(2, 1, 1e6, 0.01), seen(4, 2, 1e6, 0.01))
    assert half.processes(64) == 32


def test_a_file_that_is_truncated_waits_for_what_is_on_its_way() -> None:
    lines = "posix own open dense 1048576 8 0.001\nposix own renew dense 1048576 8 0.01\n"
    found = FileSystem("one", "ext4", tuple(parse_rates(lines, 4)))
    data = 8 << 20
    fresh = place(seen(4, 4, 0, 0.01), what="open")
    assert span_of(fresh, 4, data, data, found).s == pytest.approx(0.001)
    again = place(replace(seen(4, 4, 0, 0.01), renews=0.8), what="open")
    assert span_of(again, 4, data, data, found).s == pytest.approx(0.001 + 0.8 * 0.01)
    unknown = FileSystem("one", "ext4", tuple(parse_rates(lines.splitlines()[0], 4)))
    assert span_of(again, 4, data, data, unknown).s == pytest.approx(0.001)


def test_calls_that_move_nothing_have_a_trend() -> None:
    opened = place(seen(2, 2, 0, 0.01), seen(4, 4, 0, 0.02), seen(8, 8, 0, 0.04), what="open")
    assert span_of(opened, 16, 0, 0, None).s == pytest.approx(0.08, rel=0.05)


@pytest.mark.parametrize(
    ("op", "what", "collective"),
    [
        ("MPI_File_write_at_all", "write", True),
        ("MPI_File_iread_all", "read", True),
        ("MPI_File_write_ordered_begin", "write", True),
        ("MPI_File_write_ordered_end", "other", False),
        ("MPI_File_write_shared", "write", False),
        ("MPI_File_open", "open", True),
        ("MPI_File_sync", "sync", True),
        ("MPI_File_delete", "other", False),
        ("POSIX_fwrite", "write", False),
        ("POSIX_pread", "read", False),
        ("POSIX_fsync", "sync", False),
        ("POSIX_fclose", "close", False),
    ],
)
def test_what_calls_do_to_files(op: str, what: str, collective: bool) -> None:
    assert kind_of(op) == "io"
    assert is_modelled(op)
    assert file_work(op) == what
    assert is_file_collective(op) is collective
    assert leaves_file_request(op) is (op == "MPI_File_iread_all")


CALL_S = 0.005


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("disk") / "disk"
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    words = [compiler, "-O1", str(PROGRAMS / "io/disk.cpp"), "-o", str(target), "-lsimgrid"]
    if subprocess.run(words, capture_output=True, timeout=120).returncode:
        pytest.skip("no SimGrid to compile with")
    return target


def took(disk: Path, processes: int, nbytes: int, calls: int) -> float:
    """Seconds until all have written."""
    words = [str(disk), str(processes), str(nbytes), str(calls), str(CALL_S)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=True)
    return float(done.stdout.split()[-1])


@pytest.mark.parametrize(("processes", "mib", "calls"), [(16, 16, 16), (64, 16, 16), (64, 8, 1)])
def test_many_processes_on_one_disk(disk: Path, processes: int, mib: int, calls: int) -> None:
    rates = []
    for k in (1, 2, 4, 8):
        lines = [
            f"posix own write dense {size} {number} {took(disk, k, size * number, number)}"
            for size, number in ((4096, 256), (1 << 20, 16))
        ]
        rates += parse_rates("\n".join(lines), k)
    nbytes = mib << 20
    found = FileSystem("simulated", "disk", tuple(rates)).seconds(
        "posix", OWN, "write", DENSE, processes=processes, calls=calls, nbytes=nbytes
    )
    assert found is not None
    assert found.s == pytest.approx(took(disk, processes, nbytes, calls), rel=0.02)
