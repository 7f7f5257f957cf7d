"""Which algorithm Open MPI's "tuned" component chooses by default: tables of switch points.

Read from Open MPI 4.1.4, ompi/mca/coll/tuned/coll_tuned_decision_fixed.c (the same file in 5.0.9),
for commutative operations. A line is for communicators with fewer members than its first number
("-": any other); then the number of the algorithm below each size in bytes, the last one for all
bigger sizes. Sizes: the vector (Bcast, Reduce, Allreduce, Reduce_scatter), one member's block
(Allgather, Gather, Scatter, Reduce_scatter_block, Alltoall), the mean block (Allgatherv).
"""

from __future__ import annotations

from functools import cache

#: Names of the algorithms by number (from 1), as in coll_tuned_*_decision.c. The fixed rules pass
#: no segment size and no fan-out, which makes "chain" a pipeline of one chain and "segmented ring"
#: a ring; nothing is cut. Two-process algorithms are what the named ones are for two.
NUMBERS = {
    "allreduce": (
        "linear",
        "nonoverlapping",
        "recursive_doubling",
        "ring",
        "ring_segmented",
        "rabenseifner",
    ),
    "alltoall": ("linear", "pairwise", "bruck", "linear_sync", "pairwise"),
    "alltoallv": ("linear", "pairwise"),
    "barrier": (
        "linear",
        "double_ring",
        "recursive_doubling",
        "dissemination",
        "recursive_doubling",
        "tree",
    ),
    "bcast": (
        "linear",
        "pipeline",
        "pipeline",
        "split_binary",
        "binary",
        "binomial",
        "knomial",
        "scatter_doubling",
        "scatter_ring",
    ),
    "reduce": (
        "linear",
        "pipeline",
        "pipeline",
        "binary",
        "binomial",
        "in_order_binary",
        "rabenseifner",
    ),
    "reduce_scatter": ("nonoverlapping", "halving", "ring", "butterfly"),
    "reduce_scatter_block": ("linear", "doubling", "halving", "butterfly"),
    "allgather": ("linear", "bruck", "recursive_doubling", "ring", "neighbor", "pairwise"),
    "allgatherv": ("default", "bruck", "ring", "neighbor", "pairwise"),
    "gather": ("linear", "binomial", "linear_sync"),
    "scatter": ("linear", "binomial", "linear_posted"),
}

