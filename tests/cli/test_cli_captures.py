"""p3s check, recover and dump on captures written here."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from capture_writer import DEFS, DONE, PAGE, Writer, begun, small, spoil
from commands import cli
from test_trace_reader_damage import a_study, in_the_header, noise

from p3s.capture import read_run
from p3s.capture.capture import read_capture


def messages(rank: int, size: int = 2, sends: int = 3) -> Writer:
    """A ring: every rank sends to the next and receives from the one before."""
    w = Writer(rank, size)
    w.opname(0, "MPI_Init")
    w.opname(1, "MPI_Isend")
    w.opname(2, "MPI_Irecv")
    w.opname(3, "MPI_Waitall")
    w.comm(0, list(range(size)), "MPI_COMM_WORLD")
    w.site(5, "app+0x5")
    w.event(w.call(0))
    send = w.call(1, peer=(rank + 1) % size, nbytes=64, elem=8, count=8, tag=1)
    receive = w.call(2, peer=-2, nbytes=64, elem=8, count=8)
    wait = w.call(3, comm=-1, nbytes=2)
    for _ in range(sends):
        a, b = w.event(send), w.event(receive)
        w.resolved(b, (rank - 1) % size, 1, 64)
        done = w.event(wait)
        w.done(done, a)
        w.done(done, b)
    w.end()
    return w


@pytest.fixture()
def ring(tmp_path: Path) -> Path:
    folder = tmp_path / "ring"
    folder.mkdir()
    for rank in (0, 1):
        messages(rank).save(folder)
    return folder


def as_json(line: str) -> tuple[int, dict[str, Any]]:
    shown = cli(f"{line} --json", code=None)
    return shown.code, shown.data


# ---- check ---------------------------------------------------------------------------------


def test_check_of_a_study_and_of_a_file(tmp_path: Path) -> None:
    study = a_study(tmp_path / "study", repeats=2)
    code, data = as_json(f"check {study.root}")
    assert code == 0 and [Path(each["path"]).name for each in data["runs"]] == [
        "np0002.r0",
        "np0002.r1",
    ]
    path = study.runs_dir(2) / "rank-000001.p3t"
    noise(path)
    for place in (study.root, path):
        cli(f"check {place}", code=3, out="7 events are lost")
    cli(f"check {path.with_name('rank-000000.p3t')}")


def test_check_names_what_is_wrong_with_each_rank(tmp_path: Path) -> None:
    for rank in range(4):
        messages(rank, 5).save(tmp_path)
    os.truncate(tmp_path / "rank-000001.p3t", messages(1, 5).offsets()[-1])
    in_the_header(tmp_path / "rank-000002.p3t")
    spoil(tmp_path / "rank-000003.p3t", messages(3, 5).offsets()[1] + 70, 8)
    code, found = as_json(f"check {tmp_path}")
    ranks = found["runs"][0]["ranks"]
    assert code == 3 and found["runs"][0]["status"] == "damaged"
    assert [rank["status"] for rank in ranks] == [
        "complete",
        "partial",
        "unreadable",
        "damaged",
        "missing",
    ]
    assert ranks[1]["problem"] == "ends before MPI_Finalize, after MPI_Waitall"
    assert ranks[1]["events"] == 10
    assert "5 intact chunks can be recovered" in ranks[2]["problem"]
    assert "10 events are lost" in ranks[3]["problem"] and ranks[3]["lost_events"] == 10


def test_messages_that_do_not_match_are_noted_not_refused(ring: Path) -> None:
    messages(1, sends=5).save(ring)
    code, data = as_json(f"check {ring}")
    assert (code, data["ok"]) == (0, True)
    assert data["runs"][0]["notes"] == [
        "messages do not match: rank 0 sent 3 to rank 1, which received 5; "
        "rank 1 sent 5 to rank 0, which received 3"
    ]


def test_cancelled_receives_are_no_messages(ring: Path) -> None:
    w = messages(1)
    w.parts.pop()
    posted = w.event(w.call(2, peer=0, nbytes=8))
    w.done(w.event(w.call(3, comm=-1)), posted, 1)
    w.end()
    w.save(ring)
    assert as_json(f"check {ring}")[1]["runs"][0]["notes"] == []


def test_receives_from_nobody_knows_whom_are_not_compared(ring: Path) -> None:
    w = messages(1, sends=4)
    w.parts.pop()
    w.event(w.call(2, peer=-2, nbytes=8))
    w.end()
    w.save(ring)
    notes = as_json(f"check {ring}")[1]["runs"][0]["notes"]
    assert notes == ["messages do not match: rank 1 sent 4 to rank 0, which received 3"], (
        "what rank 0 received is clear, what rank 1 did is not"
    )


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"P3STRACE\x01\0\0\0" + bytes(9000)),
        lambda path: os.truncate(path, PAGE),
    ],
)
def test_nothing_usable_is_exit_code_one(spoil: Any, ring: Path) -> None:
    for path in ring.glob("*.p3t"):
        spoil(path)
    cli(f"check {ring}", code=1, err="nothing that can be used")
    cli(f"recover {ring} -o {ring.parent / 'new'}", code=1)
    assert not (ring.parent / "new").exists()


def test_check_says_where_each_rank_ended(tmp_path: Path) -> None:
    w = [messages(rank, 4) for rank in range(4)]
    w[0].in_call, w[1].flags, w[1].abort_code, w[1].in_call = 1 + 3, 2, 7, 1 + 3
    w[3].flags = 1  # the disk was full
    for one in w:
        one.parts.pop()
        one.save(tmp_path)
    code, found = as_json(f"check {tmp_path}")
    assert code == 3 and [rank["problem"] for rank in found["runs"][0]["ranks"]] == [
        "ends before MPI_Finalize, inside MPI_Waitall",
        "ends before MPI_Finalize: it called MPI_Abort(7)",
        "ends before MPI_Finalize, after MPI_Waitall",
        "stopped recording early, because the file could not grow",
    ]
    cli(
        f"add {tmp_path / 'study'} {tmp_path}",
        code=3,
        err="rank-000001.p3t ends before MPI_Finalize: it called",
    )


def test_files_of_two_runs_in_one_directory(tmp_path: Path) -> None:
    for rank, of in ((0, 11), (1, 11)):
        w = messages(rank)
        w.run = of
        w.save(tmp_path)
    cli(f"check {tmp_path}")
    w = messages(1)
    w.run = 12
    w.save(tmp_path)
    said = "rank-000001.p3t is of another run than rank-000000.p3t"
    cli(f"check {tmp_path}", code=3, out=f"runs are mixed: {said}")
    study = tmp_path / "study"
    cli(f"add {study} {tmp_path}", code=1, err=f"mixes runs: {said}")
    assert not study.exists()
    w.run = 0  # of an older P3S, or of a launcher that does not say
    w.save(tmp_path)
    cli(f"check {tmp_path}")


def test_a_damaged_header_is_of_no_other_run(tmp_path: Path) -> None:
    folder = tmp_path / "ring"
    folder.mkdir()
    for rank in (0, 1):
        w = messages(rank)
        w.run = 11
        path = w.save(folder)
    spoil(path, 430)  # in the number of the run
    cli(f"recover {folder} -o {tmp_path / 'new'}", code=3)
    cli(f"check {tmp_path / 'new'}")


def test_ranks_that_ran_as_separate_programs(tmp_path: Path) -> None:
    w = messages(0, 1)
    w.launched = 2
    w.save(tmp_path)
    cli(f"check {tmp_path}", code=3, out="is one of 2 separate programs of 1 rank")
    cli(f"add {tmp_path / 'study'} {tmp_path}", code=3)


def test_what_is_no_file_and_a_run_json_that_is_none(ring: Path) -> None:
    for damaged in ("{not JSON", "null", '{"np": "many"}'):
        (ring / "run.json").write_text(damaged)
        code, found = as_json(f"check {ring}")
        (said,) = found["runs"][0]["problems"]
        assert code == 3 and said.startswith("run.json cannot be used, and so the run is not: ")


def test_a_run_the_tracer_could_not_write(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    cli(f"check {tmp_path}", code=1, out="no MPI call was seen")
    (tmp_path / "warned").touch()
    cli(f"check {tmp_path}", code=1, out="the tracer could not write one")


# ---- recover -------------------------------------------------------------------------------


def test_recover_keeps_what_is_intact(ring: Path) -> None:
    (ring / "run.json").write_text(json.dumps({"np": 2, "status": "complete", "wall_s": 1}))
    (ring / "stderr.txt").write_text("said\n")
    spoil(ring / "rank-000000.p3t", messages(0).begin(DONE) + 66)
    in_the_header(ring / "rank-000001.p3t")
    before = {each.name: each.read_bytes() for each in ring.iterdir()}
    new = ring.parent / "new"
    said = cli(f"recover {ring} -o {new}", code=3).out.splitlines()
    assert said[0].startswith("rank 0: kept 10 events in 4 chunks; it is damaged at byte")
    assert said[1].startswith("rank 1: kept 10 events in 5 chunks, its header was made again")
    assert {each.name: each.read_bytes() for each in ring.iterdir()} == before
    first = read_capture(new / "rank-000000.p3t")
    assert len(first.events) == 10 and len(first.done) == 0
    assert "the chunk before it lost" in first.problem, "what is lost stays visible"
    second = read_capture(new / "rank-000001.p3t")
    assert second.complete and len(second.events) == 10
    assert read_run(new).ranks[1].complete
    info = json.loads((new / "run.json").read_text())
    assert (info["status"], info["recovered"], info["np"]) == ("partial", True, 2)
    assert (new / "stderr.txt").read_text() == "said\n"


def test_recover_refuses_to_overwrite(ring: Path) -> None:
    new = ring.parent / "new"
    cli(f"recover {ring} -o {ring} --force", code=2)
    cli(f"recover {ring} -o {new}")
    cli(f"recover {ring} -o {new}", code=2, err="add --force")
    (new / "rank-000007.p3t").write_bytes(b"of another run")
    code, data = as_json(f"recover {ring} -o {new} --force")
    assert (code, data["schema"]) == (0, "p3s.recover")
    assert [rank["events"] for rank in data["ranks"]] == [10, 10]
    assert sorted(path.name for path in new.glob("*.p3t")) == ["rank-000000.p3t", "rank-000001.p3t"]
    for rank in (0, 1):  # nothing was wrong: nothing is other than before
        name = f"rank-{rank:06d}.p3t"
        assert (new / name).read_bytes() == (ring / name).read_bytes()


def test_recover_names_ranks_that_are_missing_or_renamed(ring: Path) -> None:
    os.rename(ring / "rank-000001.p3t", ring / "rank-000002.p3t")
    new = ring.parent / "new"
    said = cli(f"recover {ring} -o {new}", code=3).out
    assert "rank 1: kept 0 events in 0 chunks; it is missing" in said
    assert "rank 2: kept 0 events in 0 chunks; it is the file of rank 1; it was renamed" in said
    assert [path.name for path in new.glob("*.p3t")] == ["rank-000000.p3t"]


def test_recover_wants_one_run(ring: Path) -> None:
    new = ring.parent / "new"
    cli(
        f"recover {ring / 'rank-000000.p3t'} -o {new}",
        code=2,
        err=f"give its run directory, {ring}",
    )
    place = ring.parent / "study" / "runs" / "np0002.r0"
    place.parent.mkdir(parents=True)
    os.rename(ring, place)
    cli(
        f"recover {ring.parent / 'study'} -o {new}",
        code=2,
        err=f"give one of its runs, e.g. {place}",
    )


def test_a_header_is_rebuilt_without_any_other_rank(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    w = small(1, counters=("cycles",), pid=77)
    path = w.save(folder)
    spoil(path, 8, bytes(504))
    cli(f"recover {folder} -o {tmp_path / 'new'}", code=3)
    capture = read_capture(tmp_path / "new" / path.name)
    assert (capture.header.rank, capture.header.size) == (1, 2)
    assert capture.complete and len(capture.events) == 7


def test_recovering_twice_changes_nothing(ring: Path) -> None:
    path = ring / "rank-000000.p3t"
    spoil(path, messages(0).offsets()[2] + 64, 255)
    one, two = ring.parent / "one", ring.parent / "two"
    cli(f"recover {ring} -o {one}", code=3)
    cli(f"recover {one} -o {two}", code=3)
    assert (one / path.name).read_bytes() == (two / path.name).read_bytes()


# ---- dump ----------------------------------------------------------------------------------


def test_dump_prints_every_event(ring: Path) -> None:
    lines = cli(f"dump {ring}").out.splitlines()
    assert "  0 0000000000000005 app+0x5" in lines
    assert "  0 MPI_COMM_WORLD #0 members=0-1" in lines
    assert (
        "2 0 35 10 5 MPI_Irecv peer=1 bytes=64 count=8 elem=8 tag=1 root=- comm=0 site=0" in lines
    )
    assert lines.count("request of event 2 completed by 3") == 2
    assert sum(" MPI_Isend " in line for line in lines) == 6
    lines = cli(f"dump {ring} --rank 1").out.splitlines()
    assert sum(" MPI_Isend " in line for line in lines) == 3 and "rank 1: 10 events" in lines
    cli(f"dump {ring} --rank 2", code=1, err="no capture of rank 2; there is 0 to 1")


def test_dump_as_json_has_the_same_numbers(ring: Path) -> None:
    code, data = as_json(f"dump {ring}")
    assert (code, data["schema"]) == (0, "p3s.dump")
    trace = read_run(ring)
    for rank, found in zip(trace.ranks, data["ranks"], strict=True):
        columns = list(zip(*found["events"], strict=True))
        assert data["columns"] == ["event", "thread", "start_ns", "elapsed_ns", "work", "call"]
        assert list(columns[2]) == rank.start_ns.tolist()
        assert [data["calls"][c]["op"] for c in columns[5]] == [
            trace.calls[c].op for c in rank.call
        ]
        assert [row[:2] for row in found["done"]] == rank.done.tolist()


def test_dump_of_a_damaged_run_says_so(ring: Path) -> None:
    os.truncate(ring / "rank-000001.p3t", messages(1).offsets()[-1])
    cli(f"dump {ring} --summary", code=3, err="ends before MPI_Finalize")


def test_a_study_of_several_runs_wants_one_of_them(tmp_path: Path) -> None:
    study = a_study(tmp_path, repeats=2)
    cli(f"dump {study.root}", code=2, err="holds 2 runs; give one of them")
    cli(f"dump {study.root} --summary")


def test_dump_parquet(ring: Path) -> None:
    import pyarrow.parquet as pq

    target = ring.parent / "events.parquet"
    code, data = as_json(f"dump {ring} --parquet {target}")
    assert (code, data["events"]) == (0, 20)
    with pq.ParquetFile(target) as file:
        assert file.num_row_groups == 2
        table = file.read()
    meta = table.schema.metadata
    assert meta[b"p3s.work_unit"] == b"cpu_ns" and meta[b"p3s.np"] == b"2"
    assert json.loads(meta[b"p3s.sites"]) == {"0000000000000005": ["app+0x5"]}
    trace = read_run(ring)
    for rank in trace.ranks:
        rows = [row for row in table.to_pylist() if row["rank"] == rank.rank]
        assert [row["event"] for row in rows] == list(range(10))
        assert [row["op"] for row in rows] == [trace.calls[c].op for c in rank.call]
        assert [row["peer"] for row in rows] == [trace.calls[c].peer for c in rank.call]
        assert [row["work"] for row in rows] == rank.work.tolist()
        assert {row["site"] for row in rows} == {"0000000000000005"}
    cli(f"dump {ring} --parquet {ring / 'no' / 'where'}", code=1, err="cannot be written")
    assert not list(ring.parent.glob(".events*"))


def test_counters_are_columns(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    w = begun("MPI_Send", 0, 1, counters=("cycles",), work_source=3)
    w.event(w.call(0, peer=0), counters=(123456,))
    w.end()
    w.save(tmp_path)
    cli(f"dump {tmp_path} --parquet {tmp_path / 'e'}")
    assert pq.read_table(tmp_path / "e")["counter:cycles"].to_pylist() == [123456]
    cli(f"dump {tmp_path}", out="0 0 5 10 5 123456 MPI_Send")


def _command(*args: str) -> list[str]:
    return [sys.executable, "-m", "p3s", *args]


@pytest.fixture()
def long_run(tmp_path: Path) -> Path:
    w = messages(0, 1, sends=40_000)
    w.save(tmp_path)
    return tmp_path


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_closed_pipe_ends_quietly(long_run: Path, more: list[str]) -> None:
    with subprocess.Popen(
        _command("dump", str(long_run), *more), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        said = process.stderr.read().decode()
        assert process.wait(timeout=300) != 0
    assert said == ""


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_an_error_nobody_reads(more: list[str], tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = _command("check", str(tmp_path / "nowhere"), *more)
    done = subprocess.run(
        command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=300, check=False
    )
    assert "is not there" in done.stderr and done.stderr.count("\n") == 1
    assert done.returncode == (141 if more else 1)
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=writer, timeout=300, check=False)
    os.close(writer)
    assert done.returncode == 1 and b"Traceback" not in done.stdout


@pytest.mark.parametrize("closing", [">&-", "2>&-", ">&- 2>&-"])
def test_streams_that_are_closed(closing: str, ring: Path) -> None:
    words = [*_command("check", str(ring))]
    done = subprocess.run(
        ["sh", "-c", f'"$@" {closing}', "sh", *words], capture_output=True, timeout=300, check=False
    )
    assert done.returncode == 0 and done.stderr == b""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
@pytest.mark.parametrize("words", [["check"], ["dump"], ["dump", "--json"]])
def test_output_that_does_not_fit(words: list[str], ring: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            _command(words[0], str(ring), *words[1:]),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=300,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == "p3s: the output cannot be written: No space left on device\n"


def test_ctrl_c_ends_quietly(long_run: Path) -> None:
    with subprocess.Popen(
        _command("dump", str(long_run)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline()
        time.sleep(0.2)  # it now waits for its reader
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        said = process.stderr.read().decode()
        assert process.wait(timeout=300) == 130
    assert "Traceback" not in said and said.count("\n") == 1


def test_definitions_are_needed_to_name_anything(ring: Path) -> None:
    """All definitions of a rank are lost: nothing of it can be shown, nothing breaks."""
    spoil(ring / "rank-000000.p3t", messages(0).begin(DEFS) + 64)
    cli(f"check {ring}", code=3)
    cli(f"dump {ring} --summary", code=3)
