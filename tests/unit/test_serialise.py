"""Records and their files: schemas, safety, what is older than its inputs."""

from __future__ import annotations

import ast
import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import corpus
import models
import pytest
from comparisons import comparison, held_out, work
from jsonschema import Draft202012Validator
from paths import ROOT
from schemas import FORMATS, made

from p3s.base.artefacts import as_json, is_stale
from p3s.base.errors import P3SError
from p3s.base.schemas import first_problem, load_schema
from p3s.base.serialise import FileFormat, Key, ShapeError, Total, from_data, to_data
from p3s.base.serialise import Share as Part
from p3s.base.study import Study, write_json
from p3s.model.compare import compare
from p3s.model.comparison import Comparison, HoldOut, WorkAt
from p3s.model.law_types import CountLaw, SizeLaw, TripLaw
from p3s.model.reasons import Code, Reason, Verdict
from p3s.model.stage import SCHEMA, as_file, load, read
from p3s.model.types import Model, Share
from p3s.model.work_types import Occurs

ONE_LAW = ["num", 3, 1]


def on_disk(value: Any) -> Any:
    return json.loads(json.dumps(to_data(value), allow_nan=False))


# ---- there and back ----------------------------------------------------------------------------
MODELS = {**models.ALL, "every-tenth": lambda: models.built("every-tenth")}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_comes_back_as_it_was(name: str) -> None:
    """Commands go on with what they fitted as if they had read it: numbers are of the same type."""
    model = MODELS[name]()
    data = json.loads(as_json(as_file(model)))
    assert first_problem(data, load_schema("model-3")) == ""
    assert data.pop("schema") == SCHEMA and data.pop("schema_version")
    again = from_data(Model, data)
    assert again == model and repr(again) == repr(model) and on_disk(again) == on_disk(model)


def test_whoever_reads_a_model_knows_all_kinds_of_grids() -> None:
    code = (
        "import p3s.model.stage\n"
        "from p3s.model.grid.at import GridRule\n"
        "known = set(GridRule.kinds)\n"
        "import p3s.model.fit\n"
        "assert known == set(GridRule.kinds), set(GridRule.kinds) - known\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


@pytest.mark.parametrize(
    "record",
    [
        Reason(Code.FIRST_SEEN, at=8),
        Reason(Code.DIRECTION, dims=(0, 2)),
        CountLaw(expr=ONE_LAW, points=3, free=1, holds_from=4),
        CountLaw(follows=(1, 2), factor=(1, 2)),
        CountLaw(rivals=(ONE_LAW, ["block", "ceil", ["num", 62, 1], ["sym", "p0"], ["sym", "c0"]])),
        SizeLaw(means=((2, 1.5, 9),)),
        Occurs(like=2),
        TripLaw(listed=(1, 2, 3)),
        WorkAt(phase=None, share=0.5, true=1.0, predicted=2.0, error=1.0),
        comparison(8, work=work((0.5, -0.25), total=0.1)),
        held_out(8),
        HoldOut(4, possible=False, problem="too few counts"),
    ],
    ids=lambda record: type(record).__name__,
)
def test_a_record_comes_back_as_it_was(record: Any) -> None:
    assert from_data(type(record), on_disk(record)) == record


def test_a_comparison_comes_back_as_it_was() -> None:
    found = compare(models.built("jacobi2d"), corpus.table(corpus.jacobi2d(97, 61, 3), 12))
    assert found.order is not None and found.slots
    assert from_data(Comparison, on_disk(found)) == found


def test_what_has_its_default_is_not_written() -> None:
    assert to_data(CountLaw()) == {} == to_data(Occurs())
    assert to_data(CountLaw(holds_from=4)) == {"from": 4}
    assert to_data(Occurs(like=0)) == {"as": 0}, "nothing is not the first"
    assert to_data(Reason(Code.ONE_COUNT)) == {"code": "one-count"}
    assert to_data({"a": (Verdict.EXACT, None)}) == {"a": ["exact", None]}


# ---- what is none ------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("kind", "data", "says"),
    [
        (Share, {"events": 1.0, "bytes": 1.0}, "time is missing"),
        (Share, {"events": 1.0, "bytes": 1.0, "time": "1"}, "time: '1' is no number"),
        (Share, {"events": 1.0, "bytes": 1.0, "time": True}, "time: True is no number"),
        (Share, {"events": 1.0, "bytes": 1.0, "time": None}, "time: None is no number"),
        (Share, {"events": 1.0, "bytes": 1.0, "time": float("nan")}, "time: nan is no finite"),
        (Share, {"events": 1.0, "bytes": 1.0, "time": float("inf")}, "time: inf is no finite"),
        (Share, {"events": 1.0, "bytes": 1.0, "time": 1.0, "more": 2}, "more"),
        (Share, [1.0, 1.0, 1.0], "it is no object"),
        (Share, None, "it is no object"),
        (CountLaw, {"points": 3.0}, "points"),
        (CountLaw, {"follows": [1, "2"]}, r"follows\[1\]: '2' is no whole number"),
        (CountLaw, {"follows": 7}, "follows"),
        (CountLaw, {"follows": "12"}, "follows: '12' is no list"),
        (CountLaw, {"follows": {"1": 2}}, "follows"),
        (CountLaw, {"factor": [1]}, "factor"),
        (Reason, {"code": "no such code"}, "code: 'no such code' is not a valid Code"),
        (Reason, {"code": "one-count", "at": 2.5}, "at: 2.5 is no whole number"),
    ],
)
def test_what_is_not_of_the_type_is_named_with_its_place(kind: Any, data: Any, says: str) -> None:
    with pytest.raises(ShapeError, match=says) as err:
        from_data(kind, data)
    assert "\n" not in str(err.value) and len(str(err.value)) < 300


