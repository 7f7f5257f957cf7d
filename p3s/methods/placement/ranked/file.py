"""placement/npNNNNNN.json: where it is, written and read."""

from __future__ import annotations

from pathlib import Path

from p3s.base.artefacts import write_json
from p3s.base.schemas.published import Published
from p3s.base.study import Study
from p3s.methods.placement.ranked.types import Placements

PLACEMENTS = Published("p3s.placement", 1, Placements, again="run p3s place again")


def path_of(study: Study, n: int) -> Path:
    """Return where placements of n processes are: placement/np000064.json."""
    return study.root / "placement" / f"np{n:06d}.json"


def save(study: Study, found: Placements) -> None:
    """Write placements into a study."""
    path = path_of(study, found.n)
    path.parent.mkdir(exist_ok=True)
    write_json(path, PLACEMENTS.data(found))
