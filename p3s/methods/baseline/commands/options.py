"""Options of several commands of ``p3s baseline``, and those that only trees have."""

from __future__ import annotations

import typer

EXPRESSION = typer.Option(
    "",
    "--expression",
    metavar="TEXT",
    show_default=False,
    help="What a tree's regressions are of, linear in b0, b1, ... "
    "[default: b3*W**2/(K*T) + b2*W/(K*T) + b1*K + b0].",
)
SPLIT = typer.Option(
    "",
    "--split",
    metavar="LIST",
    show_default=False,
    help="What a tree may split on [default: w2,w1,workers,workload,local_workld,threads and "
    "those of --node].",
)
THESIS = typer.Option(
    False, "--thesis", help="Grow the tree as the thesis did: weights, no guards."
)
MINSPLIT = typer.Option(
    None,
    "--minsplit",
    min=1,
    metavar="N",
    show_default=False,
    help="Least runs in a node [default: 20; weights of 25 with --thesis].",
)
WORKERS = typer.Option(
    "n", "--workers", metavar="RULE", help="Workers of n processes; n-1 if one is the master."
)
WORKLOAD = typer.Option(
    "",
    "--workload",
    metavar="NAME",
    show_default=False,
    help="Column of the workload [default: workload or W, or the only one].",
)
TARGET = typer.Option(
    "time", "--target", metavar="WHAT", help="What a tree tells: time, index or core-index."
)
NODE = typer.Option(
    None,
    "--node",
    metavar="FILE",
    show_default=False,
    help="A node, from lstopo --of xml: a tree may split on what shares its caches.",
)
PER_NODE = typer.Option(
    0,
    "--per-node",
    min=0,
    metavar="N",
    show_default=False,
    help="Processes of a node, for --node [default: all on one].",
)
VALIDATE = typer.Option(
    0,
    "--validate",
    min=0,
    metavar="N",
    show_default=False,
    help="Keep every Nth workload out of the tree, for p3s baseline check.",
)
PRUNE = typer.Option(
    False, "--prune", help="Take back splits that the workloads kept out do not want."
)
PROCESSES = typer.Option(
    "",
    "--processes",
    metavar="COLUMN",
    show_default=False,
    help="Column of the process count [default: n, np, p, ranks or the like].",
)
REDUCE = typer.Option(
    "min", "--reduce", metavar="HOW", help="What counts of repeats: min, median or mean."
)
WHERE = typer.Option(
    None,
    "--where",
    metavar="NAME=VALUE",
    show_default=False,
    help="Only runs with this input or label; may be repeated.",
)
