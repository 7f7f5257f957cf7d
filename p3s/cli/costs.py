"""What the options of a replay ask for together."""

from __future__ import annotations

from typing import Any

from p3s.base.errors import UsageError
from p3s.cli.values import hosts_of, seconds_of, words_of
from p3s.replay.settings import MAPPINGS, NOISES, PAGES, ReplaySettings


def settings_of(hosts: str, cores: int, budget: str, launcher: str, **more: Any) -> ReplaySettings:
    """Return ReplaySettings from the options of a command."""
    for name, known in (("mapping", MAPPINGS), ("pages", PAGES), ("noise", NOISES)):
        if (value := more.get(name)) is not None and value not in known:
            raise UsageError(f"--{name} {value}: there are {', '.join(known[:-1])} and {known[-1]}")
    return ReplaySettings(
        hosts=hosts_of(hosts),
        cores_per_node=cores or None,
        budget_s=seconds_of(budget, "--budget"),
        launcher=words_of(launcher, "--launcher"),
        **more,
    )
