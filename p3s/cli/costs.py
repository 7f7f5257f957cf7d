"""Options that say where costs of messages come from, and how they are measured."""

from __future__ import annotations

from typing import Any

from p3s.base.errors import UsageError
from p3s.cli.helptext import option
from p3s.cli.values import hosts_of, seconds_of, words_of
from p3s.pipeline.basis import AUTO
from p3s.predict.estimated import ESTIMATORS
from p3s.replay.settings import BUDGET_S, MAPPINGS, NOISES, PAGES, ReplaySettings

ESTIMATOR = option(
    AUTO,
    "--estimator NAME",
    f"What says how long communication takes: {', '.join((AUTO, *ESTIMATORS))}.",
)
NETWORK = option(
    "",
    "--network NAME|FILE",
    "Network to predict for: one of p3s machine list, or a file [default: as measured, else "
    "infiniband-hdr].",
)
TOPOLOGY = option(
    "",
    "--topology FILE|SHORT",
    "How nodes are joined: a file (JSON, Slurm's topology.conf, netloc), or like "
    "fat-tree:16,4@1Gbit/s [default: no limit between switches].",
)
HOSTS = option(
    "",
    "--hosts HOSTS",
    "Nodes: two measured, two black holes [default: those of the Slurm job, or this one].",
)
CORES = option(
    0, "--cores-per-node K", "Ranks of the full run on one node [default: cores as found].", min=0
)
BUDGET = option(f"{BUDGET_S:.0f}s", "--budget TIME", "Time to measure in, per count: 30s, 10m, 1h.")
LAUNCHER = option("", "--launcher COMMAND", "Launcher of the replay [default: as found].")
COLLECTIVES = option(
    "", "--collectives WHAT", "Algorithms instead of the library's: allreduce=ring,..., or a file."
)


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
