"""Options of several commands of ``p3s baseline``, and those that only trees have."""

from __future__ import annotations

from p3s.cli.helptext import option

EXPRESSION = option(
    "",
    "--expression TEXT",
    "What a tree's regressions are of, linear in b0, b1, ... "
    "[default: b3*W**2/(K*T) + b2*W/(K*T) + b1*K + b0].",
)
SPLIT = option(
    "",
    "--split LIST",
    "What a tree may split on [default: w2,w1,workers,workload,local_workld,threads and "
    "those of --node].",
)
THESIS = option(False, "--thesis", "Grow the tree as the thesis did: weights, no guards.")
MINSPLIT = option(
    None, "--minsplit N", "Least runs in a node [default: 20; weights of 25 with --thesis].", min=1
)
WORKERS = option("n", "--workers RULE", "Workers of n processes; n-1 if one is the master.")
WORKLOAD = option(
    "", "--workload NAME", "Column of the workload [default: workload or W, or the only one]."
)
TARGET = option("time", "--target WHAT", "What a tree tells: time, index or core-index.")
NODE = option(
    None, "--node FILE", "A node, from lstopo --of xml: a tree may split on what shares its caches."
)
PER_NODE = option(
    0, "--per-node N", "Processes of a node, for --node [default: all on one].", min=0
)
VALIDATE = option(
    0, "--validate N", "Keep every Nth workload out of the tree, for p3s baseline check.", min=0
)
PRUNE = option(False, "--prune", "Take back splits that the workloads kept out do not want.")
PROCESSES = option(
    "", "--processes COLUMN", "Column of the process count [default: n, np, p, ranks or the like]."
)
REDUCE = option("min", "--reduce HOW", "What counts of repeats: min, median or mean.")
WHERE = option(None, "--where NAME=VALUE", "Only runs with this input or label; may be repeated.")
