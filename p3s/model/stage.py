"""The model stage: signatures in, model.json out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from p3s.errors import P3SError


def build(study_dir: Path, holdout: bool = True) -> dict[str, Any]:
    """Fit the model of a study from all its signatures and write model.json; return it."""
    from p3s.characterize import load_table
    from p3s.model.build import build_model
    from p3s.study import Study, write_json

    study = Study.open(Path(study_dir))
    counts = study.signature_counts()
    if len(counts) < 3:
        raise P3SError(f"model: {study_dir} holds signatures of {len(counts)} process counts, "
                       "three are needed (two to fit, one held out); run `p3s characterize` at "
                       "more")
    # Numbers in the program's arguments (--nx=300, 4x8) hint at the extents of its data.
    typed = {int(d) for w in study.command() for d in re.findall(r"\d+", w) if len(d) <= 12}
    model = build_model([load_table(study.root, n) for n in counts], holdout, typed - {0, 1})
    write_json(study.model_path, model)
    return model


def load(study_dir: Path) -> dict[str, Any]:
    """Return the study's model, its equations checked."""
    from p3s.model.expr import check
    from p3s.study import Study, read_json

    path = Study.open(Path(study_dir)).model_path
    model = read_json(path, "p3s.model")
    try:
        for item in model["items"]:
            for slot in item["slots"]:
                for law in (slot["count"], slot["elements"]):
                    for key in ("expr", "total"):
                        if key in law:
                            check(law[key])
        for phase in model["phases"]:
            if "expr" in phase["weight"]:
                check(phase["weight"]["expr"])
    except (KeyError, TypeError) as err:
        raise P3SError(f"{path}: damaged ({err!r}); run `p3s model` again") from err
    return model