def test_the_place_of_what_is_wrong_is_that_in_the_file() -> None:
    data = on_disk(models.built("ring"))
    data["items"][1]["slots"][0]["elem_bytes"] = "eight"
    with pytest.raises(ShapeError, match=r"^items\[1\]\.slots\[0\]\.elem_bytes: 'eight' is no"):
        from_data(Model, data)


@pytest.mark.parametrize("depth", [65, 100_000])
def test_deep_nesting_is_refused(depth: int, tmp_path: Path) -> None:
    study = Study.create(tmp_path / "s", ["mpiexec", "-n", "{np}", "./app"])
    text = json.dumps(as_file(models.built("ring")))
    deep = text.replace('"relation": ', '"relation": ' + '{"kind": ' * depth, 1)
    assert deep != text
    study.model_path.write_text(deep)
    refused(study)
    law: Any = ONE_LAW
    for _ in range(65):
        law = ["add", law, ONE_LAW]
    data: Any = as_file(models.built("ring"))
    data["phases"][0]["weight"] = {"expr": law}
    write_json(study.model_path, data)
    refused(study)


def test_what_is_no_record_is_not_written() -> None:
    with pytest.raises(TypeError, match="set cannot be written"):
        to_data({"a": {1, 2}})


# ---- models that are none ----------------------------------------------------------------------
def refused(study: Study) -> None:
    with pytest.raises(P3SError) as err:
        load(study.root)
    assert "\n" not in str(err.value) and str(study.model_path) in str(err.value)


@pytest.mark.parametrize(
    ("at", "wrong", "says"),
    [
        (("counts", 0), 10**12, "it was fitted to 1000000000000 processes"),
        (("counts", 0), 0, "it was fitted to no process count"),
        (("admissible", "counts", 0), -1, "a process count is below 1"),
        (("phases", 0, "weight", "expr"), ..., "the iterations of phase 0: no law"),
        (("items", 1, "phase"), 99, "the phase of an item is number 99"),
    ],
)
def test_what_no_model_can_be_is_named(
    at: tuple[Any, ...], wrong: Any, says: str, tmp_path: Path
) -> None:
    study = Study.create(tmp_path / "s", ["mpiexec", "-n", "{np}", "./app"])
    data: Any = as_file(models.built("ring"))
    holder = data
    for key in at[:-1]:
        holder = holder[key]
    if wrong is ...:
        del holder[at[-1]]
    else:
        holder[at[-1]] = wrong
    write_json(study.model_path, data)
    with pytest.raises(P3SError, match=says):
        load(study.root)


