"""Ranks that are read in blocks give the same as ranks that are read as a whole."""

from __future__ import annotations

import resource
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from capture_writer import Writer, begun
from load_captures import halo, write_rank

from p3s.base.settings import traces_of
from p3s.base.study import Study
from p3s.capture import ranks, reader
from p3s.capture.order import Forward, backwards
from p3s.capture.rewrite import Messages
from p3s.signature import clock as blocks
from p3s.signature.part import Part, Sites, join, part_of
from p3s.signature.signature import characterize

NAMES = ("MPI_Init", "MPI_Send", "MPI_Recv", "MPI_Barrier", "MPI_Isend", "MPI_Waitall")


def by_chance(folder: Path, rank: int, seed: int, events: int = 400, counters: int = 0) -> Path:
    """A capture of calls in no order, some to nobody, some received from anybody."""
    chance = np.random.default_rng(seed + rank)
    w = Writer(rank, 3, counters=tuple(f"c{k}" for k in range(counters)))
    for number, name in enumerate(NAMES):
        w.opname(number, name)
    w.comm(0, [0, 1, 2], "MPI_COMM_WORLD")
    for site in range(6):
        w.site(0x100 + site, f"app+0x{site:x}")
    w.event(w.call(0), start=-100, elapsed=100, counters=(1,) * counters)
    calls = [w.call(1, 1 + k % 3, peer=peer, nbytes=8) for k, peer in enumerate((0, 1, -3, 2))]
    calls += [w.call(3, 4), w.call(4, 5, peer=1, nbytes=16), w.call(5, 5, comm=-1, nbytes=0)]
    anybody = w.call(2, 2, peer=-2, nbytes=8)
    for _ in range(events):
        which = int(chance.integers(0, len(calls) + 1))
        took, work = (int(each) for each in chance.integers(1, 90, 2))
        call = calls[which] if which < len(calls) else anybody
        more = tuple(int(each) for each in chance.integers(0, 50, counters))
        at = w.event(call, w.last_end + work + 5, took, work, more)
        if call == anybody:
            w.resolved(at, int(chance.integers(0, 3)), 4, 8)
    w.end()
    return w.save(folder)


def in_blocks(monkeypatch: pytest.MonkeyPatch, events: int) -> None:
    """Take every file for a long one, and a few events at a time."""
    monkeypatch.setattr(ranks, "LONG_BYTES", 0)
    monkeypatch.setattr(ranks, "BLOCK_EVENTS", events)
    monkeypatch.setattr(blocks, "EVENTS", events)


def read(paths: list[Path], sites: Sites | None = None) -> Part:
    messages = Messages(paths)
    return join(part_of(messages.read(path), sites) for path in paths)


def same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    return bool(one == other)


@pytest.mark.parametrize("size", [1, 7, 10_000])
@pytest.mark.parametrize("counters", [0, 2])
def test_a_part_does_not_depend_on_the_blocks(
    size: int, counters: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [by_chance(tmp_path, rank, seed=5, counters=counters) for rank in range(3)]
    whole = read(paths)
    with monkeypatch.context() as patched:
        patched.setattr(blocks, "EVENTS", size)
        cut = read(paths)
    in_blocks(monkeypatch, size)
    run = Messages(paths).read(paths[0])
    assert run.ranks.pieces(0) is not None  # type: ignore[attr-defined]
    streamed = read(paths)
    for field in fields(Part):
        name = field.name
        assert same(getattr(cut, name), getattr(whole, name)), name
        assert same(getattr(streamed, name), getattr(whole, name)), name


def test_what_needs_all_events_is_read_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = by_chance(tmp_path, 0, seed=1)
    apart = Sites(apart=frozenset({f"{0x101:016x}"}))
    whole = read([path], apart)
    in_blocks(monkeypatch, 50)
    cut = read([path], apart)
    assert all(same(getattr(cut, f.name), getattr(whole, f.name)) for f in fields(Part))
    w = begun("MPI_Irecv", 0, 1)
    w.resolved(w.event(w.call(0, peer=-2)), 0, 1, 8)
    w.end()
    run = reader.read_file(w.save(tmp_path))
    assert run.ranks.pieces(0) is None  # type: ignore[attr-defined]


def test_a_file_that_changes_while_it_is_read_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = by_chance(tmp_path, 0, seed=1)
    in_blocks(monkeypatch, 50)
    run = reader.read_file(path)
    by_chance(tmp_path, 0, seed=1, events=300)
    with pytest.raises(reader.P3SError, match="has changed while it was read"):
        part_of(run)


@pytest.mark.parametrize("size", [1, 3, 100])
def test_time_that_runs_backwards_is_found_in_blocks(size: int) -> None:
    start = np.arange(60) * 10_000_000
    start[[20, 40, 41]] -= 50_000_000
    thread = np.arange(60) % 2
    took = np.full(60, 5)
    for each in (None, thread):
        forward = Forward()
        for at in range(0, 60, size):
            part = slice(at, at + size)
            forward.take(start[part], took[part], None if each is None else each[part])
        assert forward.backwards() == backwards(start, took, each) != ""
    assert "at event 20 (" in backwards(start, took, thread)


_READ = """
import resource, sys
from pathlib import Path
from p3s.capture import ranks, reader
from p3s.signature import clock as blocks
ranks.LONG_BYTES = 0
ranks.BLOCK_EVENTS = blocks.EVENTS = 1 << 16
from p3s.signature.part import part_of
from p3s.methods.pas2p import match
from p3s.signature import clock, signature  # what is loaded later is no event's
from p3s.capture.rewrite import Messages
path = Path(sys.argv[1])
room = int(next(l.split()[1] for l in open('/proc/self/status') if 'VmSize' in l)) * 1024
resource.setrlimit(resource.RLIMIT_AS, (room + int(sys.argv[2]),) * 2)
print(part_of(Messages([path]).read(path)).events)
"""


def test_a_long_rank_is_read_in_little_memory(tmp_path: Path) -> None:
    """Three million events in 28 bytes each and 40 MiB; their columns alone would be 84 MB."""
    events = write_rank(tmp_path, 0, 1, halo, 500_000)
    path = tmp_path / "rank-000000.p3t"
    room = 28 * events + (40 << 20)
    done = subprocess.run(
        [sys.executable, "-c", _READ, str(path), str(room)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)),
    )
    assert (done.stdout.strip(), done.returncode) == (str(events), 0), done.stderr[-500:]


def test_a_signature_is_the_same_from_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from load_captures import write_study

    study = tmp_path / "study"
    write_study(study, [2], halo, 300)
    characterize(traces_of(Study(study)), 2)
    files = sorted(Study(study).signature_path(2).parent.iterdir())
    before = [path.read_bytes() for path in files]
    in_blocks(monkeypatch, 100)
    characterize(traces_of(Study(study)), 2)
    assert [path.read_bytes() for path in files] == before and len(files) > 5
