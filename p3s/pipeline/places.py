"""Where the calls of a study's model are in its program."""

from __future__ import annotations

from collections.abc import Mapping

from p3s.base.errors import P3SError
from p3s.base.study import Study
from p3s.capture.frames import Where
from p3s.capture.sites import resolve_sites
from p3s.model.stage import read
from p3s.model.types import Model


def places_of(study: Study) -> tuple[Model, Mapping[str, Where]] | None:
    """Return the model of a study with the places of its calls; None where it has no model."""
    try:
        model = read(study.model_path)
    except P3SError:
        return None
    return model, resolve_sites(study, model.sites)[0]
