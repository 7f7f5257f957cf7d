"""What a failed run's output and captures say, in a line."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from p3s.signature_runner.endings import describe_timeout
from p3s.signature_runner.output import program_said

TRACEBACK = """\
Traceback (most recent call last):
  File "<frozen runpy>", line 88, in _run_code
  File "/home/me/code/heat.py", line 12, in <module>
    main()
    ~~~~^^
  File "/home/me/code/heat.py", line 9, in main
    comm.Create_cart([2.0, 2])
  File "src/mpi4py/MPI.src/asarray.pxi", line 47, in mpi4py.MPI.getarray
TypeError: 'float' object cannot be interpreted as an integer
"""


def capture(in_call: int = 0, complete: bool = False) -> Any:
    return SimpleNamespace(
        complete=complete,
        events=[],
        header=SimpleNamespace(in_call=in_call),
        op_name=lambda op: "MPI_Allreduce",
    )


def test_an_exception_is_told_with_the_programs_own_line(tmp_path: Path) -> None:
    (tmp_path / "stdout.txt").write_text("step 3\n")
    (tmp_path / "stderr.txt").write_text(TRACEBACK)
    said = program_said(tmp_path)
    told = "TypeError: 'float' object cannot be interpreted as an integer (heat.py:9)"
    assert (said.text, said.error) == (told, True)


def test_an_exception_in_a_library_alone_is_told_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "stderr.txt").write_text(
        'Traceback (most recent call last):\n  File "/x/lib/python3.12/json.py", line 4, in f\n'
        "KeyError: 'a'\n"
    )
    assert program_said(tmp_path).text == "KeyError: 'a' (json.py:4)"


def test_words_that_only_look_like_an_exception_are_the_last_message(tmp_path: Path) -> None:
    (tmp_path / "stderr.txt").write_text("Exit: 3 iterations\n")
    assert program_said(tmp_path).text == "Exit: 3 iterations"


def test_frames_of_lines_without_letters_are_not_what_a_program_said(tmp_path: Path) -> None:
    frame = 60 * "*"
    (tmp_path / "stderr.txt").write_text(f"{frame}\n\nno recursive calls\n\n{frame}\n+---+\n")
    assert program_said(tmp_path).text == "no recursive calls"


def test_a_rank_that_is_done_before_the_others_is_told_with_its_words() -> None:
    ranks = {0: capture(in_call=3), 1: capture(complete=True), 2: capture(in_call=3)}
    assert describe_timeout(ranks, "ValueError: no (heat.py:9)") == (
        " ranks 0, 2 inside MPI_Allreduce, rank 1 in MPI_Finalize (ValueError: no (heat.py:9));"
        " see why it was done before the others"
    )


def test_ranks_that_all_work_get_more_time() -> None:
    ranks = {0: capture(in_call=3), 1: capture()}
    assert describe_timeout(ranks, "step 3") == (
        " rank 0 inside MPI_Allreduce, rank 1 running; give it more time or a smaller problem"
    )
    assert (
        describe_timeout({0: capture(complete=True)}, "")
        == " give it more time or a smaller problem"
    )
