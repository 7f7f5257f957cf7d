"""The tracer does no harm: killed ranks, unwritable or full trace files, no trace directory."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from time_limits import LIMIT_S, over_when
from tracer_helpers import PROGRAMS, TIMEOUT_S, compile_c, recorded, the_mpi, trace, usable_mpi

from p3s.base.errors import P3SError
from p3s.capture import read_run
from p3s.signature_runner import build
from p3s.signature_runner.diagnose import captures_of
from p3s.signature_runner.endings import last_call
from p3s.signature_runner.launch import run_traced
from p3s.signature_runner.recording import recording

pytestmark = [pytest.mark.skipif(the_mpi() is None, reason="no usable MPI")]


@pytest.fixture(scope="module")
def dies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_c(PROGRAMS / "dies.c", tmp_path_factory.mktemp("bin") / "dies")


def _launch(program: list[str], np: int, run_dir: Path, timeout_s: float = TIMEOUT_S) -> None:
    install = usable_mpi()
    run_traced([install.mpiexec, "-n", "{np}", *program], np, run_dir, timeout_s=timeout_s)


@pytest.mark.parametrize(
    ("how", "turns"),
    [("kill", 0), ("kill", 1), ("kill", 9000), ("segv", 2), ("_exit", 2), ("abort", 2)],
)
def test_a_dead_rank_loses_no_event_that_had_returned(
    dies: Path, how: str, turns: int, tmp_path: Path
) -> None:
    with pytest.raises(P3SError, match=r"rank 1 of 2 died") as caught:
        _launch([str(dies), how, str(turns)], 2, tmp_path)
    assert "\n" not in str(caught.value)
    run = read_run(tmp_path)
    one = run.ranks[1]
    assert not one.complete
    assert recorded(run, 1) == (
        ["MPI_Init -1 0 1 -1 -1 2"]
        + turns * ["MPI_Sendrecv_replace 0 4 4 0 -1 2", "MPI_Sendrecv_recv 0 4 4 0 -1 2"]
    )
    assert json.loads((tmp_path / "run.json").read_text())["status"] == "partial"


def test_a_program_that_refuses_is_quoted(dies: Path, tmp_path: Path) -> None:
    with pytest.raises(P3SError, match=r"rank 1 of 2 died \(called MPI_Abort\(9\)") as caught:
        _launch([str(dies), "abort", "3"], 2, tmp_path)
    # A launcher may end the rank's output before it has passed it on.
    if "cannot factor" in (tmp_path / "stderr.txt").read_text():
        assert "cannot factor 7 ranks" in str(caught.value)


@pytest.mark.parametrize(
    ("how", "own"),
    [
        ("exit", "exit code 5"),
        ("abort", "killed by SIGABRT"),
        ("kill", "killed by SIGKILL"),
        ("segv", "killed by SIGSEGV"),
    ],
)
@pytest.mark.parametrize("rank", [0, 3])
def test_the_cause_of_death_is_that_of_the_rank(
    how: str, own: str, rank: int, tmp_path: Path
) -> None:
    """A launcher that kills the others must not have its own signal taken for the cause."""
    program = compile_c(PROGRAMS / "culprit.c", tmp_path / "culprit")
    with pytest.raises(P3SError) as caught:
        _launch([str(program), how, str(rank)], 4, tmp_path / "run")
    said = str(caught.value)
    found = re.search(r"rank (\d) of 4 died \((.*?)(?:, )?after MPI_Barrier\)", said)
    assert found is not None, said
    assert int(found[1]) == rank and found[2] in ("", own), said


def test_a_hanging_program_is_stopped_and_says_where(dies: Path, tmp_path: Path) -> None:
    def hangs() -> bool:
        captures = captures_of(tmp_path)
        there = [last_call(captures.get(rank)) for rank in (0, 1)]
        return there == [", inside MPI_Barrier", ", inside MPI_Recv"]

    with (
        over_when(hangs),
        pytest.raises(P3SError, match=r"rank 0 inside MPI_Barrier, rank 1 inside MPI_Recv"),
    ):
        _launch([str(dies), "hang", "3"], 2, tmp_path, timeout_s=LIMIT_S)
    assert len(read_run(tmp_path).ranks[1].call) == 7
    pids = [rank_pid(tmp_path / f"rank-{rank:06d}.p3t") for rank in (0, 1)]
    assert not any(os.path.exists(f"/proc/{pid}/exe") for pid in pids)


def rank_pid(path: Path) -> int:
    from p3s.capture.chunks import read_header

    return read_header(path).pid


def test_a_bad_exit_code_after_the_end_is_an_error(dies: Path, tmp_path: Path) -> None:
    with pytest.raises(P3SError, match="exit code 4"):
        _launch([str(dies), "exit", "3"], 2, tmp_path)
    assert all(rank.complete for rank in read_run(tmp_path).ranks)


def test_a_full_file_stops_recording_not_the_program(tmp_path: Path) -> None:
    program = compile_c(PROGRAMS / "full.c", tmp_path / "full")
    install = usable_mpi()
    outcome = run_traced(
        [install.mpiexec, "-n", "{np}", str(program)], 2, tmp_path / "run", timeout_s=TIMEOUT_S
    )
    assert outcome.exit_code == 0
    assert len(outcome.problems) == 1 and "recording stopped early" in outcome.problems[0]
    assert (tmp_path / "run" / "stdout.txt").read_text() == f"sum {30000 * 29999 // 2}\n"
    assert (tmp_path / "run" / "stderr.txt").read_text().count("p3s: warning") == 1
    run = read_run(tmp_path / "run")
    for rank in run.ranks:
        assert not rank.complete
        assert 5000 < len(rank.call) < 30000
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "partial"


@pytest.mark.parametrize("directory", [None, "missing"])
def test_without_a_place_to_write_the_program_runs_on(
    dies: Path, directory: str | None, tmp_path: Path
) -> None:
    tracer = build.ensure_tracer(program=str(dies))
    env = {**os.environ, "LD_PRELOAD": str(tracer.path)}
    env.pop("P3S_TRACE_DIR", None)
    if directory:
        env["P3S_TRACE_DIR"] = str(tmp_path / directory)
    # Run as a singleton: no launcher is needed for one rank.
    done = subprocess.run(
        [str(dies), "none", "3"], env=env, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert done.returncode == 0
    assert done.stderr.count("p3s: warning") == (1 if directory else 0)
    assert not list(tmp_path.rglob("*.p3t"))


def test_an_abort_in_an_error_handler_is_told(tmp_path: Path) -> None:
    program = compile_c(
        """
        #include <mpi.h>
        static void on_error(MPI_Comm *comm, int *code, ...) { MPI_Abort(*comm, 7); }
        int main(void)
        {
            MPI_Errhandler handler;
            MPI_Init(0, 0);
            MPI_Comm_create_errhandler(on_error, &handler);
            MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
            MPI_Send(0, 0, MPI_INT, 77, 0, MPI_COMM_WORLD);
        }
        """,
        tmp_path / "aborts",
    )
    with pytest.raises(P3SError, match=r"rank 0 of 1 died \(called MPI_Abort\(7\)"):
        _launch([str(program)], 1, tmp_path / "run")


def test_a_program_may_close_the_tracers_file(tmp_path: Path) -> None:
    """The number of the descriptor is then that of a file of the program's own."""
    program = compile_c(PROGRAMS / "closes.c", tmp_path / "closes")
    run = trace([str(program), str(tmp_path / "own")], 1, tmp_path / "run")
    assert (tmp_path / "own").read_text() == "mine"
    assert run.problem == "" and len(run.ranks[0].call) == 20002


