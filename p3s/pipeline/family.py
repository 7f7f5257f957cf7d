"""Studies with parameters: laws of their values in family.json, studies derived from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from p3s.base.errors import P3SError
from p3s.base.settings import (
    MIN_COUNTS,
    MIN_SETTINGS,
    Setting,
    alike_in_threads,
    filled,
    parameters,
    parent_of,
    parse_setting,
    setting_name,
    settings_in,
    value_study,
    value_text,
)
from p3s.base.study import Study, write_json
from p3s.base.text import quoted
from p3s.pipeline.commands import another_value

if TYPE_CHECKING:
    from p3s.costs.parameters.laws import Family
    from p3s.signature.times import Times


def family_path(root: Path) -> Path:
    """Return where the laws of the parameters are: family.json."""
    return Path(root) / "family.json"


def build_family(root: Path, say: Callable[[str], None] = lambda text: None) -> Family:
    """Fit the laws of a study's parameters to the models of its settings; write family.json.

    Every setting with at least three counts must have its model.json. Raises P3SError where
    fewer than two settings have one.
    """
    from p3s.costs.parameters.fit import Traced, fit_family
    from p3s.costs.parameters.laws import FAMILY
    from p3s.pipeline.records import model_of
    from p3s.signature.store import load_table

    study = Study.open(Path(root))
    settings = alike_in_threads(study)
    able = [setting_name(s) for s, at in settings if len(at.signature_counts()) >= MIN_COUNTS]
    if len(able) < MIN_SETTINGS:
        raise P3SError(
            f"{study.root}: laws of {', '.join(parameters(study))} need at least {MIN_SETTINGS} "
            f"values with {MIN_COUNTS} process counts each, there is {', '.join(able) or 'none'}; "
            f"add one: {another_value(study)}"
        )
    traced = []
    for setting, at in settings:
        model = model_of(at) if setting_name(setting) in able else None
        tables = [load_table(at.root, n) for n in at.signature_counts()]
        traced.append(Traced(setting, tables, model))
    units = {one.model.work_unit for one in traced if one.model is not None}
    if len(units) > 1:
        raise P3SError(
            f"{study.root}: work is in {' and in '.join(sorted(units))} at different "
            "values of the parameters; trace all of them with one --work"
        )
    say(f"laws from {', '.join(able)}")
    family = fit_family(parameters(study), traced)
    write_json(family_path(study.root), FAMILY.data(family))
    return family


def load_family(root: Path) -> Family:
    """Return family.json, checked; P3SError where there is none, or it is damaged."""
    from p3s.costs.parameters.laws import FAMILY

    path = family_path(root)
    if not path.exists():
        raise P3SError(f"{path}: not there; run p3s model {quoted(root)}")
    return FAMILY.read(path)


def instantiate(root: Path, setting: Setting) -> Path:
    """Return the study at a setting: the traced one, or one derived from the laws (written anew).

    The study's family.json must be there and the setting must name all its parameters.
    """
    from p3s.costs.parameters.fit import choose, derived
    from p3s.model.stage import write
    from p3s.pipeline.costing import build_compute
    from p3s.pipeline.records import model_of

    study = Study.open(Path(root))
    at = value_study(study, setting)
    if len(at.signature_counts()) >= MIN_COUNTS and at.model_path.exists():
        return at.root
    family = load_family(study.root)
    try:
        part = choose(family, setting)
    except P3SError as err:
        raise P3SError(f"{study.root}: {err}") from err
    traced = {name: value_study(study, parse_setting(name)) for name in part.settings}
    models = {name: model_of(at) for name, at in traced.items()}
    times = {name: times_of(at) for name, at in traced.items()}
    model, points = derived(family, part, models, times, setting)
    made = Study.create(at.root, filled(study.command(), setting))
    made.update(
        derived=True,
        parent="../..",
        setting={name: value_text(value) for name, value in setting.items()},
    )
    write(made.model_path, model)
    build_compute(made.root, points)
    return made.root


def times_of(study: Study) -> Sequence[Times]:
    """Return the times of computation at all counts of a study that have some."""
    from p3s.signature.times import load_times

    return [t for n in study.signature_counts() if (t := load_times(study.root, n)) is not None]


def of_one_value(study: Study) -> None:
    """Raise P3SError for a study with parameters itself: its models are those of its values."""
    names = parameters(study)
    if names:
        raise P3SError(
            f"{study.root}: holds a study for every value of {', '.join(names)}; name a value "
            f"with --param {names[0]}=VALUE, or one of its studies: "
            + ", ".join(str(at.root) for _, at in settings_in(study)[:3])
        )


def refresh(study: Study, again: bool = False) -> bool:
    """Make the model of a derived study again where it is older than its family.

    Returns False for a study that has, or can have, a model of its own. Errors: P3SError, as of
    :func:`of_one_value`.
    """
    of_one_value(study)
    if study.manifest().get("teams") and not study.counts():
        return True  # p3s.threads makes it again
    found = parent_of(study)
    if found is None or not study.manifest().get("derived") or len(study.counts()) >= MIN_COUNTS:
        return False
    root, setting = found
    newer = family_path(root.root)
    if (
        again
        or not study.model_path.exists()
        or (newer.exists() and newer.stat().st_mtime_ns > study.model_path.stat().st_mtime_ns)
    ):
        instantiate(root.root, setting)
    return True
