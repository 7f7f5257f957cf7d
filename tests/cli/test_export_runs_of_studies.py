"""Traced and simulated runs in formats of other tools, read by parsers made from the formats."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from xml.etree import ElementTree

import load_captures
import numpy as np
import pytest
import tiny_format
from commands import cli

from p3s.base.extensions import GROUP
from p3s.base.study import Study
from p3s.formats import extrap

TURNS, TRACED, LARGE = 20, 4, 12
#: Of load_captures.halo: messages of a rank in one iteration, and their bytes.
SENDS, NBYTES = 2, 800
BOTH = pytest.mark.parametrize("n", [TRACED, LARGE])


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Path:
    """A study of a ring with captures at 4, 6, 8."""
    root = tmp_path_factory.mktemp("runs") / "study"
    load_captures.write_study(root, [4, 6, 8], load_captures.halo, TURNS)
    cli(f"model {root}")
    return root


@pytest.fixture
def exported(study, tmp_path):
    """Export to a format; return the path and what is said of it."""

    def to(name: str, n: int, *more: str) -> Path:
        target = tmp_path / f"{name}-{n}"
        cli(f"export {study} --to", name, "-n", n, "-o", target, *more)
        return target

    return to


# ---- Paraver, from its trace format
def parsed_header(line: str) -> tuple[int, list[int], list[tuple[int, int]], int]:
    """Return (end, processors of each node, (threads, node) of each task, communicators)."""
    found = re.fullmatch(
        r"#Paraver \(\d\d/\d\d/\d{2,4} at \d\d:\d\d\):(\d+)_ns:(\d+)\(([\d,]+)\):1:(\d+)"
        r"\(([\d:,]+)\),(\d+)\n",
        line,
    )
    assert found, line
    nodes = [int(cpus) for cpus in found[3].split(",")]
    pairs = [pair.split(":") for pair in found[5].split(",")]
    tasks = [(int(threads), int(node)) for threads, node in pairs]
    assert len(nodes) == int(found[2]) and len(tasks) == int(found[4])
    per_node = Counter()
    for threads, node in tasks:
        per_node[node] += threads
    assert [per_node[k + 1] for k in range(len(nodes))] == nodes
    return int(found[1]), nodes, tasks, int(found[6])


def known_values(text: str) -> dict[int, set[int]]:
    """Return the values that a .pcf names, by type; an empty set where any number may stand."""
    found: dict[int, set[int]] = {}
    for block in text.split("EVENT_TYPE\n")[1:]:
        head, _, values = block.partition("VALUES\n")
        kind = re.fullmatch(r"\d+ +(\d+) +\S.*", head.strip().splitlines()[0])
        assert kind, block
        lines = [line for line in values.splitlines() if line.strip()]
        assert all(re.fullmatch(r"\d+ +\S.*", line) for line in lines)
        found[int(kind[1])] = {int(line.split()[0]) for line in lines}
    return found


@BOTH
def test_paraver(n: int, exported) -> None:
    where = exported("paraver", n)
    assert {path.name for path in where.iterdir()} == {
        "run.prv",
        "run.pcf",
        "run.row",
        "export.json",
    }
    lines = (where / "run.prv").read_text().splitlines(keepends=True)
    end, nodes, tasks, comms = parsed_header(lines[0])
    assert len(tasks) == n
    values = known_values((where / "run.pcf").read_text())
    states: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    inside: dict[str, int] = {}
    sizes: Counter = Counter()
    before = 0
    cpus = sum(nodes)
    for line in lines[1 : 1 + comms]:
        assert re.fullmatch(r"c:1:\d+:\d+(:\d+)+\n", line)
    for line in lines[1 + comms :]:
        numbers = [int(text) for text in line.split(":")]
        kind, *rest = numbers
        cpu, application, task, thread = rest[:4]
        assert 1 <= cpu <= cpus and application == 1 and 1 <= task <= n
        assert 1 <= thread <= tasks[task - 1][0]
        track = f"{task}.{thread}"
        assert rest[4] >= before  # sorted by time
        before = rest[4]
        if kind == 1:
            begin, until, state = rest[4:]
            assert 0 <= begin < until <= end and 0 <= state <= 16
            states[track].append((begin, until, state))
        elif kind == 2:
            pairs = list(zip(rest[5::2], rest[6::2], strict=True))
            assert pairs and rest[4] <= end
            for event, value in pairs:
                assert not values[event] or value in values[event]
            mpi = next((event, value) for event, value in pairs if event < 50_000_010)
            assert (mpi[1] == 0) == (track in inside)  # an end after each begin
            if mpi[1]:
                inside[track] = mpi[0]
            else:
                assert inside.pop(track) == mpi[0]
        else:
            assert kind == 3 and len(rest) == 14
            assert rest[4] <= rest[5] and rest[10] <= rest[11] <= end
            assert rest[6] != cpu and rest[8] in ((task % n) + 1, (task - 2) % n + 1)
            sizes[rest[12]] += 1
    assert not inside
    for spans in states.values():  # of a thread they follow each other without gaps
        assert spans[0][0] == 0 and spans[-1][1] == end
        assert all(a[1] == b[0] for a, b in zip(spans, spans[1:], strict=False))
    messages = sum(sizes.values())
    assert set(sizes) == {NBYTES}
    assert messages == n * SENDS * TURNS if n == TRACED else messages >= n * SENDS
    row = (where / "run.row").read_text()
    told = {level: int(size) for level, size in re.findall(r"LEVEL (\w+) SIZE (\d+)", row)}
    assert told == {"CPU": cpus, "NODE": len(nodes), "THREAD": n}
    for level, size in told.items():
        names = row.split(f"LEVEL {level} SIZE {size}\n")[1].split("\n\n")[0].splitlines()
        assert len(names) == size


# ---- Cube, from pyCubexR's description of the format
def as_cube_scans_it(text: str) -> None:
    """Check what Cube's scanner wants beyond XML: its own forms of tags, in double quotes."""
    lines = text.splitlines()
    assert lines[:2] == ['<?xml version="1.0" encoding="UTF-8"?>', '<cube version="4.4">']
    attributes = r'(?: \w+="[^"\n]*")*'
    forms = (
        rf"<attr{attributes}/>",
        r"<(\w+)>[^<\n]*</\1>",
        rf"<(?:metric|region|cnode|systemtreenode|locationgroup|location){attributes}>",
        r"</?(?:metrics|program|system|metric|region|cnode|systemtreenode|locationgroup|location)>",
        r"</cube>",
    )
    assert all(any(re.fullmatch(form, line) for form in forms) for line in lines[2:])


