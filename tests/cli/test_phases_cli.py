"""p3s phases on artefacts written here by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from commands import cli

from p3s.base.artefacts import write_json
from p3s.base.study import Study

COUNTS = (4, 9, 16)
Json = dict[str, Any]


def by_count(*values: Any) -> Json:
    return {str(n): value for n, value in zip(COUNTS, values, strict=True) if value is not None}


def trips(*rows: tuple[int, int, int, int, int] | None) -> Json:
    """Per count: turns, turns_min, entries, and the smallest and largest turns per entry."""
    keys = ("turns", "turns_min", "entries")
    return by_count(
        *(row and {**dict(zip(keys, row, strict=False)), "per_entry": [*row[3:]]} for row in rows)
    )


def call(
    number: int,
    site: str,
    op: str,
    when: str = "always",
    ranks: Json | None = None,
    size: tuple[int, int] = (0, 0),
) -> Json:
    ranks = ranks if ranks is not None else by_count(*COUNTS)
    return {
        "call": number,
        "site": site,
        "op": op,
        "when": when,
        "ranks": ranks,
        "count": {n: 100 * each for n, each in ranks.items()},
        "bytes": {n: list(size) for n in ranks},
        "time_ns": dict.fromkeys(ranks, 1000),
    }


def cost(weight: int, share: float, work: int, least: int | None = None, **more: Any) -> Json:
    return {
        "weight": weight,
        "weight_min": weight if least is None else least,
        "ranks": 16,
        "events": 4800,
        "bytes": 12_345_678,
        "work": work,
        "elapsed_ns": work // 4,
        "share": share,
        "relevant": share >= 0.01,
        "operations": {"MPI_Isend": 1600, "MPI_Waitall": 1600, "MPI_Allreduce": 160},
        **more,
    }


def phase(number: int, loop: int, costs: Json, calls: list[int], **more: Any) -> Json:
    return {
        "phase": number,
        "loop": loop,
        "parent": 0 if number else None,
        "depth": min(number, 1),
        "name": f"loop {loop}" if loop else "outside loops",
        "calls": calls,
        "total_work_spread": 0.01,
        "constant_work": True,
        "varying": False,
        "per_count": costs,
        **more,
    }


def account(events: int, time_ns: int, **more: Any) -> Json:
    return {
        "events": events,
        "null_events": 0,
        "failed_polls": 0,
        "time_ns": time_ns,
        "start": {"events": 16, "time_ns": 1_000_000},
        "relevant": {"events": events - 132, "time_ns": time_ns - 5_000_000},
        "rest": {"events": 100, "time_ns": 3_000_000},
        "end": {"events": 16, "time_ns": 1_000_000},
        **more,
    }


def artefact() -> Json:
    """Hundred steps of a halo exchange, a residual every tenth, and a loop that takes no time."""
    exchange = {
        "loop": 2,
        "walk": "partners",
        "body": [
            call(2, "s2", "MPI_Isend", size=(8, 4096), ranks=by_count(4, 9, 16)),
            call(3, "s3", "MPI_Irecv", size=(8, 4096), ranks=by_count(4, 9, 16)),
        ],
        "trips": trips((200, 200, 100, 2, 2), (400, 200, 100, 2, 4), (400, 200, 100, 2, 4)),
    }
    steps = {
        "loop": 1,
        "walk": None,
        "trips": trips(*[(100, 100, 1, 100, 100)] * 3),
        "body": [
            exchange,
            call(4, "s4", "MPI_Waitall", size=(4, 8)),
            call(5, "s5", "MPI_Allreduce", when="every 10", size=(8, 8)),
            call(6, "s6", "MPI_Send", ranks=by_count(2, 6, 12), size=(64, 64)),
        ],
    }
    checks = {
        "loop": 3,
        "walk": None,
        "body": [call(7, "s7", "MPI_Barrier")],
        "trips": trips(None, (3, 3, 1, 3, 3), (5, 5, 1, 5, 5)),
    }
    return {
        "schema": "p3s.phases",
        "schema_version": 1,
        "counts": list(COUNTS),
        "work_unit": "cpu_ns",
        "sites": {
            "s1": ["halo.py:main:10"],
            "s2": ["MPI.so+0x10", "halo.py:exchange:51", "halo.py:step:40", "halo.py:main:20"],
            "s3": ["MPI.so+0x20", "halo.py:exchange:52", "halo.py:step:40", "halo.py:main:20"],
            "s4": ["MPI.so+0x30", "halo.py:exchange:55", "halo.py:step:40", "halo.py:main:20"],
            "s5": ["MPI.so+0x40", "halo.py:step:44", "halo.py:main:20"],
            "s6": ["MPI.so+0x50", "halo.py:step:46", "halo.py:main:20"],
            "s7": ["app+0x1234"],
            "s8": [],
        },
        "tree": {
            "loop": 0,
            "walk": None,
            "trips": trips(*[(1, 1, 1, 1, 1)] * 3),
            "body": [call(1, "s1", "MPI_Init"), steps, checks, call(8, "s8", "MPI_Finalize")],
        },
        "phases": [
            phase(0, 0, by_count(*[cost(1, 0.004, 5_000_000)] * 3), [1, 8]),
            phase(
                1,
                1,
                by_count(*(cost(100, 0.99, w * 10**9) for w in (10, 11, 12))),
                [2, 3, 4, 5, 6],
                total_work_spread=0.18,
                constant_work=False,
            ),
            phase(2, 3, by_count(None, *[cost(5, 0.006, 10**6, least=3)] * 2), [7]),
        ],
        "accounting": by_count(
            account(1000, 10**9),
            account(2000, 2 * 10**9),
            account(4000, 4 * 10**9, null_events=120, failed_polls=7),
        ),
    }


def a_study(folder: Path, content: Json | None = None) -> Path:
    study = Study.create(folder / "study", ["mpiexec", "-n", "{np}", "./app"])
    target = study.root / "signature" / "phases.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(content if content is not None else artefact()))
    return study.root


def output(*args: str) -> str:
    return cli("phases", *args).out


EXPECTED = """\
Phases at 16 processes (times and work are sums over ranks; work in CPU time)

