"""Tasks are computed by other processes, or here: the results and their order are the same."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from p3s.base import workers
from p3s.base.errors import P3SError, UsageError
from p3s.cli.main import _with_ranks

HERE = Path(__file__)


def with_process(number: int, seconds: float = 0.0) -> tuple[int, int]:
    time.sleep(seconds)
    return number, os.getpid()


def fails(number: int) -> int:
    if number >= 3:
        raise P3SError(f"task {number}: no")
    return number


def dies_elsewhere(number: int, here: int) -> int:
    if os.getpid() != here:
        os._exit(9)
    return number


def slow_elsewhere(number: int, seconds: float, here: int) -> int:
    if os.getpid() != here:
        time.sleep(seconds)
    return number


def of_tasks(number: int) -> set[int]:
    """Return the processes that compute the tasks of a task."""
    return {pid for _, pid in workers.run_tasks(with_process, [(k,) for k in range(4)], HERE, 2)}


def array_of(size: int) -> np.ndarray:
    return np.arange(size)


@pytest.mark.parametrize("jobs", [1, 2, 3])
def test_results_come_in_the_order_of_the_tasks(jobs: int) -> None:
    tasks = [(k, 0.05 if k == 0 else 0.0) for k in range(40)]
    found = list(workers.run_tasks(with_process, tasks, HERE, jobs))
    assert [number for number, _ in found] == list(range(40))
    assert (len({pid for _, pid in found}) > 1) == (jobs > 1)


def test_this_process_computes_as_well() -> None:
    found = list(workers.run_tasks(with_process, [(k, 0.05) for k in range(12)], HERE, 2))
    assert os.getpid() in {pid for _, pid in found} and len({pid for _, pid in found}) == 2


def test_the_error_is_that_of_the_first_task_that_has_one() -> None:
    coming = workers.run_tasks(fails, [(k,) for k in range(8)], HERE, 2)
    assert [next(coming) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(P3SError, match="task 3: no"):
        next(coming)


def test_a_process_that_dies_is_made_up_for() -> None:
    tasks = [(k, os.getpid()) for k in range(6)]
    assert list(workers.run_tasks(dies_elsewhere, tasks, HERE, 3)) == list(range(6))


def test_tasks_of_tasks_start_no_processes() -> None:
    for found in workers.run_tasks(of_tasks, [(0,), (1,), (2,)], HERE, 2):
        assert len(found) == 1


def test_nothing_is_left_behind_when_the_rest_is_not_wanted() -> None:
    import multiprocessing

    here = os.getpid()
    coming = workers.run_tasks(slow_elsewhere, [(0, 0, here), *[(1, 900, here)] * 4], HERE, 2)
    next(coming)
    (child,) = multiprocessing.active_children()
    begin = time.monotonic()
    coming.close()
    assert not multiprocessing.active_children()
    assert not os.path.exists(f"/proc/{child.pid}") and time.monotonic() - begin < 300


def test_something_computed_aside_comes_back() -> None:
    with workers.beside(HERE) as begin:
        many = begin(array_of, 200_000)  # more than a pipe holds
        failed, died = begin(fails, 3), begin(dies_elsewhere, 5, os.getpid())
        assert many().sum() == sum(range(200_000))
        with pytest.raises(P3SError, match="task 3"):
            failed()
        assert died() == 5


def test_what_was_begun_is_asked_for_in_any_order_and_computed_here_as_well() -> None:
    with workers.beside(HERE) as begin:
        asked = [begin(with_process, k, 0.05) for k in range(12)]
        found = [result() for result in reversed(asked)]
        assert [number for number, _ in found] == list(reversed(range(12)))
        pids = {pid for _, pid in found}
        assert os.getpid() in pids and len(pids) == min(2, len(os.sched_getaffinity(0)))


def test_begun_with_nobody_is_computed_here() -> None:
    with workers.beside(None) as begin:
        assert begin(with_process, 1)() == (1, os.getpid())


def test_what_was_begun_and_never_asked_for_leaves_nothing_behind() -> None:
    import multiprocessing

    begun = time.monotonic()
    with pytest.raises(P3SError, match="task 3"), workers.beside(HERE) as begin:
        begin(slow_elsewhere, 1, 900, os.getpid())
        fails(3)
    assert not multiprocessing.active_children() and time.monotonic() - begun < 300


@pytest.mark.parametrize("cores", [1, 2, 5])
def test_threads_give_results_in_order(cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))

    def later(number: int) -> int:
        time.sleep(0.01 * (4 - number % 4))
        if number == 9:
            raise P3SError("nine")
        return number

    assert list(workers.in_threads(later, range(8))) == list(range(8))
    with pytest.raises(P3SError, match="nine"):
        list(workers.in_threads(later, range(12)))


def test_one_core_computes_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    assert {pid for _, pid in workers.run_tasks(with_process, [(0,), (1,)], HERE)} == {os.getpid()}
    with workers.beside(HERE) as begin:
        assert begin(with_process, 1)() == (1, os.getpid())


def test_a_script_without_a_guard_is_not_run_again(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "print('begun')\nfrom pathlib import Path\nfrom p3s.base import workers\nimport math\n"
        "tasks = [(k * k,) for k in range(5)]\n"
        "print(list(workers.run_tasks(math.sqrt, tasks, Path(__file__), 2)))\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout == "begun\n[0.0, 1.0, 2.0, 3.0, 4.0]\n" and done.stderr == ""


def test_the_end_of_the_first_process_ends_the_others(tmp_path: Path) -> None:
    script = (
        "import multiprocessing, os; from pathlib import Path; from p3s.base import workers\n"
        "from test_workers import slow_elsewhere\nme = os.getpid()\n"
        "w = workers.run_tasks(slow_elsewhere, [(0, 0.1, me), *[(1, 900, me)] * 4], Path('/'), 2)\n"
        "next(w)\n"
        "print(*(c.pid for c in multiprocessing.active_children()), flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=120,
        env=env,
        check=False,
    )
    assert done.returncode == -9
    (left,) = done.stdout.split()
    deadline = time.monotonic() + 300
    while os.path.exists(f"/proc/{left}") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not os.path.exists(f"/proc/{left}")


def test_p3s_started_many_times_is_refused_with_what_to_write(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "0")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "4")
    assert _with_ranks(["predict", "study", "-n", "64"]) == 2
    assert "4 times" in (said := capsys.readouterr().err) and "p3s --mpi predict" in said
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "3")
    assert _with_ranks(["predict", "study", "-n", "64"]) == 2
    assert capsys.readouterr().err == ""
    assert _with_ranks(["--version"]) == 0


def test_a_rank_that_sees_another_file_or_has_another_version_says_so(tmp_path: Path) -> None:
    from dataclasses import replace

    file = tmp_path / "study.json"
    file.write_text("{}")
    mark = workers._Mark("first", workers.__version__, str(file), workers._facts(str(file)))
    workers._check(mark)
    with pytest.raises(P3SError, match="has p3s .* rank 0 on first has 0.0"):
        workers._check(replace(mark, version="0.0"))
    file.write_text("{ }")
    with pytest.raises(P3SError, match=r"study\.json.*a file system that all ranks share"):
        workers._check(mark)
    file.unlink()
    with pytest.raises(P3SError, match="a file system that all ranks share"):
        workers._check(mark)


def test_a_rank_starts_no_mpi_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    workers.check_may_launch()
    monkeypatch.setattr(workers, "_job", workers._Job(None, 1))
    with pytest.raises(UsageError, match="a rank cannot start MPI programs"):
        workers.check_may_launch()