def test_a_thread_may_have_a_small_stack(tmp_path: Path) -> None:
    program = compile_c(PROGRAMS / "small_stack.c", tmp_path / "small", "-pthread")
    tracer = build.ensure_tracer(program=str(program))
    used = []
    for more in ({}, {"LD_PRELOAD": str(tracer.path), "P3S_TRACE_DIR": str(tmp_path)}):
        done = subprocess.run(
            [str(program)],
            env={**os.environ, **more},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=True,
        )
        used.append(int(done.stdout))
    assert len(read_run(tmp_path).ranks[0].call) > 2
    assert used[1] < used[0] + 8192


def test_a_shell_between_launcher_and_program_is_no_obstacle(dies: Path, tmp_path: Path) -> None:
    script = tmp_path / "start.sh"
    script.write_text(f'#!/bin/sh\nls / >/dev/null\nexec "{dies}" "$@"\n')
    script.chmod(0o755)
    run = trace([str(script), "none", "2"], 2, tmp_path / "run")
    assert [len(rank.call) for rank in run.ranks] == [7, 7]


@pytest.mark.parametrize("limit", ["", "1M"])
def test_a_program_that_never_repeats_itself_takes_little_memory(
    limit: str, tmp_path: Path
) -> None:
    distinct = 200_000  # more than the tracer keeps in mind; each comes again later
    program = compile_c(PROGRAMS / "irregular.c", tmp_path / "irregular")
    install = usable_mpi()
    words = [install.mpiexec, "-n", "{np}", str(program)]
    used = []
    for count in (1, distinct):
        target = tmp_path / f"run{count}"
        run_traced(
            [*words, str(count)], 1, target, timeout_s=TIMEOUT_S, recording=recording(limit=limit)
        )
        used.append(int((target / "stdout.txt").read_text().split()[-2]))
    assert used[1] - used[0] < 16 << 10
    run = read_run(tmp_path / f"run{distinct}")
    sends = {call.bytes: number for number, call in enumerate(run.calls) if call.op == "MPI_Send"}
    assert len(sends) == distinct and not run.problem
    rank = run.ranks[0]
    assert len(rank.call) + rank.counted_events == 2 * distinct + 2
    for nbytes in (0, 70_000, distinct - 1):
        number = sends[nbytes]
        counted = rank.counted.get(number, (0, 0, 0))[0]
        assert (rank.call == number).sum() + counted == 2


