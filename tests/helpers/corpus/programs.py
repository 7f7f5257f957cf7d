"""The first programs of the corpus: those of examples/, exchanges, and trees by hand."""

from __future__ import annotations

from corpus.language import CROSS, Recorder, binomial_tree, block, packed_sides, program


@program
def jacobi2d(
    rec: Recorder, nx: int = 1003, ny: int = 701, iters: int = 20, cart: bool = True
) -> None:
    """Bordered 2-D halo exchange with a convergence Allreduce, on MPI_Cart_create."""
    grid = rec.grid(2)
    comm = rec.comm(tuple(range(rec.n)), 1, grid.dims, (False, False)) if cart else 0
    if cart:
        rec("Cart_create", comm=0)
    rec("Bcast", nbytes=16, root=0)
    lx, ly = (block(*each) for each in zip((nx, ny), grid.dims, grid.at, strict=True))
    peers = [(peer, 8 * (ly if d[0] else lx)) for d in CROSS for peer in grid.beside(d)]
    for _ in range(iters):
        for op, work in (("Irecv", 2.0 * lx * ly), ("Isend", 10)):
            for peer, nbytes in peers:
                rec(op, peer=peer, nbytes=nbytes, comm=comm, work=work)
        rec("Waitall", nbytes=2 * len(peers))
        rec("Allreduce", nbytes=8, comm=comm, work=lx * ly)


