"""Captures that are damaged, partial, empty or absurd: every command says so in one clear line."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from capture_writer import INSTRUCTIONS, PAGE, Writer, begun, put_run_json
from commands import cli

from p3s.base.study import Study
from p3s.capture.chunks import read_header

OPS = ["MPI_Init", "MPI_Send", "MPI_Recv", "MPI_Allreduce", "MPI_Finalize"]
INIT, SEND, RECV, ALLREDUCE, FINALIZE = range(5)


class Program:
    """One rank of a ring with an Allreduce in each turn."""

    def __init__(self, rank: int, size: int, turns: int = 5, **settings: Any) -> None:
        self.w = w = Writer(rank, size, **settings)
        for number, op in enumerate(OPS):
            w.opname(number, op)
            w.site(number + 1, f"app+{16 * number + 16:#x}")
        w.comm(0, list(range(min(size, 4096))), "MPI_COMM_WORLD")
        message = {"nbytes": 64, "elem": 8, "count": 8, "tag": 1}
        self.calls = [
            w.call(INIT, INIT),
            w.call(SEND, SEND, peer=(rank + 1) % size, **message),
            w.call(RECV, RECV, peer=(rank - 1) % size, **message),
            w.call(ALLREDUCE, ALLREDUCE, nbytes=8, elem=8, count=1),
            w.call(FINALIZE, FINALIZE),
        ]
        self.event(INIT, start=-100, elapsed=100, work=50)
        for _ in range(turns):
            for op in (SEND, RECV, ALLREDUCE):
                self.event(op, work=1000)

    def event(self, op: int, **times: int) -> None:
        self.w.event(self.calls[op], **times)

    def save(self, folder: Path) -> None:
        self.event(FINALIZE)
        self.w.end()
        self.w.save(folder)


def good(folder: Path, size: int = 2, **settings: Any) -> None:
    for rank in range(size):
        Program(rank, size, **settings).save(folder)


def second(folder: Path) -> Path:
    """The file of rank 1 of a good run, to be replaced."""
    good(folder)
    path = folder / "rank-000001.p3t"
    path.unlink()
    return path


def both(folder: Path, content: Callable[[int], bytes]) -> None:
    for rank in range(2):
        (folder / f"rank-{rank:06d}.p3t").write_bytes(content(rank))


# ---- the captures: each writes what is wrong into a directory ------------------------------
def one_rank(folder: Path) -> None:
    good(folder, 1)


def one_event(folder: Path) -> None:
    for rank in range(2):
        w = begun("MPI_Init", rank, 2)
        w.event(w.call(0))
        w.end()
        w.save(folder)


def a_rank_without_events(folder: Path) -> None:
    second(folder)
    w = Writer(1, 2)
    w.comm(0, [0, 1], "MPI_COMM_WORLD")
    w.end()
    w.save(folder)


def no_turns(folder: Path) -> None:
    good(folder, turns=0)


def no_events(folder: Path) -> None:
    for rank in range(2):
        w = Writer(rank, 2)
        w.end()
        w.save(folder)


def empty_files(folder: Path) -> None:
    both(folder, lambda rank: b"")


def one_empty_file(folder: Path) -> None:
    second(folder).write_bytes(b"")


def noise(folder: Path) -> None:
    both(folder, lambda rank: random.Random(rank).randbytes(20_000))


def text(folder: Path) -> None:
    both(folder, lambda rank: b"hello\n" * 3000)


def headers_only(folder: Path) -> None:
    both(folder, lambda rank: Program(rank, 2).w.data()[:PAGE])


def no_end(folder: Path) -> None:
    good(folder)
    path = folder / "rank-000001.p3t"
    os.truncate(path, path.stat().st_size - PAGE)


def a_rank_missing(folder: Path) -> None:
    good(folder, 4)
    (folder / "rank-000002.p3t").unlink()


def two_runs_mixed(folder: Path) -> None:
    good(folder)
    Program(2, 4).save(folder)


def nothing(folder: Path) -> None:
    pass


def a_directory(folder: Path) -> None:
    second(folder).mkdir()


def a_dangling_link(folder: Path) -> None:
    second(folder).symlink_to("nowhere")


def a_link_to_itself(folder: Path) -> None:
    second(folder).symlink_to("rank-000001.p3t")


def a_pipe(folder: Path) -> None:
    os.mkfifo(second(folder))


def a_million_ranks(folder: Path) -> None:
    Program(0, 1_000_000).save(folder)


def rank_one_million(folder: Path) -> None:
    Program(1_000_000, 1_000_001).save(folder)


def two_thousand_million_ranks(folder: Path) -> None:
    Program(2**31 - 2, 2**31 - 1).save(folder)


def the_last_of_4096_ranks(folder: Path) -> None:
    Program(4095, 4096).save(folder)


def a_file_called_one_million(folder: Path) -> None:
    good(folder)
    (folder / "rank-1000000.p3t").write_bytes((folder / "rank-000000.p3t").read_bytes())


def odd_names(folder: Path) -> None:
    good(folder)
    for name in ("x", "²³", "-1", "9" * 200, "000002 "):
        (folder / f"rank-{name}.p3t").write_bytes(b"")


def backwards(folder: Path) -> None:
    for rank in range(2):
        program = Program(rank, 2)
        for start in (50, -(10**15), 7, -(10**12)):
            program.event(ALLREDUCE, start=start)
        program.save(folder)


def always_backwards(folder: Path) -> None:
    for rank in range(2):
        program = Program(rank, 2, turns=0)
        for turn in range(30):
            program.event(1 + turn % 3, start=-(10**9) * turn, elapsed=10**8, work=0)
        program.save(folder)


def times_beyond_the_clock(folder: Path) -> None:
    for rank in range(2):
        program = Program(rank, 2)
        program.event(ALLREDUCE, start=(1 << 62) - 10, elapsed=1 << 61, work=1 << 60)
        program.save(folder)


def negative_work(folder: Path) -> None:
    for rank in range(2):
        program = Program(rank, 2)
        program.event(ALLREDUCE, work=-(10**6))
        program.save(folder)


def endless_instructions(folder: Path) -> None:
    for rank in range(2):
        program = Program(rank, 2, work_source=INSTRUCTIONS)
        for _ in range(8):
            program.event(ALLREDUCE, work=(1 << 64) - 1)
        program.save(folder)


def endless_messages(folder: Path) -> None:
    for rank in range(2):
        program = Program(rank, 2)
        size = (1 << 63) - 1
        program.calls[SEND] = program.w.call(SEND, SEND, peer=0, nbytes=size, elem=1, count=size)
        for _ in range(9):
            program.event(SEND)
        program.save(folder)


def endless_polls(folder: Path) -> None:
    good(folder, failed_polls=(1 << 64) - 1, failed_poll_ns=(1 << 63) - 1)


def messages_nobody_receives(folder: Path) -> None:
    for rank in range(2):
        program = Program(rank, 2)
        for _ in range(7 * rank):
            program.event(SEND)
        program.save(folder)


def odd_communicators(folder: Path) -> None:
    for rank in range(2):
        program = Program(rank, 2)
        program.w.comm(5, [1, 0, 1, 1], "MPI_Comm_split", 0)
        program.w.comm(6, [0, 1], "MPI_Cart_create", 0, ([1000, -3], [0, 7], [0, 9]))
        for comm in (5, 6):
            program.calls[ALLREDUCE] = program.w.call(ALLREDUCE, ALLREDUCE, comm)
            program.event(ALLREDUCE)
        program.save(folder)


def no_communicator_at_all(folder: Path) -> None:
    for rank in range(2):
        w = Writer(rank, 2)
        w.opname(0, "MPI_Barrier")
        w.site(1)
        w.event(w.call(0, 0, comm=-1))
        w.end()
        w.save(folder)


def unknown_calls(folder: Path) -> None:
    for rank in range(2):
        program = Program(rank, 2)
        program.w.opname(9, "MPIX_Whatever")
        program.calls[ALLREDUCE] = program.w.call(9, ALLREDUCE)
        program.event(ALLREDUCE)
        program.save(folder)


def odd_completions(folder: Path) -> None:
    for rank in range(2):
        program = Program(rank, 2)
        for completing, posting in ((3, 3), (3, 1), (9, 1)):
            program.w.done(completing, posting)
        program.save(folder)


#: What is written -> exit codes of check, dump and add, and what add (or check) says.
CASES: dict[Callable[[Path], None], tuple[int, int, int, str]] = {
    good: (0, 0, 0, ""),
    one_rank: (0, 0, 0, ""),
    one_event: (0, 0, 0, ""),
    a_rank_without_events: (0, 0, 0, ""),
    no_turns: (0, 0, 0, ""),
    no_events: (0, 0, 1, "made no MPI call that is recorded"),
    empty_files: (1, 1, 1, "rank-000000.p3t is empty"),
    one_empty_file: (3, 3, 3, "rank-000001.p3t is empty, so this run cannot be added"),
    noise: (1, 1, 1, "is not a P3S capture file"),
    text: (1, 1, 1, "is not a P3S capture file"),
    headers_only: (1, 3, 3, "ends before MPI_Finalize"),
    no_end: (3, 3, 3, "rank-000001.p3t ends before MPI_Finalize"),
    a_rank_missing: (3, 3, 3, "rank-000002.p3t is missing"),
    two_runs_mixed: (3, 1, 1, "rank-000000.p3t is of 2 ranks, rank-000002.p3t of 4"),
    nothing: (1, 1, 1, "holds no capture"),
    a_directory: (3, 3, 3, "is not a plain file"),
    a_dangling_link: (3, 3, 3, "No such file"),
    a_link_to_itself: (3, 3, 3, "Too many levels of symbolic links"),
    a_pipe: (3, 3, 3, "is not a plain file"),
    a_million_ranks: (3, 1, 1, "it says 1,000,000 ranks, at most 65,536"),
    rank_one_million: (1, 1, 1, "it says 1,000,001 ranks, at most 65,536"),
    two_thousand_million_ranks: (1, 1, 1, "it says 2,147,483,647 ranks"),
    the_last_of_4096_ranks: (3, 3, 3, "rank-000000.p3t is missing"),
    a_file_called_one_million: (3, 1, 1, "rank-1000000.p3t is the file of rank 0"),
    odd_names: (3, 0, 0, ""),
    backwards: (3, 0, 3, "its time goes backwards by 1e+06 s at event 17 (2 times)"),
    always_backwards: (3, 0, 3, "its time goes backwards by 1 s at event 2 (29 times)"),
    times_beyond_the_clock: (3, 3, 3, "a time is impossible"),
    negative_work: (3, 3, 3, "a time is impossible"),
    endless_instructions: (3, 3, 3, "a time is impossible"),
    endless_messages: (0, 0, 0, ""),
    endless_polls: (0, 0, 0, ""),
    messages_nobody_receives: (0, 0, 0, ""),
    odd_communicators: (0, 0, 0, ""),
    no_communicator_at_all: (0, 0, 0, ""),
    unknown_calls: (0, 0, 0, ""),
    odd_completions: (0, 0, 0, ""),
}
names = {case: case.__name__ for case in CASES}


@pytest.fixture()
def captured(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "capture"
    folder.mkdir()
    request.param(folder)
    if any(folder.iterdir()):
        put_run_json(folder, 2)
    yield folder


def command(*args: str, lines: int = 1) -> tuple[int, str, str]:
    """Run a command that may fail but not break; return exit code, stdout, stderr."""
    shown = cli(*args, code=(0, 1, 2, 3))
    assert "Traceback" not in shown.err and "internal error" not in shown.err
    if shown.code in (1, 2):
        assert shown.err.count("\n") == lines and shown.err.startswith("p3s: "), shown
    assert "\x1b" not in shown.out + shown.err
    return shown.code, shown.out, shown.err


@pytest.mark.parametrize(
    ("captured", "case"),
    [(case, case) for case in CASES],
    ids=names.values(),
    indirect=["captured"],
)
def test_every_command_says_what_is_wrong(
    captured: Path, case: Callable[[Path], None], tmp_path: Path
) -> None:
    check, dump, add, said = CASES[case]
    place = str(captured)
    code, out, err = command("check", place)
    assert (code, len(out.splitlines()) < 40) == (check, True)
    for more in ([], ["--json"], ["--summary"]):
        code, out, err = command("dump", place, *more)
        assert code == dump and (code == 0 or err.count("\n") == 1)
        if "--json" in more:
            json.loads(out)
    command("recover", place, "-o", str(tmp_path / "saved"))
    study = str(tmp_path / "study")
    code, out, err = command("add", study, place)
    assert code == add and said in err and err.count("\n") == 1, err
    if add:
        assert not Path(study).exists(), "nothing is added"
        return
    first = command("phases", study, "--all")
    assert first[0] == 0 and "All events and all the time" in first[1]
    assert "not accounted for" not in first[1]
    (Path(study) / "signature" / "phases.json").unlink()
    assert command("phases", study, "--all") == first, "byte for byte"
    assert command("model", study)[0] == 1  # of one count there is no model


@pytest.fixture(scope="module")
def three_counts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of good runs at 2, 4 and 8, with signatures."""
    root = tmp_path_factory.mktemp("three") / "study"
    study = Study.create(root, ["mpiexec", "-n", "{np}", "./app"])
    for np in (2, 4, 8):
        target = study.runs_dir(np)
        target.mkdir(parents=True)
        good(target, np)
        put_run_json(target, np)
    study.update()
    command("phases", str(root))
    return root