phase    time  weight   ranks  calls    bytes    work  total work
    1  99.0 %     100  all 16  4,800  12.3 MB  12.0 s      1.2x !
       step halo.py:40-46  MPI_Isend 1,600  MPI_Waitall 1,600  MPI_Allreduce 160
2 more phases with 1.0 % of the time: --all shows them
total work: of all ranks, largest over smallest from 4 to 16 processes (Eq. 5.1); not constant
within 10 % in phase 1 (!)

Loops and calls at 16 processes

MPI_Init  main halo.py:10                                       all 16
× 100                                                           phase 1, 99.0 % of the time
  walk over partners × 2..4 by rank (4: 2, 9: 2..4, 16: 2..4)
    MPI_Isend  exchange halo.py:51 < step halo.py:40            all 16, 8 B..4.1 kB
    MPI_Irecv  exchange halo.py:52 < step halo.py:40            all 16, 8 B..4.1 kB
  MPI_Waitall  exchange halo.py:55 < step halo.py:40            all 16, 4..8 requests
  MPI_Allreduce  step halo.py:44 < main halo.py:20              every 10, all 16, 8 B
  MPI_Send  step halo.py:46 < main halo.py:20                   12 of 16, 64 B
× 5 (4: none, 9: 3, 16: 5)                                      phase 2, 0.6 % of the time
MPI_Finalize  ?                                                 all 16
1 line of the tree is hidden: --all shows it

All events and all the time:
  processes  part                  events   of all     time   of all
          4  start of the program      16    1.6 %  1.00 ms    0.1 %
             relevant phases          868   86.8 %   995 ms   99.5 %
             the rest                 100   10.0 %  3.00 ms    0.3 %
             end of the program        16    1.6 %  1.00 ms    0.1 %
             all                    1,000  100.0 %   1.00 s  100.0 %
          9  start of the program      16    0.8 %  1.00 ms    0.1 %
             relevant phases        1,868   93.4 %   2.00 s   99.8 %
             the rest                 100    5.0 %  3.00 ms    0.1 %
             end of the program        16    0.8 %  1.00 ms    0.1 %
             all                    2,000  100.0 %   2.00 s  100.0 %
         16  start of the program      16    0.4 %  1.00 ms   <0.1 %
             relevant phases        3,868   96.7 %   4.00 s   99.9 %
             the rest                 100    2.5 %  3.00 ms    0.1 %
             end of the program        16    0.4 %  1.00 ms   <0.1 %
             all                    4,000  100.0 %   4.00 s  100.0 %
  16 processes: 120 of the events are to or from MPI_PROC_NULL; 7 polls found nothing and are no
    events
  in calls that all counts have: <0.1 % at 4, <0.1 % at 9, <0.1 % at 16 processes (of the time)
