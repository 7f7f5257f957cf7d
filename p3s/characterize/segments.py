"""Segments: the computation from one call of a rank to its next, summed over the run.

A segment is the code between two places in the program (thesis section 5.3, the compute segments
between primitives). Calls that move nothing (partner MPI_PROC_NULL) are no ends of segments, as
their computation counts with the next call.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

#: Columns of a table of segments, int64. from_node is -1 at the start of the run.
COLUMNS = ("rank", "from_node", "to_node", "count", "work")
_START = -1


def none() -> np.ndarray:
    """Return a table without segments."""
    return np.zeros((0, len(COLUMNS)), dtype=np.int64)


def segments_of(rank: int, nodes: np.ndarray, work: np.ndarray, places: int) -> np.ndarray:
    """Return one rank's segments from its calls as numbers of nodes, and the work before each.

    nodes, work: a number per call that moves something, in program order; places: nodes in all.
    """
    if not len(nodes):
        return none()
    pair, where, count = occurring(nodes, places)
    total = np.zeros(len(pair), dtype=np.int64)
    np.add.at(total, where, work)  # whole numbers: floats would lose digits of long runs
    return np.stack(
        [np.full(len(pair), rank), pair // places - 1, pair % places, count, total], axis=1
    ).astype(np.int64)


def occurring(nodes: np.ndarray, places: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the segments of a rank in ascending order, which each call ends, and how often each.

    Segments as (before + 1) * places + node; the second array has an index of the first per call.
    """
    before = np.concatenate([[_START], nodes[:-1]]).astype(np.int64)
    codes = (before + 1) * places + nodes
    size = (places + 1) * places
    if size > max(4 * len(codes), 1 << 16):
        return np.unique(codes, return_inverse=True, return_counts=True)
    count = np.bincount(codes, minlength=size)
    pair = np.flatnonzero(count)
    index = np.zeros(size, dtype=np.int32)
    index[pair] = np.arange(len(pair), dtype=np.int32)
    return pair, index[codes], count[pair]


def renumbered(table: np.ndarray, node_to: np.ndarray) -> np.ndarray:
    """Return segments with nodes renumbered; node_to[-1] must be -1."""
    out = table.copy()
    out[:, 1], out[:, 2] = node_to[table[:, 1]], node_to[table[:, 2]]
    return out


def least(tables: Sequence[tuple[np.ndarray, Sequence[tuple[str, str]]]]) -> np.ndarray:
    """Return the segments of the first of several runs, with the least work over all of them.

    tables: (segments, nodes) of each run; a segment counts where it occurs equally often.
    """
    first, nodes = tables[0]
    out = first.copy()
    number = {node: k for k, node in enumerate(nodes)}
    for other, names in tables[1:]:
        to = np.array([*(number.get(node, -2) for node in names), _START], dtype=np.int64)
        there = {(r, a, b): (k, w) for r, a, b, k, w in renumbered(other, to).tolist()}
        for i, (r, a, b, k, w) in enumerate(out.tolist()):
            count, work = there.get((r, a, b), (0, w))
            if count == k:
                out[i, 4] = min(w, work)
    return out