def read_cubex(path: Path) -> tuple[ElementTree.Element, dict[str, np.ndarray]]:
    """Return anchor.xml and the values of each metric: a row per call path, a column per rank."""
    with tarfile.open(fileobj=io.BytesIO(path.read_bytes()), mode="r:") as tar:
        files = {entry.name: tar.extractfile(entry).read() for entry in tar}
    anchor = ElementTree.fromstring(files["anchor.xml"])
    as_cube_scans_it(files["anchor.xml"].decode())
    locations = anchor.findall(".//location")
    cnodes = anchor.findall(".//cnode")
    assert [int(node.get("id")) for node in cnodes] == list(range(len(cnodes)))  # depth first
    found = {}
    for metric in anchor.findall("metrics/metric"):
        number, dtype = metric.get("id"), metric.findtext("dtype")
        index, data = files[f"{number}.index"], files[f"{number}.data"]
        assert index[:11] == b"CUBEX.INDEX" and data[:10] == b"CUBEX.DATA"
        one, version, kind, rows = struct.unpack("<iHBi", index[11:22])
        assert (one, version, kind) == (1, 0, 1)
        used = struct.unpack(f"<{rows}i", index[22:])
        numbers = np.frombuffer(data[10:], "<f8" if dtype == "DOUBLE" else "<u8")
        values = np.zeros((len(cnodes), len(locations)))
        values[list(used)] = numbers.reshape(rows, len(locations))
        found[metric.findtext("uniq_name")] = values
    return anchor, found


