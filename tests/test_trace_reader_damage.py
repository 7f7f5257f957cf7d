"""A capture that is not what the tracer wrote is never modelled without a word."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from test_trace_reader import END, HEADER_BYTES, Writer, small

from p3s.characterize import characterize
from p3s.errors import P3SError
from p3s.study import RUN_SCHEMA, SCHEMA_VERSION, Study, write_json
from p3s.trace import read_run
from p3s.trace.capture import read_capture

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix(x: int) -> int:
    x ^= x >> 31
    x = x * GOLDEN & MASK
    x ^= x >> 29
    x = x * 0xBF58476D1CE4E5B9 & MASK
    return x ^ x >> 32


def checked(rank: int, size: int = 2) -> Writer:
    """A capture with a checksum, formed from docs/capture-format.md."""
    w = small(rank, size)
    w.data = w.data[:-16]
    total = 0
    for at in [*range(0, 56, 8), *range(80, 168, 8), *range(HEADER_BYTES, len(w.data), 8)]:
        (word,) = struct.unpack_from("<Q", w.data, at)
        total += mix((word + at * GOLDEN) & MASK)
    w.record(END, struct.pack("<QQ", w.events, total & MASK))
    return w


def a_study(root: Path, repeats: int = 1) -> Study:
    study = Study.create(root, ["mpiexec", "-n", "{np}", "./app"])
    for rep in range(repeats):
        run = study.runs_dir(2, rep)
        run.mkdir(parents=True)
        for rank in (0, 1):
            checked(rank).save(run)
        write_json(
            run / "run.json",
            {
                "schema": RUN_SCHEMA, "schema_version": SCHEMA_VERSION, "np": 2, "exit_code": 0,
                "argv": ["mpiexec", "-n", "2", "./app"], "wall_s": 1.0, "oversubscribed": False,
                "cores": 2, "mpi": "mpich 5", "traced": True, "status": "complete",
            },
        )  # fmt: skip
    study.update()
    return study


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-376])


def noise(path: Path) -> None:
    data = bytearray(path.read_bytes())
    middle = (HEADER_BYTES + len(data)) // 2
    data[middle : middle + 60] = random.Random(7).randbytes(60)
    path.write_bytes(data)


def one_time(path: Path) -> None:
    """Nothing but the checksum can tell that a duration is not the one measured."""
    data = path.read_bytes()
    event = struct.pack("<IIqqq", 1, 0, 40, 10, 5)
    assert data.count(event) == 1
    path.write_bytes(data.replace(event, struct.pack("<IIqqq", 1, 0, 40, 1000, 5)))


def an_event_less(path: Path) -> None:
    data = path.read_bytes()
    at = data.index(struct.pack("<II", 5, 32) + struct.pack("<IIqqq", 1, 0, 40, 10, 5))
    path.write_bytes(data[:at] + data[at + 40 :])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def after_the_end(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"left from something else")


DAMAGES = [
    (cut, "ends before MPI_Finalize|is damaged at byte"),
    (noise, "is damaged"),
    (one_time, "checksum"),
    (an_event_less, "6 of 7 events"),
    (Path.unlink, "is missing"),
    (empty, "is empty"),
    (after_the_end, "is damaged at byte"),
]


def test_an_intact_capture_fits_its_checksum(tmp_path: Path) -> None:
    study = a_study(tmp_path)
    run = read_run(study.runs_dir(2))
    assert run.problem == "" and run.missing == ()
    assert characterize(study.root, 2)["left_out"] == []


@pytest.mark.parametrize(("damage", "why"), DAMAGES)
@pytest.mark.parametrize("rank", [0, 1])
def test_a_damaged_capture_is_not_characterized(
    damage: Callable[[Path], None], why: str, rank: int, tmp_path: Path
) -> None:
    study = a_study(tmp_path)
    path = study.runs_dir(2) / f"rank-{rank:06d}.p3t"
    damage(path)
    run = read_run(study.runs_dir(2))
    assert [r.complete for r in run.ranks] == [r != rank for r in (0, 1)]
    assert run.missing == (() if path.exists() else (rank,))
    with pytest.raises(P3SError, match=why) as caught:
        characterize(study.root, 2)
    said = str(caught.value)
    assert "\n" not in said and str(path) in said and said.count("; ") == 1
    assert said.endswith("run `p3s characterize -n 2` again")
    assert not study.signature_path(2).exists()


@pytest.mark.parametrize(("damage", "why"), DAMAGES)
def test_an_intact_repeat_stands_in(
    damage: Callable[[Path], None], why: str, tmp_path: Path
) -> None:
    study = a_study(tmp_path, repeats=2)
    path = study.runs_dir(2, 0) / "rank-000001.p3t"
    damage(path)
    signature = characterize(study.root, 2)
    assert signature["repeats"] == 1
    assert len(signature["left_out"]) == 1 and str(path) in signature["left_out"][0]


def test_a_run_without_any_file_is_named(tmp_path: Path) -> None:
    study = a_study(tmp_path)
    for path in study.runs_dir(2).glob("*.p3t"):
        path.unlink()
    with pytest.raises(P3SError, match=r"np0002.r0 holds no capture.*run `p3s characterize -n 2`"):
        characterize(study.root, 2)


def test_a_run_of_another_count_is_not_used(tmp_path: Path) -> None:
    study = a_study(tmp_path)
    for rank in (0, 1, 2):
        checked(rank, 3).save(study.runs_dir(2))
    with pytest.raises(P3SError, match="a run of 3 processes, not 2"):
        characterize(study.root, 2)


def test_no_altered_byte_of_the_records_passes(tmp_path: Path) -> None:
    data = checked(0, 1).data
    path = tmp_path / "rank-000000.p3t"
    path.write_bytes(data)
    assert read_capture(path).complete
    for at in [*range(24, 56), *range(80, 168), *range(HEADER_BYTES, len(data))]:
        damaged = bytearray(data)
        damaged[at] ^= 0x10
        path.write_bytes(damaged)
        assert not read_capture(path).complete, at
