"""Captures that were swapped, and ranks too long to be held at once."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from capture_writer import Writer, begun
from load_captures import halo, write_rank, write_study

from p3s.base.artefacts import is_stale, stated_digest
from p3s.base.errors import P3SError
from p3s.base.progress import Progress
from p3s.base.settings import traces_of
from p3s.base.study import Study
from p3s.capture import ranks, reader
from p3s.capture.check import check
from p3s.capture.order import Forward, backwards
from p3s.capture.reader import mark_of
from p3s.capture.recover import places_at
from p3s.capture.rewrite import Messages
from p3s.pipeline.stages import ensure_compute, ensure_model, ensure_scaled
from p3s.signature import clock as blocks
from p3s.signature.part import Part, Sites, join, part_of
from p3s.signature.signature import characterize

BAR = Progress()


def made(root: Path, turns: int) -> Path:
    """Return a study of a halo exchange with its model and a scaled trace."""
    write_study(root, [2, 4, 8], halo, turns)
    study = Study(root)
    ensure_model(study, BAR)
    ensure_compute(study, BAR)
    ensure_scaled(study, 16, BAR)
    return root


@pytest.fixture(scope="module")
def studies(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    root = tmp_path_factory.mktemp("swapped")
    return made(root / "one", 20), made(root / "other", 30)


def put(source: Path, target: Path) -> None:
    """Put files into the place of others, as old as these: dates tell nothing."""
    old = target.stat() if target.is_file() else None
    shutil.copy2(source, target)
    if old is not None:
        os.utime(target, ns=(old.st_atime_ns, old.st_mtime_ns))


def put_captures(source: Path, target: Path) -> None:
    for path in source.glob("rank-*.p3t"):
        put(path, target / path.name)


def test_captures_of_another_count_are_refused(studies: tuple[Path, Path], tmp_path: Path) -> None:
    study = Study(Path(shutil.copytree(studies[0], tmp_path / "s")))
    put_captures(study.runs_dir(8), study.runs_dir(4))
    with pytest.raises(P3SError, match="holds a run of 8 processes, not 4"):
        ensure_model(study, BAR)
    status = {each.path.name: check(each) for each in places_at(study.root)}
    assert "it is a run of 8 processes, not 4" in status["np0004.r0"].problems
    assert not status["np0008.r0"].problems


def _captures(one: Study, other: Study) -> None:
    put_captures(other.runs_dir(4), one.runs_dir(4))


def _signature(one: Study, other: Study) -> None:
    for path in (other.root / "signature").glob("np0004*"):
        put(path, one.root / "signature" / path.name)


def _signature_of_another_count(one: Study, _other: Study) -> None:
    for path in (one.root / "signature").glob("np0008*"):
        put(path, path.with_name(path.name.replace("np0008", "np0004")))


def _model(one: Study, other: Study) -> None:
    put(other.model_path, one.model_path)


def _phases(one: Study, other: Study) -> None:
    from p3s.signature.store import load_phases

    for each in (one, other):
        load_phases(traces_of(each))
    put(other.phases_path, one.phases_path)


@pytest.mark.parametrize("swap", [_signature, _signature_of_another_count, _model, _phases])
def test_an_artefact_of_another_study_is_made_again(
    swap: Callable[[Study, Study], None], studies: tuple[Path, Path], tmp_path: Path
) -> None:
    from p3s.signature.store import load_phases

    one, other = (Study(Path(shutil.copytree(s, tmp_path / s.name))) for s in studies)
    swap(one, other)
    ensure_model(one, BAR)
    whole = Study(studies[0])
    assert one.model_path.read_bytes() == whole.model_path.read_bytes()
    assert load_phases(traces_of(one)) == load_phases(traces_of(whole))


def test_captures_of_another_study_give_another_signature(
    studies: tuple[Path, Path], tmp_path: Path
) -> None:
    one, other = (Study(Path(shutil.copytree(s, tmp_path / s.name))) for s in studies)
    _captures(one, other)
    ensure_model(one, BAR)
    before = {n: stated_digest(Study(studies[0]).signature_path(n)) for n in (4, 8)}
    now = {n: stated_digest(one.signature_path(n)) for n in (4, 8)}
    assert now[4] != before[4] and now[8] == before[8]


def test_a_scaled_trace_of_another_model_is_made_again(
    studies: tuple[Path, Path], tmp_path: Path
) -> None:
    one, other = (Study(Path(shutil.copytree(s, tmp_path / s.name))) for s in studies)
    assert not is_stale(one.scaled_path(16), [one.model_path, one.compute_path])
    for path in other.scaled_dir(16).iterdir():
        put(path, one.scaled_dir(16) / path.name)
    assert is_stale(one.scaled_path(16), [one.model_path, one.compute_path])
    ensure_scaled(one, 16, BAR)
    whole = Study(studies[0])
    assert one.scaled_path(16).read_bytes() == whole.scaled_path(16).read_bytes()


def test_a_copied_study_is_as_it_was(studies: tuple[Path, Path], tmp_path: Path) -> None:
    one, whole = Study(Path(shutil.copytree(studies[0], tmp_path / "s"))), Study(studies[0])
    shutil.rmtree(one.runs_dir(4))
    one.runs_dir(4).mkdir()
    shutil.copy2(whole.runs_dir(4) / "run.json", one.runs_dir(4))
    assert mark_of(one.runs_dir(4)) == "", "captures may be deleted once they are read"
    before = one.model_path.stat().st_mtime_ns
    ensure_model(one, BAR)
    assert one.model_path.stat().st_mtime_ns == before


def test_a_run_of_many_ranks_is_known_by_some(tmp_path: Path) -> None:
    write_study(tmp_path / "s", [100], halo, 1)
    run = Study(tmp_path / "s").runs_dir(100)
    whole = mark_of(run)
    for rank in (0, 99):
        path = run / f"rank-{rank:06d}.p3t"
        data = path.read_bytes()
        path.write_bytes(data + b"\0")
        assert mark_of(run) != whole
        path.write_bytes(data)
    (run / "rank-000050.p3t").unlink()
    assert mark_of(run) != whole


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
