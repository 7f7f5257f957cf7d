"""Studies whose models are derived from those of other values of the input's parameters."""

from __future__ import annotations

from p3s.base.errors import P3SError
from p3s.base.settings import MIN_COUNTS, parameters, parent_of, settings_in
from p3s.base.study import Study


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

    from p3s.costs.parameters.stage import family_path, instantiate

    root, setting = found
    newer = family_path(root.root)
    if (
        again
        or not study.model_path.exists()
        or (newer.exists() and newer.stat().st_mtime_ns > study.model_path.stat().st_mtime_ns)
    ):
        instantiate(root.root, setting)
    return True