@BOTH
def test_cube(n: int, exported) -> None:
    path = exported("cube", n)
    anchor, values = read_cubex(path)
    regions = {
        region.get("id"): (region.findtext("name"), region.findtext("paradigm"))
        for region in anchor.findall("program/region")
    }
    of = [regions[cnode.get("calleeId")] for cnode in anchor.findall(".//cnode")]
    assert len(anchor.findall("program/cnode")) == 1  # one root
    visits: Counter = Counter()
    for (name, paradigm), row in zip(of, values["visits"], strict=True):
        assert paradigm == "mpi" or not row.any()
        visits[name] += int(row.sum())
    # All iterations of the run, also where only some were simulated.
    assert visits["MPI_Isend"] == SENDS * TURNS * n and visits["MPI_Waitall"] == TURNS * n
    mpi = np.array([paradigm == "mpi" for _, paradigm in of])
    sends = np.array([name == "MPI_Isend" for name, _ in of])
    assert values["bytes_sent"][sends].sum() == SENDS * TURNS * n * NBYTES
    assert values["bytes_received"].sum() == SENDS * TURNS * n * NBYTES
    assert (values["time"] >= 0).all() and values["time"].shape[1] == n
    assert values["time"][mpi].sum() > 0 and values["time"][~mpi].sum() > 0
    ranks = [int(group.findtext("rank")) for group in anchor.findall(".//locationgroup")]
    assert sorted(ranks) == list(range(n))


def test_time_of_a_traced_profile_is_that_of_the_run(study: Path, exported) -> None:
    from p3s.capture import read_run

    _, values = read_cubex(exported("cube", TRACED))
    run = read_run(Study(study).runs(TRACED)[0].path)
    for rank in run.ranks:
        whole = int((rank.start_ns + rank.elapsed_ns)[-1] - rank.start_ns[0])
        assert values["time"][:, rank.rank].sum() == pytest.approx(1e-9 * whole, rel=1e-9)


def test_ranks_of_a_node_stand_together() -> None:
    from made_runs import call, run_of, world

    from p3s.formats.cube import cubex
    from p3s.formats.exported import ExportResult
    from p3s.formats.profile import profile_of
    from p3s.formats.run import Run

    ranks = [[(call("Init"), -9, 9), (call("Finalize"), 10 * (1 + r), 0)] for r in range(4)]
    run = Run(run_of(ranks, [[]] * 4, (world(4),)), hosts=['a"<&', "b", 'a"<&', "b"])
    with tempfile.NamedTemporaryFile() as file:
        file.write(cubex(run, profile_of(run, ExportResult("cube", run.trace.np, Path()))))
        file.flush()
        anchor, values = read_cubex(Path(file.name))
    names = [node.findtext("name") for node in anchor.findall(".//systemtreenode")]
    assert names == ["machine", 'a"<&', "b"]
    assert [int(g.findtext("rank")) for g in anchor.findall(".//locationgroup")] == [0, 2, 1, 3]
    assert [int(place.get("Id")) for place in anchor.findall(".//location")] == [0, 1, 2, 3]
    whole = values["time"].sum(axis=0) * 1e9
    assert whole == pytest.approx([19, 39, 29, 49])


def test_pycubexr_reads_it(exported) -> None:
    reader = pytest.importorskip("pycubexr")
    path = exported("cube", LARGE)
    _, values = read_cubex(path)
    with reader.CubexParser(str(path)) as parser:
        for metric in parser.all_metrics():
            found = parser.get_metric_values(metric)
            for cnode in parser.all_cnodes():
                assert found.cnode_values(cnode) == pytest.approx(values[metric.name][cnode.id])