def test_as_many_ranks_as_there_may_be(tmp_path: Path) -> None:
    Program(65_535, 65_536).save(tmp_path)
    assert read_header(tmp_path / "rank-065535.p3t").rank == 65_535


@pytest.mark.parametrize(
    "captured",
    [case for case in CASES if not CASES[case][2]],
    ids=lambda c: names[c],
    indirect=True,
)
def test_odd_counts_do_not_spoil_a_study(
    captured: Path, three_counts: Path, tmp_path: Path
) -> None:
    """Three good counts and an odd repeat of one: the phases are still found."""
    study = Study.open(shutil.copytree(three_counts, tmp_path / "study"))
    size = json.loads((captured / "run.json").read_text())["np"]
    odd = study.runs_dir(size, 1)
    os.rename(captured, odd)
    study.update()
    root = str(study.root)
    code, out, err = command("phases", root)
    assert code == 0 and "× 5" in out, err
    code, out, err = command("model", root)
    assert code in (0, 1, 3), err


@pytest.mark.parametrize(
    "case", [case for case in CASES if CASES[case][2]], ids=lambda case: names[case]
)
def test_bad_runs_in_a_study_are_one_line(case: Callable[[Path], None], tmp_path: Path) -> None:
    study = Study.create(tmp_path / "study", ["mpiexec", "-n", "{np}", "./app"])
    target = study.runs_dir(2)
    target.mkdir(parents=True)
    case(target)
    put_run_json(target, 2)
    study.update()
    for name in ("phases", "model"):
        code, _, err = command(name, str(study.root))
        assert code == 1, err
