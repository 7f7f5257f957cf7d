"""The model stage: signatures in, model.json out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from p3s.errors import P3SError

if TYPE_CHECKING:
    from p3s.study import Study


def build(study_dir: Path, holdout: bool = True) -> dict[str, Any]:
    """Fit the model of a study from all its signatures and write model.json; return it."""
    from p3s.characterize import load_table
    from p3s.model.fit import build_model
    from p3s.model.grid.stated import Contradiction, known_grid
    from p3s.study import Study, write_json

    study = Study.open(Path(study_dir))
    counts = study.signature_counts()
    if len(counts) < 3:
        raise P3SError(
            f"model: {study_dir} holds signatures of {len(counts)} process counts, "
            "three are needed (two to fit, one held out); run `p3s characterize` at "
            "more"
        )
    known = known_grid(study)
    try:
        model = build_model(
            [load_table(study.root, n) for n in counts],
            holdout,
            typed_numbers(study.command()),
            study.failed_counts(),
            study.manifest().get("trips", {}),
            known,
        )
    except Contradiction as err:
        raise Contradiction(
            f"{study.root}: the grid that is stated ({known.text()}) does not fit the traces: "
            f"{err}; correct it with p3s model --grid, or take it back with --grid none"
        ) from err
    model = {**as_of_now(study, model), "without": study.left_out()}
    write_json(study.model_path, model)
    return model


def as_of_now(study: Study, model: dict[str, Any]) -> dict[str, Any]:
    """Return a model with what the study's runs, later ones too, tell of the counts it takes.

    A count that was refused since is proposed no more.
    """
    from p3s.model.grid.admissible import relearn
    from p3s.model.nextcount import next_counts

    known = model.get("admissible")
    if not known:
        return model
    now = relearn(known, study.complete_counts(), study.failed_counts(), model["grid"]["cart"])
    if now == known:
        return model
    model = {**model, "admissible": now}
    return {**model, "next": next_counts(model)}


def typed_numbers(command: Sequence[str]) -> set[int]:
    """Return the numbers among a program's arguments (--nx=300, 4x8), hints at its extents.

    The program is the first word after the one with {np} that is no option and no number.
    """
    words = list(command)
    start = next((i + 1 for i, w in enumerate(words) if "{np}" in w), 0)
    while start < len(words) and (words[start].startswith("-") or words[start].isdigit()):
        start += 1
    return {
        int(d)
        for w in words[start + 1 :]
        if "/" not in w
        for d in re.findall(r"\d+", w)
        if len(d) <= 12
    }


def grid_changed(study: Study, model: Mapping[str, Any]) -> bool:
    """Tell whether something else is known of the grid now than when the model was fitted."""
    from p3s.model.grid.stated import known_grid

    grid = model["grid"]
    then = grid.get("stated") or (grid.get("dropped") or {}).get("said") or {}
    return known_grid(study).to_json() != then


#: What a model must hold; anything else was written by another version or damaged.
_KEYS = {
    "counts",
    "grid",
    "tag_splits",
    "items",
    "phases",
    "work_unit",
    "sites",
    "shares",
    "unmodelled_ops",
    "first_seen",
    "holdout",
    "order",
}
_ITEM_KEYS = {
    "node",
    "site",
    "op",
    "kind",
    "tag",
    "tag_value",
    "relation",
    "place",
    "slots",
    "phase",
    "order",
    "loop_start",
    "verdict",
    "why",
}
_SLOT_KEYS = {"guard", "count", "elements", "elem_bytes", "root", "work", "relation", "place"}
_PHASE_KEYS = {"phase", "parent", "depth", "name", "items", "weight", "work"}


def load(study_dir: Path) -> dict[str, Any]:
    """Return the study's model, its shape and its equations checked.

    Raises P3SError in one line for a model that is damaged or of another version.
    """
    from p3s.model.evaluate import generate
    from p3s.study import Study, read_json

    study = Study.open(Path(study_dir))
    path = study.model_path
    model = read_json(path, "p3s.model")
    try:
        _check_shape(model)
        generate(model, min(model["counts"]))  # a rule that cannot be evaluated fails here
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as err:
        why = " ".join(str(err).split())[:80] or type(err).__name__
        raise P3SError(
            f"{path}: damaged or of another version ({why}); run `p3s model` again"
        ) from err
    return as_of_now(study, model)


def _need(what: str, have: Any, keys: set[str]) -> None:
    missing = sorted(keys - set(have))
    if missing:
        raise KeyError(f"{what} lacks {missing[0]}")


def _check_shape(model: dict[str, Any]) -> None:
    from p3s.laws.expr import check
    from p3s.model.order.patterns import check as check_patterns

    _need("the model", model, _KEYS)
    for item in model["items"]:
        _need("an item", item, _ITEM_KEYS)
        if not 0 <= item["phase"] < len(model["phases"]):
            raise ValueError("an item is in no phase")
        for slot in item["slots"]:
            _need("a slot", slot, _SLOT_KEYS)
            for rule in slot.get("when") or ():
                check_patterns(rule["when"])
            rivals = [r for r in slot["elements"].get("rivals", ()) if isinstance(r, dict)]
            for law in (slot["count"], slot["elements"], slot.get("turns"), slot["root"], *rivals):
                for key in ("expr", "total", "first", "number"):
                    if law is not None and key in law:
                        check(law[key])
    for loop in (model["order"] or {"loops": ()})["loops"]:
        _need("a loop", loop, {"loop", "parent", "at", "walk", "trips"})
        for rule in loop["trips"]:
            check_patterns(rule.get("when") or ())
            if "expr" in (rule["law"] or {}):
                check(rule["law"]["expr"])
    for k, phase in enumerate(model["phases"]):
        _need("a phase", phase, _PHASE_KEYS)
        if phase["phase"] != k:
            raise ValueError("phases are out of order")
        if "expr" in phase["weight"]:
            check(phase["weight"]["expr"])
        for place in phase["work"]["places"]:
            for segment in place["segments"]:
                for _, expr, _ in (*segment["terms"], *(t for r in segment["rivals"] for t in r)):
                    check(expr)
            for law in (law for case in place["cases"] for law in case["counts"]):
                if "expr" in law:
                    check(law["expr"])