"""


def test_what_is_shown(tmp_path: Path) -> None:
    streams = cli(f"phases {a_study(tmp_path)}")
    assert streams.out == EXPECTED
    assert streams.err == "note: app: not found on this machine, so calls there are addresses\n"


def test_all_and_the_tree_alone(tmp_path: Path) -> None:
    study = str(a_study(tmp_path))
    whole = output(study, "--all")
    assert "hidden" not in whole and "--all" not in whole
    assert "outside all loops" in whole and "3..5" in whole and "MPI_Barrier  app+0x1234" in whole
    tree = output(study, "--tree")
    assert tree == EXPECTED.split("processes\n\n")[1].split("\n\nAll events")[0] + "\n"
    assert "phase 1, 99.0 %" in tree and "Eq. 5.1" not in tree


def test_some_counts(tmp_path: Path) -> None:
    study = str(a_study(tmp_path))
    text = output(study, "-n", "4,9", "--all")
    assert text.startswith("Phases at 9 processes") and "\n       16 " not in text
    assert "1.1x !" in text and "from 4 to 9 " in text
    one = output(study, "-n", "4")
    assert "Eq. 5.1" not in one, "one count cannot be compared with itself"
    assert "× 2 per iteration\n" in one and "2..4" not in one
    error = cli("phases", study, "-n", "4,8", code=2).err
    assert error == f"p3s: -n 8: {study} has no such count; it has 4, 9, 16\n"


def test_json_is_the_artefact_and_the_places(tmp_path: Path) -> None:
    study = str(a_study(tmp_path))
    text = output(study, "--json")
    assert text == output(study, "--json")
    found = json.loads(text)
    assert {key: found[key] for key in artefact()} == artefact()
    assert found["places"]["halo.py:step:44"] == {
        "module": "",
        "function": "step",
        "file": "halo.py",
        "line": 44,
        "offset": 0,
        "inlined_into": [],
        "calls": "",
    }
    assert found["places"]["app+0x1234"]["offset"] == 0x1234
    assert "MPI.so+0x10" not in found["places"], "of Python programs the Python frames"
    assert found["notes"] == ["app: not found on this machine, so calls there are addresses"]
    cut = json.loads(output(study, "--json", "-n", "9"))
    assert cut["counts"] == [9] and list(cut["accounting"]) == ["9"]
    assert all(list(row["per_count"]) == ["9"] for row in cut["phases"])
    steps = cut["tree"]["body"][1]
    assert list(steps["trips"]) == ["9"] and list(steps["body"][3]["ranks"]) == ["9"]


def test_weights_that_change_and_many_counts(tmp_path: Path) -> None:
    content = artefact()
    counts = [4, 9, 16, 25, 36, 49]
    content["counts"] = counts
    content["accounting"] = {str(n): account(1000, 10**9) for n in counts}
    for number, row in enumerate(content["phases"]):
        row["per_count"] = {str(n): cost(n * 10, 0.5, 10**9) for n in counts[number:]}
        row["constant_work"] = True
    text = output(str(a_study(tmp_path, content)))
    assert "weights 4:40 9:90 16:160 25:250 36:360 49:490" in text
    assert "weights 4:– 9:90 16:160 25:250 36:360 49:490" in text
    assert "(Eq. 5.1); constant within 10 %" in " ".join(text.split())


def test_long_programs_are_cut_and_say_so(tmp_path: Path) -> None:
    content = artefact()
    name = "a_function_with_a_name_that_goes_on_and_on_" * 6
    for number in range(300):
        site, loop = f"x{number}", 100 + number
        content["sites"][site] = [f"very_long_file_name_{number}.py:{name}{number}:7"]
        content["tree"]["body"].append(
            {
                "loop": loop,
                "walk": None,
                "trips": trips(*[(7, 7, 1, 7, 7)] * 3),
                "body": [call(1000 + number, site, "MPI_Neighbor_alltoallw", size=(1, 10**15))],
            }
        )
        content["phases"].append(
            phase(
                len(content["phases"]),
                loop,
                by_count(*[cost(7, 0.02, 10**15)] * 3),
                [1000 + number],
            )
        )
    study = str(a_study(tmp_path, content))
    text = output(study)
    assert max(map(len, text.splitlines())) <= 100
    whole = output(study, "--all")
    assert max(map(len, whole.splitlines())) <= 100
    short = output(study, "--tree").splitlines()
    full = output(study, "--tree", "--all").splitlines()
    hidden = len(full) - len(short) + 1
    assert short[-1] == f"{hidden} lines of the tree are hidden: --all shows them"
    assert "263 more phases" in text and "more phases" not in whole


def test_calls_of_one_function_are_one_line(tmp_path: Path) -> None:
    content = artefact()
    for number in range(26):
        site = f"x{number}"
        content["sites"][site] = [f"halo.py:faces:{60 + number}", "halo.py:main:20"]
        content["tree"]["body"].append(
            call(
                50 + number,
                site,
                "MPI_Isend",
                ranks=by_count(4, 4, 4 + number % 8),
                size=(8 * number, 800),
            )
        )
    study = str(a_study(tmp_path, content))
    line = next(x for x in output(study, "--tree").splitlines() if "faces" in x)
    assert " ".join(line.split()) == (
        "MPI_Isend faces halo.py:60-85 < main halo.py:20 26 calls, 4..11 of 16, 0 B..800 B"
    )
    assert output(study, "--tree", "--all").count("MPI_Isend  faces halo.py:") == 26


def test_what_does_not_add_up_is_shown(tmp_path: Path) -> None:
    content = artefact()
    content["accounting"]["16"]["rest"]["events"] -= 5
    assert "not accounted for" in output(str(a_study(tmp_path, content)))
    assert "not accounted for" not in EXPECTED


def test_nothing_reaches_the_terminal_raw(tmp_path: Path) -> None:
    content = artefact()
    content["sites"]["s1"] = ["evil\x1b[2J.py:\u202emain:1"]
    content["sites"]["s5"] = ["\x1b]0;title\x07+0x12"]
    content["tree"]["body"][0]["op"] = "MPI_\x1b[31mInit"
    content["tree"]["body"][1]["body"][2]["when"] = "every\x1b[0m 10"
    content["phases"][1]["per_count"]["16"]["operations"] = {"\x1b[5m": 3}
    for args in ([], ["--all"], ["--json"]):
        streams = cli(f"phases {a_study(tmp_path, content)}", *args, code=None)
        assert "\x1b" not in streams.out + streams.err and "\u202e" not in (
            streams.out if "--json" not in args else ""
        )


# ---- what is not right -------------------------------------------------------------------------
def test_no_phases_yet(tmp_path: Path) -> None:
    root = a_study(tmp_path)
    (root / "signature" / "phases.json").unlink()
    for place in (tmp_path / "none", root):
        streams = cli("phases", place, code=1, err="p3s characterize")
        assert streams.err.count("\n") == 1 and streams.out == ""


def test_a_tree_as_deep_as_a_well(tmp_path: Path) -> None:
    study = a_study(tmp_path)
    for depth, wanted in ((95, 0), (200, 1), (100_000, 1)):
        tree = json.dumps(artefact()["tree"])
        outer = '{"loop": 0, "walk": null, "trips": {}, "body": ['
        text = json.dumps(artefact()).replace(tree, outer * depth + tree + "]}" * depth)
        (study / "signature" / "phases.json").write_text(text)
        streams = cli("phases --all -n 9", study, code=wanted)
        assert "internal" not in streams.err and streams.err.count("\n") == 1
        assert all(len(line) <= 100 for line in streams.out.splitlines())


def test_calls_that_not_all_counts_have_are_listed(tmp_path: Path) -> None:
    """A program that changes its decomposition with the count: what is when is told apart."""
    study = a_study(tmp_path)
    path = study / "signature" / "phases.json"
    data = json.loads(path.read_text())
    first = next(item for item in data["tree"]["body"] if "call" in item)
    for key in ("ranks", "count", "bytes", "time_ns"):
        first[key] = {n: first[key][n] for n in ("9", "16")}
    first["time_ns"]["16"] = data["accounting"]["16"]["time_ns"] // 4
    data["phases"][0]["varying"] = True
    write_json(path, data)
    out = cli(f"phases {study}").out
    assert f"only at 9, 16: 1 of the calls, 25.0 % of the time at 16 ({first['op']} 1)" in out
    assert "the calls of phases 0 differ from run to run" in out
