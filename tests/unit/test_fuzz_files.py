"""Whatever is changed in a file: it is refused in one line that names it, or nothing changes."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fuzzing import FORMATS, Bench, Format, trials
from mutations import Raw, text_of
from outcomes import Outcome
from reading import MEMORY, READERS, Files, Reader, kept

from p3s.base.artefacts import add_digest, file_bytes
from p3s.base.errors import P3SError

#: Inputs of each format; every second one has a digest that fits what was changed.
COMMANDS, FEW, MANY = 2, 15, 5_000
BAD = (Outcome.CRASHED, Outcome.HUNG, Outcome.SILENT)
NAMED = {reader.name: reader for reader in READERS}


@pytest.fixture(scope="module")
def files() -> Iterator[Files]:
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        yield Files.made(Path(folder))


@pytest.fixture(scope="module")
def bench(files: Files) -> Bench:
    return Bench(files.root / "study", files.root / "work")


@pytest.mark.parametrize(
    "inputs", [range(FEW), pytest.param(range(FEW, MANY), marks=pytest.mark.slow)], ids=len
)
@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_no_changed_file_crashes_or_misleads_its_reader(
    reader: Reader, inputs: range, files: Files
) -> None:
    bad = [trial for trial in files.trials(reader, inputs) if trial.outcome in BAD]
    assert not bad, f"{len(bad)} of {len(inputs)}, the first: {bad[0]}"


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_no_changed_file_crashes_or_misleads_a_command(form: Format, bench: Bench) -> None:
    bad = [trial for trial in trials(bench, form, range(COMMANDS)) if trial.outcome in BAD]
    assert not bad, f"{len(bad)} of {COMMANDS}, the first: {bad[0]}"


def test_what_is_not_changed_is_unchanged(bench: Bench) -> None:
    for form in FORMATS[:3]:
        expected = bench.expected(form)
        bench.fresh(form)
        assert bench.outcome(form, expected)[0] is Outcome.UNCHANGED


# ---- single changes that somebody meant --------------------------------------------------------
GONE = object()


def _named(value: object) -> str:
    """The same name in every process."""
    return "gone" if value is GONE else str(value)[:40]


DEEP = Raw("[" * 70_000 + "]" * 70_000)
#: Format, place in its file, what stands there instead. Many crashed P3S, or passed, once.
CHANGES: list[tuple[str, tuple[Any, ...], Any]] = [
    ("comms", ("comms", 0, "members"), -1),
    ("model", ("sites", "x"), [[]]),
    ("model", ("items", 0, "rivals"), ""),
    ("order", ("slots",), "text"),
    ("family", ("parts", 0, "missed"), 0),
    ("family", ("parts", 0, "equations"), DEEP),
    ("scaled", ("tables",), None),
    ("scaled", ("n",), Raw("1e400")),
    ("replay", ("tables", "np000012.parquet", "more"), 1),
    ("prediction", ("traced_counts", 2), 1.5),
    ("weak", ("counts", 0, "n"), "2"),
    ("machine", ("network", "eager_bytes"), GONE),
    ("machine", ("network", "sizes", "send_ns", 0), None),
    ("machine", ("facts", "cores"), 10**12),
    ("machine", ("facts", "memory_bytes"), []),
    ("machine", ("facts",), [{}]),
    ("phases", ("tree", "body"), [[]]),
    ("phases", ("phases", 0, "per_count", "3"), {}),
    ("baseline", ("points", 0, "seconds"), 0),
    ("baseline", ("parameters",), {}),
    ("learned", ("first", "coefficients"), []),
    ("learned", ("middle", "left", 0), 0),  # a tree without an end
    ("learned", ("middle", "feature", 0), 9),
    ("learned", ("middle",), []),
    ("learned", ("low", "root", 0), -1),
    ("learned", ("low", "value", 0), "x"),
    ("learned", ("low", "left", 0), 0.5),
    ("learned", ("high", "base"), None),
    ("learned", ("names",), ["a"]),
    ("learned", ("card",), {}),
    ("learned", ("wider",), "1"),
    ("threads", ("inside",), 2),
    ("threads", ("laws", 0, "measured", "fork"), GONE),
    ("threads", ("laws", 0, "shapes", "remote"), GONE),
    ("campaign", ("settings", "ranks"), None),
    ("validation", ("n",), "9"),
    ("model", ("phases",), GONE),
    ("model", ("items", 0, "slots"), [{}]),
    ("model", ("items", 3, "slots", 0, "count"), {"expr": ["call", "x"]}),
    ("model", ("items", 3, "phase"), 99),
    ("model", ("items", 3, "slots", 0, "when"), [{"items": None, "when": [["every", 0, 0]]}]),
    ("model", ("items", 3, "relation"), {"kind": "evil"}),
    ("model", ("order", "loops", 0, "trips"), [{"items": None, "law": {"expr": ["x"]}}]),
    ("model", ("grid", "family"), {"kind": "line"}),
    ("machine", ("core",), GONE),
    ("machine", ("core", "divide", "ns"), 0),
    ("machine", ("core", "divide", "ns"), "fast"),
    ("machine", ("core", "divide", "ns"), True),
    ("machine", ("curves",), []),
    ("machine", ("curves", "chase"), GONE),
    ("machine", ("curves", "read", "ns", 3), -1.0),
    ("machine", ("curves", "read", "ns", -1), GONE),
    ("machine", ("curves", "read", "working_set", 1), 1),
    ("machine", ("network",), {"sizes": {}}),
    ("machine", ("loaded",), {"processes": "many", "curves": {}}),
    ("machine", ("openmp", "overheads", "task"), GONE),
    ("machine", ("openmp", "overheads", "single", 1, "ns", 0), -1.0),
    ("machine", ("openmp", "overheads", "static", 1, "ns", -1), GONE),
    ("machine", ("openmp", "overheads", "parallel", 0, "threads"), 9),
    ("machine", ("openmp", "far", "bytes_per_s", 0), 0.0),
    ("machine", ("openmp", "line", "ns"), "fast"),
    ("machine", ("openmp", "clock", "hz", -1), GONE),
    ("phases", ("counts",), []),
    ("phases", ("counts",), [9, 6, 4, 2]),
    ("phases", ("counts", 0), 0),
    ("phases", ("counts",), {}),
    ("phases", ("counts", 3), 25),
    ("phases", ("tree",), None),
    ("phases", ("tree", "walk"), "around"),
    ("phases", ("tree", "body", 3, "loop"), -1),
    ("phases", ("tree", "body", 3, "trips", "9"), 100),
    ("phases", ("tree", "body", 3, "trips", "9", "per_entry"), [1]),
    ("phases", ("tree", "body", 3, "trips", "sixteen"), {}),
    ("phases", ("tree", "body", 0), "MPI_Init"),
    ("phases", ("tree", "body", 0, "op"), 7),
    ("phases", ("tree", "body", 0, "bytes", "4"), [1, 2, 3]),
    ("phases", ("phases", 1, "loop"), 77),
    ("phases", ("phases", 1, "calls"), [77]),
    ("phases", ("phases", 1, "per_count", "9", "share"), 7),
    ("phases", ("phases", 1, "per_count", "9", "share"), True),
    ("phases", ("phases", 1, "per_count", "9", "weight"), 1.5),
    ("phases", ("phases", 1, "per_count", "9", "weight"), Raw("Infinity")),
    ("phases", ("phases", 1, "total_work_spread"), "much"),
    ("phases", ("accounting",), {}),
    ("phases", ("accounting", "9", "rest"), None),
    ("phases", ("sites",), []),
    ("phases", ("sites", "Init"), "main"),
    ("times", ("rows",), 9),
    ("times", ("unit",), "hours"),
    ("times", ("nodes",), GONE),
    ("times", ("np",), 3),
    ("times", ("unmatched",), Raw("NaN")),
    ("compute", ("laws",), GONE),
    ("compute", ("phases", 0, "x"), [5, "7e"]),
    ("compute", ("phases", 0, "crm_i"), {"a": "many"}),
    ("compute", ("phases", 0, "crm_i"), {"a": -1.0, "b": 0.0}),
    ("compute", ("phases", 0, "crm_i"), {"a": True, "b": 0.0}),
    ("compute", ("phases", 0, "crm_i"), [1, 2]),
    ("compute", ("phases", 0, "spread"), []),
    ("compute", ("phases", 0, "spread", "turns", "levels"), []),
    ("compute", ("phases", 0, "spread", "turns", "levels"), None),
    ("compute", ("phases", 0, "spread", "turns", "values"), [1.0, 2.0]),
    ("compute", ("phases", 0, "spread", "turns", "values"), [3.0]),
    ("compute", ("phases", 0, "spread", "turns", "tail"), -1.0),
    ("compute", ("phases", 0, "spread", "turns", "tail"), Raw("NaN")),
    ("compute", ("phases", 0, "spread", "turns", "tail"), "x"),
    ("prediction", ("counts",), []),
    ("prediction", ("counts",), None),
    ("prediction", ("counts",), "2"),
    ("prediction", ("counts",), [{}]),
    ("prediction", ("counts",), [{"n": 0}]),
    ("prediction", ("counts", 0, "speedup"), -1.0),
    ("prediction", ("counts", 0, "comm_s"), "1"),
    ("baseline", ("family",), "magic"),
    ("baseline", ("points",), []),
    ("baseline", ("points",), [{"n": 4}]),
    ("baseline", ("parameters",), {"serial": "a", "parallel": 1, "n_params": 2}),
    ("baseline", ("trials",), [{}]),
    ("baseline", ("inputs",), 3),
    ("baseline", ("schema_version",), 9),
    ("tree", ("tree", "nodes"), []),
    ("tree", ("tree", "nodes", -1), GONE),
    ("tree", ("tree", "nodes", 0, "coefficients", -1), GONE),
    ("tree", ("tree", "nodes", 0, "split", "left"), 0),
    ("tree", ("tree", "nodes", 0, "split", "variable"), "size"),
    ("tree", ("tree", "nodes", 1, "low"), -1.0),
    ("tree", ("tree", "expression"), "exp(b1)"),
    ("tree", ("tree", "growing"), {"alpha": "0.05"}),
    ("tree", ("tree", "box", "w2"), GONE),
    ("tree", ("more",), 1),
    ("threads", ("laws", 0, "phase"), "x"),
    ("threads", ("laws", 0, "error"), [1.0]),
    ("study", ("commands",), "rm -rf"),
    ("signature", ("schema_version",), 1),
    ("model", ("phases", 0, "parent"), 1),
    ("model", ("phases", 1, "parent"), 1),
    ("model", ("phases", 1, "parent"), None),
    ("model", ("phases", 1, "parent"), 99),
    ("model", ("phases", 1, "parent"), -1),
]


@pytest.mark.parametrize(("name", "place", "value"), CHANGES, ids=_named)
def test_what_fits_no_other_value_is_refused(
    name: str, place: tuple[Any, ...], value: Any, files: Files
) -> None:
    reader = NAMED[name]
    path = files.root / reader.file
    data = path.read_bytes()
    content = json.loads(data)
    holder = content
    for key in place[:-1]:
        holder = holder[key]
    if value is GONE:
        del holder[place[-1]]
    else:
        holder[place[-1]] = value
    changed = add_digest(text_of(content).encode())
    trial = files.trial(reader, 1, changed, "", reader.read(path))
    assert trial.outcome is Outcome.REFUSED, trial


def test_hosts_that_are_none_are_told_with_their_file(files: Files) -> None:
    reader = NAMED["switches"]
    data = (files.root / reader.file).read_bytes()
    changed = data.replace(b"n[0-3]", b"n[0-3")
    assert files.trial(reader, 1, changed, "", None).outcome is Outcome.REFUSED


def test_a_digest_whose_key_is_damaged_is_missed(files: Files) -> None:
    reader = NAMED["study"]
    data = (files.root / reader.file).read_bytes()
    changed = data.replace(b'"digest"', b'"dhgest"')
    assert files.trial(reader, 0, changed, "", None).outcome is Outcome.REFUSED


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_a_pipe_in_place_of_a_file_is_not_waited_for(reader: Reader, files: Files) -> None:
    if not reader.keeps:
        pytest.skip("people may give P3S a pipe here")
    path = files.root / reader.file
    with kept(path):
        path.unlink()
        os.mkfifo(path)
        outcome, said = files.outcome(reader, None)
    assert outcome is Outcome.REFUSED, said


def _npy(claims: str) -> Callable[[bytes], bytes]:
    return lambda data: data.replace(b"'shape': (4, 4), ", claims.encode().ljust(17))


@pytest.mark.parametrize("shape", ["'shape': (9, 9),", "'shape': (-4,-4)", "'shape': (99**9,)"])
def test_an_array_that_is_not_as_large_as_it_says_is_refused(shape: str, files: Files) -> None:
    import zipfile

    reader = NAMED["result"]
    path = files.root / reader.file
    with zipfile.ZipFile(path) as old:
        members = {name: old.read(name) for name in old.namelist()}
    with kept(path):
        with zipfile.ZipFile(path, "w") as new:
            for name, member in members.items():
                new.writestr(name, _npy(shape)(member))
        changed = path.read_bytes()
    trial = files.trial(reader, 1, changed, "", None)
    assert trial.outcome is Outcome.REFUSED, trial


def test_a_damaged_comparison_stops_a_prediction(files: Files, tmp_path: Path) -> None:
    from p3s.base.study import Study
    from p3s.pipeline.prediction import _validations

    study = Study(files.root / "study")
    assert len(_validations(study.root)) == 1
    path = study.validate_path(9)
    with kept(path):
        path.write_bytes(path.read_bytes().replace(b'"n": 9', b'"n": 8'))
        with pytest.raises(P3SError, match="np000009.json: damaged"):
            _validations(study.root)


def test_directories_and_devices_are_no_files() -> None:
    for path in ("/dev/zero", "/"):
        with pytest.raises(OSError):
            file_bytes(Path(path))
