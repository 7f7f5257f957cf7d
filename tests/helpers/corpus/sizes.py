"""Programs as event lists (see language.py) whose message sizes follow stages, turns and cells."""

from __future__ import annotations

from corpus.language import Recorder, block, packed_sides, program


def exchange(
    rec: Recorder, site: str, to: int | None, source: int | None, sent: int, received: int = -1
) -> None:
    """Record a Sendrecv of doubles; as many are received as are sent unless said."""
    rec.exchange(site, to, source, 8 * sent, 8 * (sent if received < 0 else received), rest=0)


@program
def multipartition(
    rec: Recorder,
    extents: tuple[int, int, int] = (36, 36, 36),
    trim: int = 1,
    faces: int = 10,
    forth: int = 22,
    back: int = 10,
    steps: int = 2,
    buffers: bool = False,
) -> None:
    """An ADI solver on a diagonal multi-partition, as NPB SP: faces, three sweeps.

    buffers: the sweeps send whole buffers, one wider than any cell, as NPB BT.
    """
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


@program
def allgather_ring(rec: Recorder, size: int = 1001, rounds: int = 2) -> None:
    """Blocks of uneven size travel around the ring until all ranks have all."""
    n, r = rec.n, rec.rank
    for _ in range(rounds):
        for t in range(n - 1):
            sent, received = (block(size, n, (r - t - k) % n) for k in (0, 1))
            exchange(rec, "ring", (r + 1) % n, (r - 1) % n, sent, received)
        rec("Barrier")


@program
def halving(rec: Recorder, size: int = 1003, rounds: int = 2) -> None:
    """Reduce-scatter by recursive halving of an odd vector, then allgather by doubling."""
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


@program
def summa(rec: Recorder, m: int = 301, k: int = 203, rounds: int = 2) -> None:
    """Matrix product: in each turn one column and one row of blocks are broadcast."""
    grid = rec.square()
    (row, col), p = grid.at, grid.dims[0]
    mine, down = rec.comm(grid.along(1)), rec.comm(grid.along(0))
    rec("Comm_split", "rows")
    rec("Comm_split", "columns")
    for _ in range(rounds):
        for t in range(p):
            panel = 8 * block(k, p, t)
            rec("Bcast", "a", comm=mine, root=row * p + t, nbytes=panel * block(m, p, row))
            rec("Bcast", "b", comm=down, root=t * p + col, nbytes=panel * block(m, p, col))
        rec("Allreduce", nbytes=8)


@program
def cannon(rec: Recorder, size: int = 203, rounds: int = 2) -> None:
    """Matrix product: blocks of A go left, blocks of B go up, each turn another one."""
    grid = rec.square(wrap=True)
    (i, j), p = grid.at, grid.dims[0]
    for _ in range(rounds):
        for t in range(p):
            now, then = (block(size, p, (i + j + t + s) % p) for s in (0, 1))
            for site, d, mine in (("a", 1, block(size, p, i)), ("b", 0, block(size, p, j))):
                exchange(rec, site, grid.step(d, -1), grid.step(d, 1), mine * now, mine * then)
        rec("Barrier")


@program
def vcycle(rec: Recorder, size: int = 4099, cycles: int = 2, levels: int = 4) -> None:
    """A multigrid cycle of so many levels on all ranks: halos halve from level to level."""
    grid = rec.grid(2, wrap=True)
    for _ in range(cycles):
        for site, order in (("down", range(levels)), ("up", range(levels - 1, -1, -1))):
            for level in order:
                for d, axis in enumerate("xy"):
                    face = block(size >> level, grid.dims[1 - d], grid.at[1 - d]) + 2
                    exchange(rec, site + axis, grid.step(d, 1), grid.step(d, -1), face)
        rec("Allreduce", nbytes=8)


@program
def pencils(rec: Recorder, nx: int = 65, ny: int = 50, nz: int = 43, steps: int = 2) -> None:
    """A 3-D FFT in pencils: transposes by Alltoallv in rows and in columns, uneven extents."""
    grid = rec.grid(2)
    (cx, cy), (px, py) = grid.at, grid.dims
    row, col = rec.comm(grid.along(1)), rec.comm(grid.along(0))
    rec("Comm_split", "rows")
    rec("Comm_split", "columns")
    x, y, z = block(nx, px, cx), block(ny, py, cy), block(nz, py, cy)
    for _ in range(steps):
        rec("Alltoallv", "xy", comm=row, elem=16, nbytes=16 * x * y * nz)
        rec("Alltoallv", "yz", comm=col, elem=16, nbytes=16 * x * z * ny)
    rec("Gatherv", nbytes=8 * x * y, root=0)


