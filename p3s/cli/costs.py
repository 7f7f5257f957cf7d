"""Options that say where costs of messages come from."""

from __future__ import annotations

import typer

from p3s.pipeline.basis import AUTO
from p3s.predict.estimated import ESTIMATORS

ESTIMATOR = typer.Option(
    AUTO,
    "--estimator",
    metavar="NAME",
    help=f"What says how long communication takes: {', '.join((AUTO, *ESTIMATORS))}.",
)
NETWORK = typer.Option(
    "",
    "--network",
    show_default=False,
    metavar="NAME|FILE",
    help="Network to predict for: one of p3s machine list, or a file [default: as measured, else "
    "infiniband-hdr].",
)
NO_REPLAY = typer.Option(
    False,
    "--no-replay",
    help="Run nothing: costs of messages as in machine.json, else those of a typical network.",
)
EVERY_RANK = typer.Option(
    False,
    "--every-rank",
    help="Simulate every rank beyond 8,192 processes too, not smaller grids that stand for them.",
)
PLACEMENT = typer.Option(
    None,
    "--placement",
    show_default=False,
    metavar="FILE",
    help="Where the ranks are: Open MPI rankfile, host list of MPICH or Slurm; --hosts then names "
    "the job's nodes.",
)
TOPOLOGY = typer.Option(
    "",
    "--topology",
    show_default=False,
    metavar="FILE|SHORT",
    help="How nodes are joined: a file (JSON, Slurm's topology.conf, netloc), or like "
    "fat-tree:16,4@1Gbit/s [default: no limit between switches].",
)
