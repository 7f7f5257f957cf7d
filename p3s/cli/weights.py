"""How often each phase of a study is begun in a whole run at a count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from p3s.base.errors import P3SError
from p3s.base.text import processes, quoted

if TYPE_CHECKING:
    from p3s.base.study import Study
    from p3s.signature.plans import Weights


def weights_at(study: Study, phases: Mapping[str, Any], np: int) -> Weights:
    """Return the weights of a whole run: as traced at that count, else by the model.

    Raises P3SError when neither can tell.
    """
    from p3s.signature.plans import Weights, traced_weights

    traced = traced_weights(phases, np)
    if traced is not None:
        return traced
    if not study.model_path.exists():
        raise P3SError(
            f"{study.root}: the weights at {processes(np)} are not known: there is neither a"
            f" signature of that count nor a model; run `p3s model {quoted(study.root)}` first, or"
            " leave --stop out"
        )
    most = _of_model(study, phases, np)
    return Weights("the model", most, most)


def _of_model(study: Study, phases: Mapping[str, Any], np: int) -> tuple[float, ...]:
    """Return the model's weight of each phase, found by the calls both have in it."""
    from p3s.model.evaluate import model_grid, phase_weight
    from p3s.model.stage import load
    from p3s.signature.plans import calls_of

    model = load(study.root)
    grid = model_grid(model, np)
    of_model = {(item.site, item.op): int(item.phase) for item in model.items}
    weights = {int(p.phase): float(phase_weight(p, grid)) for p in model.phases}
    votes: dict[int, Counter[int]] = {}
    for call in calls_of(phases):
        place = of_model.get((call.site, call.op))
        if place is not None:
            votes.setdefault(call.phase, Counter())[place] += 1
    found = []
    for phase in range(len(phases["phases"])):
        mine = votes.get(phase)
        found.append(weights[max(sorted(mine), key=lambda k: mine[k])] if mine else 0.0)
    found[0] = 1.0  # the program itself
    return tuple(found)
