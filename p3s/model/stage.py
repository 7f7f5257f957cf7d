"""The model stage: signatures in, model.json out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from p3s.base.artefacts import LastRead
from p3s.base.errors import OtherVersion, P3SError
from p3s.base.extents import names_count

if TYPE_CHECKING:
    from p3s.base.study import Study
    from p3s.model.types import Model

SCHEMA = "p3s.model"
#: Keys of the file that are none of the model.
_HEAD = ("schema", "schema_version")
#: What is raised for a model that is not as it should be.
_WRONG = (P3SError, ValueError, TypeError, KeyError, IndexError)


def build(study_dir: Path, holdout: bool = True) -> Model:
    """Fit the model of a study from all its signatures and write model.json; return it."""
    from p3s.base.study import Study, write_json
    from p3s.model.check import check
    from p3s.model.grid.stated import Contradiction, known_grid
    from p3s.model.holdout import build_model
    from p3s.model.order.unfold import with_chance
    from p3s.signature.store import load_table

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
            study.manifest_path,
        )
    except Contradiction as err:
        raise Contradiction(
            f"{study.root}: the grid that is stated ({known.text()}) does not fit the traces: "
            f"{err}; correct it with p3s model --grid, or take it back with --grid none"
        ) from err
    model = replace(as_of_now(study, with_chance(model, study)), without=tuple(study.left_out()))
    made_of = [study.signature_path(n) for n in counts]
    write_json(study.model_path, as_file(model), made_of)
    with suppress(*_WRONG):  # else reading it says so
        check(model)
        _last_read.keep(study.model_path, model)
    return model


def as_of_now(study: Study, model: Model) -> Model:
    """Return a model with what the study's runs, later ones too, tell of the counts it takes.

    A count that was refused since is proposed no more.
    """
    from p3s.model.grid.admissible import relearn

    known = model.admissible
    now = relearn(known, study.complete_counts(), study.failed_counts(), model.grid.cart)
    if now == known:
        return model
    from p3s.model.nextcount import next_counts

    model = replace(model, admissible=now)
    return replace(model, next=next_counts(model))


def typed_numbers(command: Sequence[str]) -> set[int]:
    """Return the numbers among a program's arguments (--nx=300, 4x8), hints at its extents.

    The program is the first word after the one with {np} that is no option and no number.
    """
    words = list(command)
    start = next((i + 1 for i, w in enumerate(words) if names_count([w])), 0)
    while start < len(words) and (words[start].startswith("-") or words[start].isdigit()):
        start += 1
    return {
        int(d)
        for w in words[start + 1 :]
        if "/" not in w
        for d in re.findall(r"\d+", w)
        if len(d) <= 12
    }


def grid_changed(study: Study, model: Model) -> bool:
    """Tell whether something else is known of the grid now than when the model was fitted."""
    from p3s.model.grid.stated import Statement, known_grid

    then = model.grid.stated or (model.grid.dropped.said if model.grid.dropped else None)
    return known_grid(study).to_json() != (then or Statement()).to_json()


def load(study_dir: Path) -> Model:
    """Return the study's model, its shape and its equations checked.

    Raises P3SError in one line for a model that is damaged or of another version.
    """
    from p3s.base.study import Study
    from p3s.model.evaluate import generate

    study = Study.open(Path(study_dir))
    path = study.model_path
    model = read(path)
    try:
        generate(model, min(model.counts))  # a rule that cannot be evaluated fails here
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as err:
        why = " ".join(str(err).split())[:80] or type(err).__name__
        raise _damaged(path, why) from err
    return as_of_now(study, model)


def read(path: Path) -> Model:
    """Return the model in a file, checked: types, references, equations.

    Raises P3SError in one line for one that is damaged or of another version.
    """
    return _last_read(path)


def _read(path: Path) -> Model:
    from p3s.base.serialise import from_data
    from p3s.base.study import read_json
    from p3s.model.check import check
    from p3s.model.types import Model

    try:
        data = read_json(path, SCHEMA)
    except OtherVersion as err:
        why = "another version of p3s wrote it; run `p3s model` again"
        raise OtherVersion(f"{path}: {why}") from err
    try:
        model = from_data(Model, {k: v for k, v in data.items() if k not in _HEAD})
        check(model)
    except _WRONG as err:
        raise _damaged(path, " ".join(str(err).split())[:120]) from err
    return model


_last_read = LastRead(_read)


def as_file(model: Model) -> dict[str, object]:
    """Return a model as it is written: plain data with the name and version of its schema."""
    from p3s.base.artefacts import VERSIONS
    from p3s.base.serialise import to_data

    return {"schema": SCHEMA, "schema_version": VERSIONS[SCHEMA], **to_data(model)}


def _damaged(path: Path, why: str) -> P3SError:
    return P3SError(f"{path}: damaged or of another version ({why}); run `p3s model` again")
