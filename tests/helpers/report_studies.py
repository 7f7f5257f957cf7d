"""Studies with a made prediction, for tests of what shows them."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import models
from comparisons import held_out, work
from made_predictions import made_prediction, reason

from p3s.base.study import SCHEMA_VERSION, Study, write_json
from p3s.model.comparison import Overlap, Weights
from p3s.model.stage import as_file
from p3s.model.types import Model
from p3s.pipeline.content import StudyContent, content_of
from p3s.pipeline.records import model_record
from p3s.pipeline.saved import read_prediction

HELD = held_out(
    4,
    p2p_triples=Overlap(12, 13, 11),
    collectives=Overlap(4, 4, 4),
    weights=Weights(2, 1),
    work=work(mean=0.03, worst=0.25),
)

HOSTILE = [
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "</style><style>*{display:none}",
    "</pre><iframe src=//example.org>",
    "\"'><svg onload=alert(1)>",
    "{{ 7*7 }}{% for x in y %}",
    "javascript:alert(1)",
    "\x1b[31mred\x1b]0;title\x07",
    "abc\u202egnp.exe",
    "&lt;b&gt;&#60;",
    "\ud800lone",
    "a\x00b",
    "x" * 5000,
    "</title><math><mi href='javascript:alert(1)'>",
    "--><a href=http://example.org>x</a><!--",
]


def put_study(
    root: Path, result: dict[str, Any], command: list[str] | None = None, model: Model | None = None
) -> Study:
    """Make a study with one run, a model, and ``result`` as its prediction."""
    study = Study.create(root, command or ["mpiexec", "-n", "{np}", "./app"])
    run = study.runs_dir(2)
    run.mkdir(parents=True)
    base = {"schema_version": SCHEMA_VERSION}
    write_json(run / "run.json", {"schema": "p3s.run", **base, "status": "complete", "wall_s": 8.0})
    write_json(study.model_path, as_file(replace(model or models.built("jacobi2d"), holdout=HELD)))
    write_json(study.prediction_path, result)
    return study


def shown(study: Study) -> StudyContent:
    """Return what a report shows of a study."""
    return content_of(model_record(study, foreign=True), read_prediction(study.root))


def hostile_prediction() -> dict[str, Any]:
    """Return a prediction with hostile text wherever a file or program can put a name."""
    made = copy.deepcopy(made_prediction(phases=len(HOSTILE)))
    for row in made["counts"]:
        for k, phase in enumerate(row["phases"]):
            phase["name"] = HOSTILE[k % len(HOSTILE)]
        row["estimators"] = {
            name: {**entry, "why_not": HOSTILE[0], "notes": HOSTILE}
            for name, entry in zip(HOSTILE, row["estimators"].values(), strict=False)
        }
        row["estimator"] = HOSTILE[1]
    for k, entry in enumerate([*made["limits"], *made["phase_laws"]]):
        entry.update(dict.fromkeys(("name", "text"), HOSTILE[k % len(HOSTILE)]))
    for k, entry in enumerate(made["phase_laws"]):
        for law in entry["parts"].values():
            law["text"] = HOSTILE[k % len(HOSTILE)]
    made["recommended"]["why"] = HOSTILE[0]
    for key in ("not_modelled", "notes"):
        made[key] = list(HOSTILE)
    made["reasons"] = [reason(text, text, text, k % 2 == 0) for k, text in enumerate(HOSTILE)]
    for key in ("estimator", "estimator_why"):
        made[key] = HOSTILE[0]
    made["verdict_share"] = {name: {"events": 0.1, "bytes": 0.1, "work": 0.1} for name in HOSTILE}
    made["machine"] = {name: name for name in HOSTILE}
    return made