def test_many_brief_calls_leave_the_work_after_them_as_it_is(tmp_path: Path) -> None:
    # The CPU clock is not read between calls that follow each other at once.
    calls = 20_000
    program = compile_c(PROGRAMS / "brief.c", tmp_path / "brief")
    install = usable_mpi()
    assert install.mpiexec is not None
    run_traced(
        [install.mpiexec, "-n", "{np}", str(program), str(calls)],
        1,
        tmp_path / "run",
        timeout_s=TIMEOUT_S,
        recording=recording("cpu"),
    )
    used = int((tmp_path / "run" / "stdout.txt").read_text())
    (rank,) = read_run(tmp_path / "run").ranks
    work = [int(value) for value in rank.work[1 : calls + 2]]
    assert 49_000_000 <= work[-1] <= used
    assert sum(work) <= used


def test_a_complete_file_ends_with_what_its_last_chunk_uses(tmp_path: Path) -> None:
    program = compile_c(PROGRAMS / "brief.c", tmp_path / "brief")
    _launch([str(program), "100"], 1, tmp_path / "run")
    path = tmp_path / "run" / "rank-000000.p3t"
    # Head, definitions, events, and the end: a page each, and the 64 + 112 bytes of END.
    assert path.stat().st_size == 3 * 4096 + 64 + 112
    assert read_run(tmp_path / "run").ranks[0].complete


def test_time_without_a_core_is_not_the_tracers(tmp_path: Path) -> None:
    """1 ms passes at every seventh look at the clock; only if somebody else ran it is left out."""
    program = compile_c(PROGRAMS / "lost_core.c", tmp_path / "lost_core", "-rdynamic")
    took = {}
    for how in ("lost", "alone"):
        _launch([str(program), how], 1, tmp_path / how)
        took[how] = read_run(tmp_path / how).ranks[0].tracer_ns
    assert took["alone"] > 100e6  # of 1,000 calls with four looks each many lose a millisecond
    assert took["lost"] < took["alone"] / 2