@program
def fused(rec: Recorder, outer: int = 4, inner: int = 3) -> None:
    """A perfect nest: the size is that of the inner turn."""
    rec("Barrier", "start")
    for _ in range(outer):
        for j in range(inner):
            exchange(rec, "ring", (rec.rank + 1) % rec.n, (rec.rank - 1) % rec.n, 100 * (j + 1))
    rec("Barrier", "end")


@program
def rounded(rec: Recorder, size: int = 205, steps: int = 7) -> None:
    """A ring that hands its blocks on; all but the last are size / n rounded."""

    def block(rank: int) -> int:
        width = int(size / rec.n + 0.5)
        return size - (rec.n - 1) * width if rank == rec.n - 1 else width

    after, before = (rec.rank + 1) % rec.n, (rec.rank - 1) % rec.n
    for _ in range(steps):
        exchange(rec, "ring", after, before, 24 * block(rec.rank), 24 * block(before))


@program
def chunks(rec: Recorder, size: int = 1001, chunk: int = 64, rounds: int = 2) -> None:
    """A chain that hands a vector on in chunks, the last one short."""
    for _ in range(rounds):
        for at in range(0, size, chunk):
            part = 8 * min(chunk, size - at)
            if rec.rank > 0:
                rec("Recv", peer=rec.rank - 1, nbytes=part)
            if rec.rank < rec.n - 1:
                rec("Send", peer=rec.rank + 1, nbytes=part)
        rec("Barrier")


@program
def panels(rec: Recorder, blocks: int = 24, width: int = 32, rounds: int = 1) -> None:
    """LU by panels of one width: what is broadcast shrinks by one panel per turn."""
    for _ in range(rounds):
        for k in range(blocks):
            rec("Bcast", root=k % rec.n, nbytes=8 * width * width * (blocks - k))
        rec("Allreduce", nbytes=8)


@program
def trimmed_halo(rec: Recorder, nx: int = 131, ny: int = 101, iters: int = 3) -> None:
    """A bordered 2-D halo of blocks without the physical border."""
    grid = rec.grid(2)
    lx, ly = (
        block(e, p, c) - (c == 0) - (c == p - 1)
        for e, p, c in zip((nx, ny), grid.dims, grid.at, strict=True)
    )
    for _ in range(iters):
        packed_sides(rec, grid, 8 * lx, 8 * ly)


@program
def scattered(rec: Recorder, size: int = 1001, rounds: int = 2) -> None:
    """v-variants: the own count of an uneven block, from a root in the middle and in turn."""
    mine = 8 * block(size, rec.n, rec.rank)
    for _ in range(rounds):
        rec("Scatterv", nbytes=mine, root=rec.n // 2)
        rec("Allgatherv", nbytes=mine)
        for t in range(rec.n):
            rec("Gatherv", site="turn", nbytes=mine, root=t)
        rec("Reduce_scatter", nbytes=8 * size)


@program
def faces3d(rec: Recorder, size: int = 32, iters: int = 2) -> None:
    """A periodic 3-D halo, powers of two; later faces carry the ghosts of earlier ones."""
    k = rec.n.bit_length() - 1
    p = (1 << k // 3, 1 << (k + 1) // 3, 1 << (k + 2) // 3)
    grid = rec.grid(p, wrap=True)
    comm = rec.comm(tuple(range(rec.n)), 1, p, (True, True, True))
    rec("Cart_create")
    for _ in range(iters):
        for d in range(3):
            a, b = (e for e in range(3) if e != d)
            face = (size // p[a] + 2 * (a < d)) * (size // p[b] + 2 * (b < d))
            for s in (1, -1):
                for op, peer in (("Irecv", grid.step(d, -s)), ("Send", grid.step(d, s))):
                    rec(op, f"{op}{d}{s}", peer, 8 * face, comm=comm)
                rec("Wait", nbytes=1)