@pytest.mark.parametrize("key", [f.name for f in dataclasses.fields(Model)])
def test_every_key_of_the_model_is_checked(key: str, tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    data: Any = as_file(models.built("ring"))
    for wrong in (7, "x", [[[]]], {"what": [None]}):
        if isinstance(wrong, type(data.get(key))) and key == "work_unit":
            continue
        write_json(path, {**data, key: wrong})
        with pytest.raises(P3SError, match=rf"damaged or of another version \(.*{key}"):
            read(path)
    write_json(path, {**data, key + "s_": 1})
    with pytest.raises(P3SError, match="damaged or of another version"):
        read(path)


@dataclasses.dataclass(frozen=True)
class Rounded:
    """A record with ranges."""

    part: Part
    total: Total = 0


def test_a_share_may_be_rounded_above_one() -> None:
    assert from_data(Rounded, {"part": 1 + 2**-52}).part > 1
    with pytest.raises(P3SError, match="more than 1"):
        from_data(Rounded, {"part": 1.001})
    with pytest.raises(P3SError, match="less than 0"):
        from_data(Rounded, {"part": 0.5, "total": -1})


@dataclasses.dataclass(frozen=True)
class _ByNumber:
    each: Mapping[Annotated[Total, Key()], int]


def test_a_number_is_a_key_in_one_way_only() -> None:
    assert from_data(_ByNumber, {"each": {"0": 1, "4": 2}}).each == {0: 1, 4: 2}
    for other in ("04", "0" * 20 + "4", "9" * 20, "+4", "4.0", " 4", "\u0664", ""):
        with pytest.raises(ShapeError, match="is no key"):
            from_data(_ByNumber, {"each": {"4": 1, other: 2}})


def test_what_is_no_model_does_not_meet_it() -> None:
    """Models do: test_serialise.py."""
    data = json.loads(json.dumps(as_file(models.built("cg"))))
    data["items"][0]["verdict"] = "sure"
    assert first_problem(data, load_schema("model-3")).startswith("items[0].verdict is 'sure'")
    data["items"][0]["verdict"] = "exact"
    data["phases"][0]["more"] = 1
    assert first_problem(data, load_schema("model-3")) == "phases[0].more is not known"


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.file)
def test_all_published_schemas_are_the_types(form: FileFormat[Any]) -> None:
    schema = json.loads(json.dumps(made(form)))
    assert schema == load_schema(form.file), "python docs/make/schemas.py"
    Draft202012Validator.check_schema(schema)


def test_a_range_is_in_the_schema() -> None:
    properties = load_schema("scaled-1")["properties"]
    assert properties["n"] == {"type": "integer", "minimum": 1, "maximum": 1 << 24}


FILES = sorted(
    p for room in ("p3s", "signature_runner", "replay") for p in (ROOT / room).rglob("*.py")
)
FORBIDDEN_NAMES = set(
    "eval exec compile sympify parse_expr lambdify mktemp extractall read_pickle".split()
)
FORBIDDEN_MODULES = {"pickle", "marshal", "shelve", "dill"}


def forbidden(path: Path) -> Iterator[str]:
    """Yield what of a file turns data into code, or starts a shell."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            f = node.func
            name = f.attr if isinstance(f, ast.Attribute) else getattr(f, "id", "")
            value = f.value if isinstance(f, ast.Attribute) else None
            owner = value.id if isinstance(value, ast.Name) else ""
            if name in FORBIDDEN_NAMES and (owner, name) != ("re", "compile"):
                yield f"{path}:{node.lineno} {name}"
            if (owner, name) == ("os", "system"):
                yield f"{path}:{node.lineno} os.system"
            for kw in node.keywords:
                if kw.arg == "shell" and getattr(kw.value, "value", False) is True:
                    yield f"{path}:{node.lineno} shell=True"
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        for name in names:
            if name.split(".")[0] in FORBIDDEN_MODULES:
                yield f"{path}:{node.lineno} {name}"


def test_no_code_from_data() -> None:
    assert len(FILES) > 100
    found = [line for path in FILES for line in forbidden(path)]
    assert not found, "\n".join(found)


def dated(path: Path, ahead_s: float) -> Path:
    path.touch()
    os.utime(path, (time.time() + ahead_s,) * 2)
    return path


def test_what_is_older_than_its_input_is_made_again(tmp_path: Path) -> None:
    made, read = dated(tmp_path / "made", -10), dated(tmp_path / "read", -20)
    assert not is_stale(made, [read]) and is_stale(read, [made])
    assert is_stale(tmp_path / "missing", [])
    assert not is_stale(made, [tmp_path / "missing"])


def test_what_was_made_while_the_clock_was_ahead_is_made_again(tmp_path: Path) -> None:
    read = dated(tmp_path / "read", 0)
    assert is_stale(dated(tmp_path / "made", 86400), [read])
    assert not is_stale(dated(tmp_path / "made", 60), [read]), "a file server a minute ahead"
