"""Options that say where costs of messages come from."""

from __future__ import annotations

from p3s.cli.helptext import option
from p3s.pipeline.basis import AUTO
from p3s.predict.estimated import ESTIMATORS

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
NO_REPLAY = option(
    False,
    "--no-replay",
    "Run nothing: costs of messages as in machine.json, else those of a typical network.",
)
EVERY_RANK = option(
    False,
    "--every-rank",
    "Simulate every rank beyond 8,192 processes too, not smaller grids that stand for them.",
)
PLACEMENT = option(
    None,
    "--placement FILE",
    "Where the ranks are: Open MPI rankfile, host list of MPICH or Slurm; --hosts then names "
    "the job's nodes.",
)
TOPOLOGY = option(
    "",
    "--topology FILE|SHORT",
    "How nodes are joined: a file (JSON, Slurm's topology.conf, netloc), or like "
    "fat-tree:16,4@1Gbit/s [default: no limit between switches].",
)