TUNED = {
    "allreduce": """
        4 <8:4 <4096:3 <8192:4 <16384:3 <65536:4 <262144:5 6
        8 <16:4 <8192:3 6
        16 <8192:3 6
        32 <64:5 <4096:3 6
        64 <128:5 6
        128 <262144:3 6
        256 <131072:2 <262144:3 6
        512 <4096:2 6
        2048 <2048:2 <16384:3 6
        4096 <2048:2 <4096:5 <16384:3 6
        - <2048:2 <16384:5 <32768:3 6
    """,
    "alltoall": """
        3 <2:2 <4:5 <16:2 <64:5 <256:2 <4096:5 <32768:2 <262144:4 <1048576:5 2
        8 <8192:4 <16384:1 <65536:4 <524288:1 <1048576:2 1
        16 <262144:4 1
        32 <4:4 <512:3 <8192:4 <32768:1 <262144:4 <524288:1 4
        64 <512:3 <524288:1 4
        128 <1024:3 <2048:1 <4096:4 <262144:1 2
        256 <1024:3 <2048:4 <262144:1 2
        512 <1024:3 <8192:4 <32768:1 2
        1024 <512:3 <8192:4 <16384:1 <131072:4 <262144:1 2
        2048 <512:3 <1024:4 <2048:1 <16384:4 <262144:1 4
        4096 <1024:3 <4096:4 <8192:1 <131072:4 1
        - <2048:3 <8192:4 <16384:1 <32768:4 <65536:1 4
    """,
    "alltoallv": """
        4 2
        64 1
        128 2
        256 1
        1024 2
        - 1
    """,
    "barrier": """
        4 3
        8 1
        64 3
        256 4
        512 6
        1024 4
        4096 6
        - 4
    """,
    "bcast": """
        4 <32:3 <256:5 <512:3 <1024:7 <32768:1 <131072:5 <262144:2 <524288:1 <1048576:6 5
        8 <64:5 <128:6 <2048:5 <8192:6 <1048576:1 2
        16 <8:7 <64:5 <4096:7 <16384:5 <32768:6 1
        32 <4096:7 <1048576:6 8
        64 <2048:6 7
        128 7
        256 <2:6 <16384:5 <32768:1 <65536:5 7
        1024 <16384:7 <32768:4 7
        2048 <524288:7 8
        4096 <262144:7 8
        - <8192:7 <16384:5 <262144:7 8
    """,
    "reduce": """
        4 <8:7 <16:4 <32:3 <262144:1 <524288:3 <1048576:2 3
        8 <4096:4 <65536:2 <262144:5 <524288:1 <1048576:5 1
        16 <8192:4 5
        32 <4096:4 5
        256 5
        512 <8192:5 <16384:6 5
        2048 5
        4096 <512:5 <1024:6 <8192:5 <16384:6 5
        - <16:5 <32:6 <1024:5 <2048:6 <8192:5 <16384:6 5
    """,
    "reduce_scatter": """
        4 <65536:3 <131072:4 3
        8 <8:1 <262144:2 3
        32 <262144:2 3
        64 <64:1 <2048:2 <524288:4 3
        128 <256:1 <512:2 <2048:4 <4096:2 4
        256 <256:1 <512:2 4
        512 <256:1 <1024:2 4
        1024 <512:1 <2048:2 <8192:4 <16384:2 4
        2048 <512:1 <4096:2 <16384:4 <32768:2 4
        4096 <512:1 <4096:2 4
        - <1024:1 <8192:2 4
    """,
    "reduce_scatter_block": """
        4 <4:2 <8:4 <16:3 <128:4 <256:3 <4096:4 <8192:3 <131072:4 1
        8 <8:3 <32:2 <256:4 <8192:3 <16384:4 <1048576:3 1
        16 <4:1 <32:3 <128:4 <524288:3 <4194304:1 4
        32 <32:1 <524288:3 <2097152:1 <4194304:3 4
        - <4:3 <16:1 <65536:4 <262144:1 4
    """,
    "allgather": """
        3 6
        32 3
        64 <1024:3 <65536:5 4
        128 <512:3 <65536:5 4
        256 <512:3 <131072:5 <524288:4 <1048576:5 4
        512 <32:3 <128:2 <1024:3 <131072:5 <524288:4 <1048576:5 4
        1024 <64:3 <256:2 <2048:3 5
        2048 <4:3 <8:2 <16:3 <32:2 <256:3 <512:2 <4096:3 5
        4096 <32:2 <128:3 <512:2 <4096:3 5
        - <2:3 <8:2 <16:3 <512:2 <4096:3 5
    """,
    "allgatherv": """
        3 <2048:3 <4096:5 <8192:3 5
        8 <256:1 <4096:4 <8192:3 <16384:4 <262144:2 4
        16 <1024:1 2
        32 <128:1 <262144:2 3
        64 <256:1 <8192:2 3
        128 <256:1 <4096:2 3
        256 <1024:2 <65536:4 3
        512 <1024:2 3
        1024 <512:2 <1024:1 <4096:2 <1048576:4 3
        - <4096:2 4
    """,
    "gather": """
        4 <2:3 <4:1 <32768:2 <65536:1 <131072:2 3
        8 <1024:2 <8192:1 <32768:2 <262144:1 3
        256 2
        512 <2048:2 <8192:1 2
        - 2
    """,
    "scatter": """
        4 <2:3 <131072:1 <262144:3 1
        8 <2048:2 <4096:1 <8192:2 <32768:1 <1048576:3 1
        16 <16384:2 <1048576:3 1
        32 <16384:2 <32768:1 3
        64 <512:2 <8192:3 <16384:2 3
        - <512:2 3
    """,
}

Row = tuple[int | None, tuple[tuple[int | None, int], ...]]


@cache
def rows(call: str) -> tuple[Row, ...]:
    """Return (members below, ((bytes below, number), ...)) of a call; None: no limit."""
    found = []
    for line in TUNED[call].split("\n"):
        words = line.split()
        if not words:
            continue
        sizes = []
        for word in words[1:]:
            limit, _, number = word.rpartition(":")
            sizes.append((int(limit[1:]) if limit else None, int(number)))
        found.append((None if words[0] == "-" else int(words[0]), tuple(sizes)))
    return tuple(found)


def tuned(call: str, members: int, nbytes: int) -> str:
    """Return the name of the algorithm for a communicator of this size and this many bytes."""
    for below, sizes in rows(call):
        if below is None or members < below:
            for limit, number in sizes:
                if limit is None or nbytes < limit:
                    return NUMBERS[call][number - 1]
    raise AssertionError(call)