# ---- speedscope
@BOTH
def test_speedscope(n: int, exported) -> None:
    told = json.loads(exported("speedscope", n, "--ranks", "0-1").read_text())
    assert told["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    frames = told["shared"]["frames"]
    assert all(set(frame) <= {"name", "file", "line", "col"} and frame["name"] for frame in frames)
    assert len(told["profiles"]) == 3 and ("simulated" in told["name"]) == (n == LARGE)
    for profile in told["profiles"]:
        assert profile["type"] == "sampled" and profile["unit"] == "seconds"
        assert len(profile["samples"]) == len(profile["weights"]) > 2
        assert all(weight > 0 for weight in profile["weights"])
        assert sum(profile["weights"]) == pytest.approx(profile["endValue"])
        for sample in profile["samples"]:
            assert all(0 <= frame < len(frames) for frame in sample)
        roots = {sample[0] for sample in profile["samples"]}
        assert len(roots) == 1


# ---- OTF2 of a simulated run
def test_otf2_of_a_simulated_run(exported) -> None:
    otf2 = pytest.importorskip("otf2")
    where = exported("otf2", LARGE, "--cores-per-node", "4")
    names: Counter = Counter()
    with otf2.reader.open(str(where / "traces.otf2")) as reader:
        nodes = [node for node in reader.definitions.system_tree_nodes if node.class_name == "node"]
        assert len(nodes) == LARGE // 4
        for _, event in reader.events:
            names[type(event).__name__] += 1
    assert names["MpiIsend"] == names["MpiIrecv"] == names["MpiIsendComplete"] > 0
    assert names["MpiIrecvRequest"] == names["MpiIrecv"] and names["Enter"] == names["Leave"]
    assert names["MpiCollectiveBegin"] == names["MpiCollectiveEnd"] > 0


@pytest.mark.skipif(shutil.which("otf2-print") is None, reason="otf2-print is not installed")
@BOTH
def test_otf2_print_reads_it(n: int, exported) -> None:
    pytest.importorskip("otf2")
    anchor = exported("otf2", n) / "traces.otf2"
    done = subprocess.run(
        ["otf2-print", "-G", str(anchor)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0 and not done.stderr
    for kind in ("CLOCK_PROPERTIES", "PARADIGM ", "SYSTEM_TREE_NODE", "COMM ", "COMM_LOCATIONS"):
        assert kind in done.stdout
    assert "INVALID" not in done.stdout
    done = subprocess.run(
        ["otf2-print", str(anchor)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0 and not done.stderr
    assert done.stdout.count("MPI_ISEND_COMPLETE") == done.stdout.count("MPI_IRECV ") > 0


def did(root: Path, n: int) -> list[list[tuple]]:
    """What each rank of a traced run did."""
    from p3s.capture import read_run

    run = read_run(Study(root).runs(n)[0].path)
    return [
        [(c.op, c.peer, c.bytes, c.tag) for c in (run.calls[k] for k in rank.call.tolist())]
        for rank in run.ranks
    ]


def test_a_study_read_back_from_otf2_is_the_same(study: Path, exported, tmp_path) -> None:
    pytest.importorskip("otf2")
    archives = [str(exported("otf2", n)) for n in (4, 6, 8)]
    again = tmp_path / "again"
    cli(f"add {again}", *archives, "--", "mpiexec", "-n", "{np}", "./app")
    assert did(again, 6) == did(study, 6)
    cli(f"model {again}")
    models = [json.loads((root / "model.json").read_text()) for root in (study, again)]
    calls = [
        sorted(
            (item["op"], json.dumps(slot["relation"]))
            for item in of["items"]
            for slot in item["slots"]
        )
        for of in models
    ]
    assert calls[0] == calls[1] and any("Isend" in op for op, _ in calls[0])


# ---- Extra-P
def test_text_for_extra_p() -> None:
    points = [(2, "run", "calls", 4.0), (4, "run", "calls", 5.0), (4, "run", "time", 1.5)]
    points += [(4, "run", "time", 1.25)]
    assert "".join(extrap.text_lines(points)) == (
        "PARAMETER p\nPOINTS (2) (4)\n"
        "METRIC calls\nREGION run\nDATA 4.0\nDATA 5.0\n"
        "METRIC time\nREGION run\nDATA 0.0\nDATA 1.5 1.25\n"
    )


def test_a_format_from_outside(study: Path, tmp_path: Path) -> None:
    """What a distribution names as an entry point is written and read as what comes with P3S."""
    about = tmp_path / "tiny-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[{GROUP}]\ntiny = tiny_format\n")
    path = os.pathsep.join([str(tmp_path), str(Path(tiny_format.__file__).parent)])

    def outside(*words: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "p3s", *map(str, words)],
            capture_output=True,
            text=True,
            timeout=300,
            env={**os.environ, "PYTHONPATH": path},
            check=False,
        )

    assert re.search(r"^ *tiny +captures in JSON$", outside("export", "--help").stdout, re.M)
    target, copy = tmp_path / "run.tiny", tmp_path / "copy"
    wrote = outside("export", study, "--to", "tiny", "-n", TRACED, "-o", target)
    assert (wrote.returncode, wrote.stdout) == (0, f"{target}\n"), wrote.stderr
    read = outside("add", copy, target, "--", "mpiexec", "-n", "{np}", "./halo")
    assert read.returncode == 3 and tiny_format.NOTE in read.stderr, read.stderr
    assert "MPI_Tiny" in read.stderr, "calls are left out"
    assert did(copy, TRACED) == did(study, TRACED)
    # Without the package nobody knows the format.
    cli(f"export {study} --to tiny -n {TRACED}", code=2)
    cli(f"add {tmp_path / 'other'} {target}", code=1)
