"""Where the calls of a study's model are in its program."""

from __future__ import annotations

from collections.abc import Mapping

from p3s.base.errors import P3SError
from p3s.base.study import Study
from p3s.capture.frames import Where
from p3s.capture.sites import resolve_sites
from p3s.model.stage import load
from p3s.model.types import Model


def places_of(study: Study) -> tuple[Model, Mapping[str, Where]] | None:
    """Return the model of a study with the places of its calls; None where it has no model."""
    try:
        return model_with_places(study)
    except P3SError:
        return None


def model_with_places(study: Study) -> tuple[Model, Mapping[str, Where]]:
    """Return the same; raises P3SError where there is no model that can be read."""
    model = load(study.root)
    return model, resolve_sites(study, model.sites)[0]
