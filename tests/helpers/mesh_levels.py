"""An irregular program: the levels of a multigrid on points that are cut by bisection."""

from __future__ import annotations

from functools import cache

import corpus
import numpy as np


@cache
def ghosts(points: int, n: int, levels: int) -> list[dict[tuple[int, int], int]]:
    """Return per level how many points each part sends to each other one."""
    from scipy.spatial import cKDTree

    rng = np.random.default_rng(7)
    at = rng.random((points, 2))
    part = np.zeros(points, dtype=int)
    _bisect(at, part, np.arange(points), 0, n)
    found, there = [], np.arange(points)
    for _ in range(levels):
        near = cKDTree(at[there]).query_pairs((2.5 / len(there)) ** 0.5, output_type="ndarray")
        a, b = part[there[near]].T
        i, j = near[a != b].T
        a, b = a[a != b], b[a != b]
        sent = np.unique(np.concatenate([np.stack([a, b, i]), np.stack([b, a, j])], 1), axis=1)
        pairs, number = np.unique(sent[:2], axis=1, return_counts=True)
        found.append(dict(zip(zip(*pairs.tolist(), strict=True), number.tolist(), strict=True)))
        there = there[rng.random(len(there)) < 0.25]
    return found


def _bisect(at: np.ndarray, part: np.ndarray, mine: np.ndarray, first: int, parts: int) -> None:
    if parts == 1:
        part[mine] = first
        return
    order = mine[np.argsort(at[mine, int(np.argmax(np.ptp(at[mine], axis=0)))])]
    left = parts // 2
    cut = len(mine) * left // parts
    _bisect(at, part, order[:cut], first, left)
    _bisect(at, part, order[cut:], first + left, parts - left)


@corpus.program
def multigrid(rec: corpus.Recorder, points: int, levels: int, cycles: int, one_site: bool) -> None:
    """Return a program that goes down and up the levels; one_site: all levels from one line."""
    down = list(range(levels))
    for _ in range(cycles):
        for level in down + down[-2::-1]:
            sent = ghosts(points, rec.n, levels)[level]
            site = "Isend" if one_site else f"Isend{level}"
            mine = sorted(q for p, q in sent if p == rec.rank)
            for q in mine:
                rec("Isend", site=site, peer=q, nbytes=8 * sent[rec.rank, q])
            for _ in mine:
                rec("Wait", site=site + "-wait")
        rec("Allreduce", nbytes=8)
