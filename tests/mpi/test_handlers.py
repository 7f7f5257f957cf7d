"""Signal handlers: the tracer allocates and locks nothing there, and calls are counted."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from signal_trials import TRIED, Ending, Trial, compiled, run
from tracer_helpers import PROGRAMS, TIMEOUT_S, compile_c, the_mpi

from p3s.capture import read_run
from p3s.capture.chunks import read_header
from p3s.signature_runner import build

pytestmark = [pytest.mark.mpi, pytest.mark.skipif(the_mpi() is None, reason="no usable MPI")]

#: Bytes of a handler's stack that the tracer may take.
MOST_STACK = 512
#: Calls of the C library in a handler of handlers.c, which runs on two stacks.
CALLS, STACKS = 7, 2


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("bin")
    return {
        **compiled(folder),
        "handlers.c": compile_c(PROGRAMS / "handlers.c", folder / "h", "-w"),
    }


@pytest.fixture(scope="module")
def tracer(made: dict[str, Path]) -> Path:
    return Path(build.ensure_tracer(program=str(made["handlers.c"])).path)


@pytest.mark.parametrize(("every", "stack", "mpi"), [(1, 0, False), (2, 1536, False), (3, 0, True)])
@pytest.mark.parametrize("program", TRIED)
def test_a_signal_at_every_operation_changes_nothing(
    program: str,
    every: int,
    stack: int,
    mpi: bool,
    made: dict[str, Path],
    tracer: Path,
    tmp_path: Path,
) -> None:
    trial = Trial(program, every, stack, mpi and not TRIED[program])
    result = run(trial, made, tmp_path / "traced", tracer)
    if (
        result.ending != Ending.SAME
        and run(trial, made, tmp_path / "plain", None).ending != Ending.SAME
    ):
        pytest.skip(f"this MPI does not run {program} without the tracer")
    assert result.ending == Ending.SAME, result.line
    assert result.handlers > 100
    assert all(rank.complete for rank in read_run(tmp_path / "traced" / "run").ranks)


def _used(text: str) -> dict[str, int]:
    return {line.split()[1]: int(line.split()[2]) for line in text.splitlines()}


def test_little_stack_is_used_and_calls_are_counted(
    made: dict[str, Path], tracer: Path, tmp_path: Path
) -> None:
    times, folder = 3, tmp_path / "run"
    folder.mkdir()
    env = {"LD_PRELOAD": str(tracer), "P3S_TRACE_DIR": str(folder)}
    texts = [
        subprocess.run(
            [str(made["handlers.c"]), str(times)],
            cwd=tmp_path,
            env={**os.environ, **more},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=TIMEOUT_S,
        ).stdout
        for more in ({}, env)
    ]
    plain, traced = map(_used, texts)
    assert len(plain) == CALLS
    more = {name: traced[name] - plain[name] for name in plain}
    assert max(more.values()) <= MOST_STACK, more
    assert read_header(folder / "rank-000000.p3t").in_handlers == times * CALLS * STACKS
    run_ = read_run(folder)
    assert not [call.op for call in run_.calls if call.op.startswith("POSIX_")]
