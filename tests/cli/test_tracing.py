"""Tracing is one function: commands and Python make the same study, and tell the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import cli
from test_cli_stages import LAUNCH, Outcome, Stages
from test_cli_stages import stages as stages

import p3s
from p3s.base.errors import P3SError, UsageError
from p3s.base.progress import Progress
from p3s.base.study import Study
from p3s.signature_runner.standard_input import NAME, StandardInput


class Told(Progress):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def done(self, text: str) -> None:
        self.lines.append(text)

    def say(self, text: str) -> None:
        self.lines.append(text)


def by_command(root: Path) -> list[str]:
    shown = cli(f"characterize -n 2,4,6,8 -o {root} --", *LAUNCH, code=3)
    return shown.err.replace("p3s: ", "").splitlines()


def by_prediction(root: Path) -> list[str]:
    command = f"predict {root} -n 16 --no-replay --from 2,4,6,8 --"
    return cli(command, *LAUNCH, code=None).err.replace("p3s: ", "").splitlines()


def by_function(root: Path) -> list[str]:
    told = Told()
    assert p3s.trace(LAUNCH, [8, 6, 4, 2], study=root, progress=told).counts == (2, 4, 8)
    return told.lines


def by_study(root: Path) -> list[str]:
    told = Told()
    p3s.Study.trace(root, " ".join(LAUNCH), (2, 4, 6, 8), progress=told)
    return told.lines


WAYS = [by_command, by_prediction, by_function, by_study]


@pytest.mark.parametrize("way", WAYS)
def test_every_way_makes_the_same_study(
    way: Callable[[Path], list[str]],
    stages: Stages,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stages.exit_codes = {6: 3}
    stages.stderr = "six is refused"
    root = tmp_path / "study"
    lines = way(root)
    study = Study.open(root)
    assert study.command() == LAUNCH
    assert [(run.np, run.rep, run.status) for run in study.runs()] == [
        (n, 0, "complete") for n in (2, 4, 8)
    ]
    assert study.signature_counts() == [2, 4, 8] and study.failed_counts() == [6]
    kinds = [call for call in stages.kinds() if call[0] in ("run", "characterize")]
    assert kinds[:7] == [
        *(step for n in (2, 4) for step in (("run", n), ("characterize", n))),
        ("run", 6),
        ("run", 8),
        ("characterize", 8),
    ]
    assert {"np=2: 1.0 s", "np=6: failed", "np=8: 1.0 s"} <= set(lines)
    assert any("six is refused" in line and line.endswith("kept: 2, 4, 8") for line in lines)
    assert way in (by_command, by_prediction) or not any(capsys.readouterr())


def test_python_and_the_command_refuse_alike(
    stages: Stages, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "study"
    stages.exit_codes = {2: 1, 4: 1, 8: 1}
    for counts, code, kind in (([2, 4], 2, UsageError), ([2, 4, 8], 1, P3SError)):
        listed = ",".join(map(str, counts))
        *_, line = cli(
            "characterize -n", listed, "-o", root, "--", *LAUNCH, code=code
        ).err.splitlines()
        with pytest.raises(kind) as caught:
            p3s.trace(LAUNCH, counts, study=root)
        assert f"p3s: {caught.value}" == line
    streams = capsys.readouterr()
    assert not streams.out + streams.err, "a library prints nothing"


def test_an_interrupt_in_python_keeps_what_was_finished(
    stages: Stages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = stages.run_traced

    def interrupted(template: list[str], np: int, run_dir: Path, **more: Any) -> Outcome:
        if np == 4:
            raise KeyboardInterrupt
        return real(template, np, run_dir, **more)

    monkeypatch.setattr("p3s.signature_runner.launch.run_traced", interrupted)
    told = Told()
    with pytest.raises(KeyboardInterrupt):
        p3s.trace(LAUNCH, [2, 4, 8], study=tmp_path / "s", progress=told)
    study = Study.open(tmp_path / "s")
    assert study.counts() == study.signature_counts() == [2]
    assert told.lines[-1].startswith("p3s: np=4: stopped before its end; to go on, run p3s ")
    assert "-n 4,8" in told.lines[-1]


@pytest.mark.parametrize(("given", "expected"), [(None, b""), ("input.txt", b"three lines")])
def test_python_passes_standard_input_only_where_it_is_given(
    given: str | None,
    expected: bytes,
    stages: Stages,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "input.txt").write_bytes(b"three lines")
    real, got = stages.run_traced, []

    def reads(template: list[str], np: int, run_dir: Path, *, stdin: StandardInput, **more: Any):  # type: ignore[no-untyped-def]
        stdin.put(run_dir)
        path = run_dir / NAME
        got.append(path.read_bytes() if path.exists() else b"")
        return real(template, np, run_dir, **more)

    monkeypatch.setattr("p3s.signature_runner.launch.run_traced", reads)
    monkeypatch.setattr(
        "p3s.signature_runner.standard_input.take_input", lambda: pytest.fail("own")
    )
    where = given and str(tmp_path / given)
    p3s.trace(LAUNCH, [2, 4, 8], study=tmp_path / "s", stdin=where)
    assert got == [expected] * 3


def test_the_json_of_a_trace_has_its_rows(stages: Stages, tmp_path: Path) -> None:
    stages.exit_codes = {4: 1}
    command = ["characterize", "--json", "-n", "2,4,6,8", "-o", str(tmp_path / "s"), "--", *LAUNCH]
    found = cli(*command, code=3).data
    assert list(found["counts"][0]) == [
        *("np", "times", "runs", "signature", "not_modelled", "tracing", "buffers")
    ]
    row = {"rep": 0, "wall_s": 1.0, "exit_code": 0, "oversubscribed": False}
    assert found["counts"][0]["runs"] == [row]
    (failure,) = found["failed"]
    assert list(failure) == ["np", "rep", "exit_code", "reason", *["refused"] * (len(failure) > 4)]
