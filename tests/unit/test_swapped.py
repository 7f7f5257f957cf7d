"""Captures and artefacts that were put into the place of others are not taken for these."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from load_captures import halo, write_study

from p3s.base.artefacts import is_stale, stated_digest
from p3s.base.errors import P3SError
from p3s.base.progress import Progress
from p3s.base.settings import traces_of
from p3s.base.study import Study
from p3s.capture.check import check
from p3s.capture.reader import mark_of
from p3s.capture.recover import places_at
from p3s.pipeline.stages import ensure_compute, ensure_model, ensure_scaled

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
