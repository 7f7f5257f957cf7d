"""Programs as event lists (see corpus.py) whose message sizes follow stages, turns and cells."""

from __future__ import annotations

import numpy as np
from corpus import Program, Recorder, block

from p3s.model.grid.grids import dims_balanced


def exchange(rec: Recorder, site: str, to: int, frm: int, sent: int, got: int) -> None:
    """Record a Sendrecv of doubles."""
    rec("Sendrecv", site=site, peer=to, nbytes=8 * sent)
    rec("Sendrecv_recv", site=site, peer=frm, nbytes=8 * got, work=0)


def multipartition(
    extents: tuple[int, int, int] = (36, 36, 36),
    trim: int = 1,
    faces: int = 10,
    forth: int = 22,
    back: int = 10,
    steps: int = 2,
    buffers: bool = False,
) -> Program:
    """An ADI solver on a diagonal multi-partition, as NPB SP: faces, three sweeps.

    buffers: the sweeps send whole buffers, one wider than any cell, as NPB BT.
    """

    def program(rec: Recorder) -> None:
        p = round(rec.n**0.5)
        row, col = divmod(rec.rank, p)
        cells = [((col + j) % p, (row - j) % p, j) for j in range(p)]

        def at(r: int, c: int) -> int:
            return r % p * p + c % p

        def width(d: int, k: int, less: int = 0) -> int:
            return block(extents[d], p, k) - less * ((k == 0) + (k == p - 1))

        after = (at(row, col + 1), at(row + 1, col), at(row + 1, col - 1))
        before = (at(row, col - 1), at(row - 1, col), at(row - 1, col + 1))
        for _ in range(steps):
            for op in ("Irecv", "Isend"):
                for d in range(3):
                    a, b = (e for e in range(3) if e != d)
                    for end, peer in ((p - 1, after[d]), (0, before[d])):
                        size = sum(width(a, x[a]) * width(b, x[b]) for x in cells if x[d] != end)
                        if p > 1:
                            rec(op, site=f"{op}{d}{end > 0}", peer=peer, nbytes=8 * faces * size)
            rec("Waitall", nbytes=12)
            for d in range(3):
                a, b = (e for e in range(3) if e != d)

                def size(stage: int, d: int = d, a: int = a, b: int = b) -> int:
                    if buffers:
                        return 8 * (extents[0] // p + 1) ** 2
                    (x,) = (x for x in cells if x[d] == stage)
                    return 8 * width(a, x[a], trim) * width(b, x[b], trim)

                for stage in range(p):
                    if stage > 0:
                        rec("Irecv", site=f"rf{d}", peer=before[d], nbytes=forth * size(stage))
                        rec("Waitall", site=f"wf{d}", nbytes=2)
                    if stage < p - 1:
                        rec("Isend", site=f"sf{d}", peer=after[d], nbytes=forth * size(stage))
                for stage in range(p - 1, -1, -1):
                    if stage < p - 1:
                        rec("Irecv", site=f"rb{d}", peer=after[d], nbytes=back * size(stage))
                        rec("Waitall", site=f"wb{d}", nbytes=2)
                    if stage > 0:
                        rec("Isend", site=f"sb{d}", peer=before[d], nbytes=back * size(stage))
        rec("Allreduce", nbytes=40)

    return program


def allgather_ring(size: int = 1001, rounds: int = 2) -> Program:
    """Blocks of uneven size travel around the ring until all ranks have all."""

    def program(rec: Recorder) -> None:
        n, r = rec.n, rec.rank
        for _ in range(rounds):
            for t in range(n - 1):
                exchange(
                    rec,
                    "ring",
                    (r + 1) % n,
                    (r - 1) % n,
                    block(size, n, (r - t) % n),
                    block(size, n, (r - t - 1) % n),
                )
            rec("Barrier")

    return program


def halving(size: int = 1003, rounds: int = 2) -> Program:
    """Reduce-scatter by recursive halving of an odd vector, then allgather by doubling."""

    def program(rec: Recorder) -> None:
        n, r = rec.n, rec.rank

        def span(k: int, ranks: int) -> int:
            first = k // ranks * ranks
            return sum(block(size, n, q) for q in range(first, first + ranks))

        for _ in range(rounds):
            half = n // 2
            while half:
                q = r ^ half
                exchange(rec, "halve", q, q, span(q, half), span(r, half))
                half //= 2
            half = 1
            while half < n:
                q = r ^ half
                exchange(rec, "double", q, q, span(r, half), span(q, half))
                half *= 2

    return program


def summa(m: int = 301, k: int = 203, rounds: int = 2) -> Program:
    """Matrix product: in each turn one column and one row of blocks are broadcast."""

    def program(rec: Recorder) -> None:
        p = round(rec.n**0.5)
        row, col = divmod(rec.rank, p)
        mine = rec.comm(tuple(range(row * p, row * p + p)))
        down = rec.comm(tuple(range(col, rec.n, p)))
        rec("Comm_split", site="rows")
        rec("Comm_split", site="columns")
        for _ in range(rounds):
            for t in range(p):
                rec(
                    "Bcast",
                    site="a",
                    comm=mine,
                    root=row * p + t,
                    nbytes=8 * block(m, p, row) * block(k, p, t),
                )
                rec(
                    "Bcast",
                    site="b",
                    comm=down,
                    root=t * p + col,
                    nbytes=8 * block(k, p, t) * block(m, p, col),
                )
            rec("Allreduce", nbytes=8)

    return program


def cannon(size: int = 203, rounds: int = 2) -> Program:
    """Matrix product: blocks of A go left, blocks of B go up, each turn another one."""

    def program(rec: Recorder) -> None:
        p = round(rec.n**0.5)
        i, j = divmod(rec.rank, p)
        left, right = i * p + (j - 1) % p, i * p + (j + 1) % p
        up, down = (i - 1) % p * p + j, (i + 1) % p * p + j
        mine = block(size, p, i)
        for _ in range(rounds):
            for t in range(p):
                k = (i + j + t) % p
                exchange(
                    rec,
                    "a",
                    left,
                    right,
                    mine * block(size, p, k),
                    mine * block(size, p, (k + 1) % p),
                )
                exchange(
                    rec,
                    "b",
                    up,
                    down,
                    block(size, p, k) * block(size, p, j),
                    block(size, p, (k + 1) % p) * block(size, p, j),
                )
            rec("Barrier")

    return program


def vcycle(size: int = 4099, cycles: int = 2, levels: int = 4) -> Program:
    """A multigrid cycle of so many levels on all ranks: halos halve from level to level."""

    def program(rec: Recorder) -> None:
        px, py = dims_balanced(rec.n, 2)
        cx, cy = divmod(rec.rank, py)
        for _ in range(cycles):
            for site, order in (("down", range(levels)), ("up", range(levels - 1, -1, -1))):
                for level in order:
                    lx, ly = block(size >> level, px, cx), block(size >> level, py, cy)
                    exchange(
                        rec,
                        site + "x",
                        (cx + 1) % px * py + cy,
                        (cx - 1) % px * py + cy,
                        ly + 2,
                        ly + 2,
                    )
                    exchange(
                        rec,
                        site + "y",
                        cx * py + (cy + 1) % py,
                        cx * py + (cy - 1) % py,
                        lx + 2,
                        lx + 2,
                    )
            rec("Allreduce", nbytes=8)

    return program


def pencils(nx: int = 65, ny: int = 50, nz: int = 43, steps: int = 2) -> Program:
    """A 3-D FFT in pencils: transposes by Alltoallv in rows and in columns, uneven extents."""

    def program(rec: Recorder) -> None:
        px, py = dims_balanced(rec.n, 2)
        cx, cy = divmod(rec.rank, py)
        row = rec.comm(tuple(range(cx * py, cx * py + py)))
        col = rec.comm(tuple(range(cy, rec.n, py)))
        rec("Comm_split", site="rows")
        rec("Comm_split", site="columns")
        for _ in range(steps):
            rec(
                "Alltoallv",
                site="xy",
                comm=row,
                elem=16,
                nbytes=16 * block(nx, px, cx) * block(ny, py, cy) * nz,
            )
            rec(
                "Alltoallv",
                site="yz",
                comm=col,
                elem=16,
                nbytes=16 * block(nx, px, cx) * block(nz, py, cy) * ny,
            )
        rec("Gatherv", nbytes=8 * block(nx, px, cx) * block(ny, py, cy), root=0)

    return program


def fused(outer: int = 4, inner: int = 3) -> Program:
    """A perfect nest: the size is that of the inner turn."""

    def program(rec: Recorder) -> None:
        rec("Barrier", site="start")
        for _ in range(outer):
            for j in range(inner):
                exchange(
                    rec,
                    "ring",
                    (rec.rank + 1) % rec.n,
                    (rec.rank - 1) % rec.n,
                    100 * (j + 1),
                    100 * (j + 1),
                )
        rec("Barrier", site="end")

    return program


def rounded(size: int = 205, steps: int = 7) -> Program:
    """A ring that hands its blocks on; all but the last are size / n rounded."""

    def program(rec: Recorder) -> None:
        def block(rank: int) -> int:
            width = int(size / rec.n + 0.5)
            return size - (rec.n - 1) * width if rank == rec.n - 1 else width

        after, before = (rec.rank + 1) % rec.n, (rec.rank - 1) % rec.n
        for _ in range(steps):
            exchange(rec, "ring", after, before, 24 * block(rec.rank), 24 * block(before))

    return program


def chunks(size: int = 1001, chunk: int = 64, rounds: int = 2) -> Program:
    """A chain that hands a vector on in chunks, the last one short."""

    def program(rec: Recorder) -> None:
        for _ in range(rounds):
            for at in range(0, size, chunk):
                part = 8 * min(chunk, size - at)
                if rec.rank > 0:
                    rec("Recv", peer=rec.rank - 1, nbytes=part)
                if rec.rank < rec.n - 1:
                    rec("Send", peer=rec.rank + 1, nbytes=part)
            rec("Barrier")

    return program


def panels(blocks: int = 24, width: int = 32, rounds: int = 1) -> Program:
    """LU by panels of one width: what is broadcast shrinks by one panel per turn."""

    def program(rec: Recorder) -> None:
        for _ in range(rounds):
            for k in range(blocks):
                rec("Bcast", root=k % rec.n, nbytes=8 * width * width * (blocks - k))
            rec("Allreduce", nbytes=8)

    return program


def trimmed_halo(nx: int = 131, ny: int = 101, iters: int = 3) -> Program:
    """A bordered 2-D halo of blocks without the physical border."""

    def program(rec: Recorder) -> None:
        px, py = dims_balanced(rec.n, 2)
        cx, cy = divmod(rec.rank, py)
        lx = block(nx, px, cx) - (cx == 0) - (cx == px - 1)
        ly = block(ny, py, cy) - (cy == 0) - (cy == py - 1)
        for _ in range(iters):
            for x, y, size, site in (
                (cx - 1, cy, ly, "w"),
                (cx + 1, cy, ly, "e"),
                (cx, cy - 1, lx, "s"),
                (cx, cy + 1, lx, "n"),
            ):
                if 0 <= x < px and 0 <= y < py:
                    rec("Irecv", site="r" + site, peer=x * py + y, nbytes=8 * size)
                    rec("Isend", site="s" + site, peer=x * py + y, nbytes=8 * size)
            rec("Waitall")

    return program


def scattered(size: int = 1001, rounds: int = 2) -> Program:
    """v-variants: the own count of an uneven block, from a root in the middle and in turn."""

    def program(rec: Recorder) -> None:
        mine = 8 * block(size, rec.n, rec.rank)
        for _ in range(rounds):
            rec("Scatterv", nbytes=mine, root=rec.n // 2)
            rec("Allgatherv", nbytes=mine)
            for t in range(rec.n):
                rec("Gatherv", site="turn", nbytes=mine, root=t)
            rec("Reduce_scatter", nbytes=8 * size)

    return program


def faces3d(size: int = 32, iters: int = 2) -> Program:
    """A periodic 3-D halo, powers of two; later faces carry the ghosts of earlier ones."""

    def program(rec: Recorder) -> None:
        k = rec.n.bit_length() - 1
        p = (1 << k // 3, 1 << (k + 1) // 3, 1 << (k + 2) // 3)
        c = [int(x) for x in np.unravel_index(rec.rank, p)]
        grid = rec.comm(tuple(range(rec.n)), 1, p, (True, True, True))
        rec("Cart_create")
        for _ in range(iters):
            for d in range(3):
                a, b = (e for e in range(3) if e != d)
                face = (size // p[a] + 2 * (a < d)) * (size // p[b] + 2 * (b < d))
                for s in (1, -1):
                    to, frm = list(c), list(c)
                    to[d], frm[d] = (c[d] + s) % p[d], (c[d] - s) % p[d]
                    for op, q in (("Irecv", frm), ("Send", to)):
                        rec(
                            op,
                            site=f"{op}{d}{s}",
                            comm=grid,
                            nbytes=8 * face,
                            peer=int(np.ravel_multi_index(q, p)),
                        )
                    rec("Wait", nbytes=1)

    return program