@program
def ring(rec: Recorder, bodies: int = 1000, steps: int = 5) -> None:
    """Ring pipeline: n - 1 shifts of a padded block per step."""
    r, n = rec.rank, rec.n
    for _ in range(steps):
        for _ in range(n - 1):
            rec.exchange("Sendrecv", (r + 1) % n, (r - 1) % n, -(-bodies // n) * 32, rest=0)
        rec("Allreduce", nbytes=8)


@program
def halo3d(
    rec: Recorder, nx: int = 50, ny: int = 43, nz: int = 37, iters: int = 7, tags: bool = True
) -> None:
    """Periodic 3-D halo on MPI_Cart_create, loop over dimensions and directions."""
    grid = rec.grid(3, wrap=True)
    comm = rec.comm(tuple(range(rec.n)), 1, grid.dims, (True, True, True))
    rec("Cart_create")
    local = [block(*each) for each in zip((nx, ny, nz), grid.dims, grid.at, strict=True)]
    for _ in range(iters):
        for op, sign in (("Irecv", -1), ("Isend", 1)):
            for d in range(3):
                face = local[0] * local[1] * local[2] // local[d]
                for k, s in enumerate((-sign, sign)):
                    tag = 2 * d + k if tags else 0
                    rec(op, peer=grid.step(d, s), nbytes=8 * face, tag=tag, comm=comm)
        rec("Waitall", nbytes=12)
    rec("Reduce", nbytes=8, root=0, comm=comm)


@program
def cg(rec: Recorder, size: int = 1403, outer: int = 3, inner: int = 5) -> None:
    """Conjugate gradient on a 2-D grid: XOR row sums, transpose partner, as in NPB CG."""
    k = rec.n.bit_length() - 1
    rows, cols = 2 ** (k // 2), 2 ** (k - k // 2)
    i, j = divmod(rec.rank, cols)

    def cut(c: int, p: int) -> int:
        return (c + 1) * size // p - c * size // p

    if rows == cols:
        partner, length = j * cols + i, cut(i, cols)
    else:
        partner = j // 2 * cols + 2 * i + j % 2
        length = cut(2 * i + j % 2, cols)
    stages = cols.bit_length() - 1

    def dot(site: str) -> None:
        for s in range(stages):
            q = i * cols + (j ^ (1 << s))
            rec("Irecv", site=site + "r", peer=q, nbytes=8)
            rec("Send", site=site + "s", peer=q, nbytes=8)
            rec("Wait", site=site + "w", nbytes=1)

    for _ in range(outer):
        dot("rho")
        for _ in range(inner):
            for s in range(stages):
                q = i * cols + (j ^ (1 << s))
                rec("Irecv", site="sum_r", peer=q, nbytes=8 * cut(i, rows))
                rec("Send", site="sum_s", peer=q, nbytes=8 * cut(i, rows))
                rec("Wait", site="sum_w", nbytes=1)
            if partner != rec.rank:
                rec.exchange("tr", partner, nbytes=8 * length, received=8 * cut(j, cols))
            dot("pq")
        dot("norm")


@program
def wavefront(
    rec: Recorder, nx: int = 301, ny: int = 203, blocks: int = 4, sweeps: int = 3
) -> None:
    """Pipelined 2-D sweeps from two opposite corners, no Cartesian communicator."""
    grid = rec.grid(2)
    sizes = [block(*each) for each in zip((nx, ny), grid.dims, grid.at, strict=True)]
    for _ in range(sweeps):
        for sign in (1, -1):
            for _ in range(blocks):
                for op, s in (("Recv", -sign), ("Send", sign)):
                    for d, axis in enumerate("xy"):
                        peer = grid.step(d, s)
                        if peer is not None:
                            rec(op, f"{op}{axis}{sign}", peer, 8 * sizes[1 - d])
        rec("Allreduce", nbytes=8)


@program
def halo9(rec: Recorder, nx: int = 331, ny: int = 257, iters: int = 4) -> None:
    """Periodic 2-D halo with corners, all partners in one neighbour loop, no Cart, squares."""
    grid = rec.square(wrap=True)
    lx, ly = (block(*each) for each in zip((nx, ny), grid.dims, grid.at, strict=True))
    steps = [(dx, dy) for dx in (-1, 0, 1) for dy in (-1, 0, 1) if dx or dy]
    for _ in range(iters):
        for op, s in (("Irecv", -1), ("Isend", 1)):
            for dx, dy in steps:
                size = (1 if dx else lx) * (1 if dy else ly)
                rec(op, peer=grid.beside((s * dx, s * dy))[0], nbytes=8 * size)
        rec("Waitall", nbytes=16)


@program
def fft2d(rec: Recorder, size: int = 512, iters: int = 3) -> None:
    """Transposes in row and column communicators of a 2-D grid, made by MPI_Comm_split."""
    grid = rec.grid(2)
    members = grid.along(1)
    row, col = rec.comm(members), rec.comm(grid.along(0))
    rec("Comm_split", "split_row")
    rec("Comm_split", "split_col")
    local = size**3 // rec.n * 16
    for _ in range(iters):
        rec("Alltoall", "row", comm=row, nbytes=local, elem=16)
        rec("Alltoall", "col", comm=col, nbytes=local, elem=16)
    rec("Bcast", "b", comm=row, nbytes=8, root=members[0])


@program
def hypercube(rec: Recorder, words: int = 64, iters: int = 6) -> None:
    """All-reduce by recursive doubling over all ranks in plain Sendrecv."""
    for _ in range(iters):
        for s in range((rec.n - 1).bit_length()):
            rec.exchange("Sendrecv", rec.rank ^ 1 << s, nbytes=8 * words, rest=0)


@program
def dissemination(rec: Recorder, iters: int = 4) -> None:
    """A barrier by dissemination: partners at distance 2^i, any count."""
    for _ in range(iters):
        d = 1
        while d < rec.n:
            rec("Irecv", peer=(rec.rank - d) % rec.n, nbytes=0)
            rec("Send", peer=(rec.rank + d) % rec.n, nbytes=0)
            rec("Wait", nbytes=1)
            d *= 2


@program
def gather_to_root(rec: Recorder, size: int = 1001, rounds: int = 3) -> None:
    """Every rank sends its uneven block to rank 0, which answers each of them."""
    for _ in range(rounds):
        if rec.rank == 0:
            for q in range(1, rec.n):
                rec("Recv", peer=q, nbytes=8 * block(size, rec.n, q))
            for q in range(1, rec.n):
                rec("Send", site="answer", peer=q, nbytes=64)
        else:
            rec("Send", peer=0, nbytes=8 * block(size, rec.n, rec.rank))
            rec("Recv", site="answered", peer=0, nbytes=64)


@program
def every_tenth(rec: Recorder, iters: int = 40) -> None:
    """A ring with output through a Gather every tenth step and a different first turn."""
    rec("Allreduce", site="start", nbytes=8)
    for k in range(iters):
        rec("Isend", peer=(rec.rank + 1) % rec.n, nbytes=400)
        rec("Recv", peer=(rec.rank - 1) % rec.n, nbytes=400)
        rec("Wait", nbytes=1)
        if k % 10 == 9:
            rec("Gather", nbytes=80, root=0)
        if k == 0:
            rec("Barrier", site="first")


@program
def binomial_broadcast(rec: Recorder, words: int = 50, rounds: int = 4) -> None:
    """A broadcast from rank 0 along a binomial tree, by hand, at any count."""
    for _ in range(rounds):
        binomial_tree(rec, rec.rank, rec.n, lambda v: v, 8 * words)


@program
def packed_halo(
    rec: Recorder, nx: int = 150, ny: int = 131, fields: int = 6, iters: int = 3
) -> None:
    """A bordered 2-D halo that packs several fields of blocks widened by a ghost cell each side."""
    grid = rec.grid(2)
    lx, ly = (block(*each) + 4 for each in zip((nx, ny), grid.dims, grid.at, strict=True))
    for _ in range(iters):
        packed_sides(rec, grid, 8 * fields * lx, 8 * fields * ly)


@program
def shares_of_steps(rec: Recorder, steps: int = 200) -> None:
    """A loop of steps // n turns on every rank."""
    for _ in range(steps // rec.n):
        rec("Allreduce", nbytes=8)
