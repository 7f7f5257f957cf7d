"""Event-list programs for grids, partners, guards and communicators, at any count.

Each is written as in language.py; sizes are constants where sizes are not the point.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from corpus.language import CROSS, Grid, Program, Recorder, binomial_tree, block, program
from p3s.base.extents import dims_balanced

#: (rank, n) -> partners in the order of the calls, or the partners of a rank at a stage.
Partners = Callable[[int, int], Iterable[int]]
#: The four neighbours on a plane, along rows first.
ROWS_FIRST = ((0, 1), (0, -1), (1, 0), (-1, 0))


@program
def messages(
    rec: Recorder, send: Partners, recv: Partners, turns: int = 3, words: int = 10
) -> None:
    """Send to all of ``send``, receive from all of ``recv``, through one call each."""
    for _ in range(turns):
        for op, partners in (("Irecv", recv), ("Isend", send)):
            for q in partners(rec.rank, rec.n):
                rec(op, peer=q, nbytes=8 * words)
        rec("Allreduce", nbytes=8)


def both(partners: Partners, **kw: int) -> Program:
    """An exchange: who is sent to is received from."""
    return messages(partners, partners, **kw)


@program
def _halo(
    rec: Recorder,
    dims_of: Callable[[int], tuple[int, ...]],
    first_fastest: bool = False,
    wrap: bool = False,
    sites: bool = True,
) -> None:
    """A halo on extents given as a function of n."""
    grid = rec.grid(dims_of(rec.n), wrap, first_fastest)
    for _ in range(3):
        for op, sign in (("Irecv", 1), ("Isend", -1)):
            for d in range(len(grid.dims)):
                for s in (-sign, sign):
                    peer = grid.step(d, s)
                    if peer not in (None, rec.rank):
                        rec(op, f"{op}{d}{s * sign}" if sites else None, peer, 8 * (d + 2))
        rec("Allreduce", nbytes=8)


def one_call(dims: int, wrap: bool = False) -> Program:
    """A halo on MPI_Dims_create's extents, the first fastest, all neighbours from one call."""
    return _halo(lambda n: dims_balanced(n, dims), True, wrap, sites=False)


def fixed_plane(layers: int = 2) -> Program:
    """A 3-D halo with the first extent given, the rest near square."""
    return _halo(lambda n: (layers, *dims_balanced(n // layers, 2)))


def fixed_middle(layers: int = 3) -> Program:
    """A 3-D halo with the middle extent given."""

    def dims(n: int) -> tuple[int, ...]:
        a, b = dims_balanced(n // layers, 2)
        return (b, layers, a)

    return _halo(dims)


def column_major() -> Program:
    """A 2-D halo whose first coordinate runs fastest."""
    return _halo(lambda n: dims_balanced(n, 2), first_fastest=True)


def column_major3() -> Program:
    """A periodic 3-D halo on powers of two, the first coordinate runs fastest and doubles first."""

    def dims(n: int) -> tuple[int, ...]:
        k = n.bit_length() - 1
        return tuple(1 << ((k + 2 - d) // 3) for d in range(3))

    return _halo(dims, first_fastest=True, wrap=True)


def nested_divisors() -> Program:
    """A 3-D halo: the largest divisor below the cube root first, then below the square root."""

    def dims(n: int) -> tuple[int, ...]:
        a = max(d for d in range(1, n + 1) if n % d == 0 and d**3 <= n)
        b = max(d for d in range(1, n + 1) if n // a % d == 0 and d * d <= n // a)
        return (a, b, n // a // b)

    return _halo(dims)


def halo4d() -> Program:
    """A periodic 4-D halo on MPI_Dims_create's extents."""
    return _halo(lambda n: dims_balanced(n, 4), wrap=True)


@program
def recursive_bisection(rec: Recorder, dims: int = 2, tags: bool = True) -> None:
    """A bordered halo where rank bits are dealt to the dimensions in turn, the highest first."""
    k = rec.n.bit_length() - 1

    def place(rank: int) -> tuple[int, ...]:
        c = [0] * dims
        for b in range(k):
            c[b % dims] = 2 * c[b % dims] + (rank >> (k - 1 - b) & 1)
        return tuple(c)

    rank_at = {place(r): r for r in range(rec.n)}
    for _ in range(4):
        for op, sign in (("Irecv", 1), ("Isend", -1)):
            for d in range(dims):
                for s in (-sign, sign):
                    to = tuple(x + s * (e == d) for e, x in enumerate(place(rec.rank)))
                    if to in rank_at:
                        tag = 2 * d + (s * sign > 0) if tags else 0
                        rec(op, peer=rank_at[to], nbytes=80, tag=tag)
        rec("Barrier")


@program
def reordered_cart(rec: Recorder, order: str = "reverse") -> None:
    """A halo on a Cartesian communicator whose ranks are not those of the world."""
    dims = dims_balanced(rec.n, 2)
    members = tuple(range(rec.n))[::-1]
    if order != "reverse":  # dealt out column by column
        members = tuple(x * dims[0] + y for y in range(dims[0]) for x in range(dims[1]))
    comm = rec.comm(members, 0, dims, (False, False))
    rec("Cart_create")
    grid = Grid(dims, members.index(rec.rank))
    for _ in range(3):
        for op, up in (("Irecv", -1), ("Isend", 1)):
            for d in range(2):
                for s in (-1, 1):
                    to = grid.step(d, s)
                    if to is not None:
                        tag = 2 * d + (s == up)
                        rec(op, peer=members[to], nbytes=80, comm=comm, tag=tag)
        rec("Allreduce", nbytes=8, comm=comm)


@program
def halving_doubling(rec: Recorder, words: int = 4096, rounds: int = 2) -> None:
    """Reduce-scatter by halving, allgather by doubling; others hand in to a rank below first."""
    low = 1 << (rec.n.bit_length() - 1)
    for _ in range(rounds):
        if rec.rank >= low:
            rec("Send", "in", rec.rank - low, 8 * words)
            rec("Recv", "out", rec.rank - low, 8 * words)
            continue
        if rec.rank + low < rec.n:
            rec("Recv", "in", rec.rank + low, 8 * words)
        step, part = low // 2, words // 2
        while step:
            rec.exchange("half", rec.rank ^ step, nbytes=8 * part)
            step, part = step // 2, part // 2
        step, part = 1, max(words // low, 1)
        while step < low:
            rec.exchange("double", rec.rank ^ step, nbytes=8 * part)
            step, part = step * 2, part * 2
        if rec.rank + low < rec.n:
            rec("Send", "out", rec.rank + low, 8 * words)


@program
def pair_folding(rec: Recorder, words: int = 32, rounds: int = 3) -> None:
    """Recursive doubling where the first ranks pair up until a power of two is left."""
    low = 1 << (rec.n.bit_length() - 1)
    rest, rank = rec.n - low, rec.rank
    paired, first = rank < 2 * rest, rank % 2 == 0
    for _ in range(rounds):
        if paired:
            rec("Send" if first else "Recv", "in", rank + 1 if first else rank - 1, 8 * words)
        if not (paired and first):
            new, mask = rank // 2 if paired else rank - rest, 1
            while mask < low:
                to = new ^ mask
                rec.exchange("Sendrecv", 2 * to + 1 if to < rest else to + rest, nbytes=8 * words)
                mask *= 2
        if paired:
            rec("Recv" if first else "Send", "out", rank + 1 if first else rank - 1, 8 * words)


@program
def binomial(rec: Recorder, root: Callable[[int], int], up: bool = False, rounds: int = 3) -> None:
    """A broadcast (or, up, a reduction) along a binomial tree from any root."""
    n, top = rec.n, root(rec.n)
    for _ in range(rounds):
        binomial_tree(rec, (rec.rank - top) % n, n, lambda v: (v + top) % n, up=up)


@program
def doubling_broadcast(rec: Recorder, rounds: int = 3) -> None:
    """A broadcast in which all ranks that have the data hand it 2^s ranks on."""
    for _ in range(rounds):
        step = 1
        while step < rec.n:
            if rec.rank < step:
                if rec.rank + step < rec.n:
                    rec("Send", peer=rec.rank + step, nbytes=80)
            elif rec.rank < 2 * step:
                rec("Recv", peer=rec.rank - step, nbytes=80)
            step *= 2


@program
def heap_tree(rec: Recorder, arity: int = 2, rounds: int = 3) -> None:
    """A reduction along a tree in which rank r has the children k r + 1, ..., k r + k."""
    for _ in range(rounds):
        for q in range(arity * rec.rank + 1, min(arity * rec.rank + arity + 1, rec.n)):
            rec("Recv", peer=q, nbytes=80)
        if rec.rank:
            rec("Send", peer=(rec.rank - 1) // arity, nbytes=80)


@program
def row_ring(rec: Recorder) -> None:
    """A ring in the row communicators and a broadcast along columns, made by MPI_Comm_split."""
    grid = rec.grid(2)
    (x, y), py = grid.at, grid.dims[1]
    row, col = rec.comm(grid.along(1)), rec.comm(grid.along(0))
    rec("Comm_split", "a")
    rec("Comm_split", "b")
    for _ in range(4):
        rec.exchange("Sendrecv", x * py + (y + 1) % py, x * py + (y - 1) % py, comm=row)
        rec("Bcast", comm=col, nbytes=800, root=y)


@program
def node_ring(rec: Recorder, k: int = 4) -> None:
    """A 2-D halo beside a ring inside each node of k ranks and a reduction over node leaders."""
    rank, n = rec.rank, rec.n
    first = rank // k * k
    node = rec.comm(tuple(range(first, min(first + k, n))))
    leaders = rec.comm(tuple(range(0, n, k)))
    size = min(first + k, n) - first
    after, before = ((first + (rank - first + s) % size) for s in (1, -1))
    rec("Comm_split", "node")
    rec("Comm_split", "leaders")
    for _ in range(3):
        rec.halo(rec.grid(2).beside(*CROSS), "h")
        rec.exchange("ring", after, before, 40, comm=node)
        rec("Reduce", "local", comm=node, root=first, nbytes=64)
        if rank == first:
            rec("Allreduce", "top", comm=leaders, nbytes=64)
        rec("Bcast", "down", comm=node, root=first, nbytes=64)


@program
def node_gather(rec: Recorder, k: int = 3) -> None:
    """Ranks send to the leader of their node of k ranks, leaders on to rank 0, by hand."""
    rank, n = rec.rank, rec.n
    first = rank // k * k
    for _ in range(3):
        if rank != first:
            rec("Send", "up", first, 80)
            continue
        for q in range(first + 1, min(first + k, n)):
            rec("Recv", "up", q, 80)
        if rank:
            rec("Send", "top", 0, 240)
        else:
            for q in range(k, n, k):
                rec("Recv", "top", q, 240)


@program
def master_worker(rec: Recorder, tasks: int = 50) -> None:
    """Rank 0 hands task t to worker 1 + t mod (n - 1) and collects the answers."""
    if rec.rank == 0:
        for op, nbytes in (("Send", 80), ("Recv", 16)):
            for t in range(tasks):
                rec(op, peer=1 + t % (rec.n - 1), nbytes=nbytes)
    else:
        for _ in range(rec.rank - 1, tasks, rec.n - 1):
            rec("Recv", "task", 0, 80)
            rec("Send", "answer", 0, 16)


def transpose(two_to_one: bool = False) -> Program:
    """The partner across the diagonal, square or 2:1 grids of powers of two."""

    def partners(rank: int, n: int) -> list[int]:
        k = n.bit_length() - 1
        rows, cols = 1 << k // 2, 1 << k - k // 2
        i, j = divmod(rank, cols)
        q = j * cols + i if rows == cols else j // 2 * cols + 2 * i + j % 2
        return [q] if q != rank else []

    def squares(rank: int, n: int) -> list[int]:
        p = round(n**0.5)
        i, j = divmod(rank, p)
        return [j * p + i] if i != j else []

    return both(partners if two_to_one else squares)


def pairwise_xor(rank: int, n: int) -> list[int]:
    """Return r ^ s for s = 1, 2, ..., where it is a rank."""
    top = 1 << (n - 1).bit_length()
    return [rank ^ s for s in range(1, top) if rank ^ s < n]


def pairwise(kind: str) -> Program:
    """All others in turn: r ^ s, or to (r + s) mod n and from (r - s) mod n, or by rank."""
    if kind == "xor":
        return both(pairwise_xor)
    if kind == "ranks":
        return both(lambda r, n: [q for q in range(n) if q != r])
    return messages(
        lambda r, n: [(r + s) % n for s in range(1, n)],
        lambda r, n: [(r - s) % n for s in range(1, n)],
    )


@program
def stage_sizes(rec: Recorder, kind: str) -> None:
    """All others in turn, in each turn a size of its own: the order of partners matters."""
    r, n = rec.rank, rec.n
    for _ in range(2):
        for s in range(1, n):
            to, source = (r ^ s, r ^ s) if kind == "xor" else ((r + s) % n, (r - s) % n)
            rec.exchange("Sendrecv", to, source, 8 * s)


@program
def multigrid(
    rec: Recorder, dims: int = 1, wrap: bool = True, cycles: int = 3, last: bool = False
) -> None:
    """Levels with every 2^l-th rank of each dimension (last: the last of 2^l go on working)."""
    grid = rec.grid(dims)
    p = grid.dims
    c = [e - 1 - x if last else x for x, e in zip(grid.at, p, strict=True)]
    for _ in range(cycles):
        level = 0
        while (1 << level) < min(p) and all(x % (1 << level) == 0 for x in c):
            for op, sign in (("Irecv", -1), ("Isend", 1)):
                for d in range(dims):
                    for s in (1, -1):
                        many = (p[d] + (1 << level) - 1) >> level
                        to = (c[d] >> level) + s * sign
                        if wrap:
                            to %= many
                        if 0 <= to < many:
                            other = list(c)
                            other[d] = to << level
                            if last:
                                other = [e - 1 - x for x, e in zip(other, p, strict=True)]
                            rec(op, f"{op}{d}{s}", grid.rank(other), 80)
            rec("Waitall", nbytes=4)
            level += 1
        rec("Allreduce", nbytes=8)


@program
def axis_sweeps(rec: Recorder) -> None:
    """Pipelines forth and back along each dimension of a 3-D grid."""
    grid = rec.grid(3)
    for _ in range(2):
        for d in range(3):
            for s in (1, -1):
                rec.blocking(grid.step(d, s), grid.step(d, -s), str(d))


@program
def octants(rec: Recorder, blocks: int = 3) -> None:
    """Sweeps from all four corners of a 2-D grid through the same four calls."""
    grid = rec.grid(2)
    for _ in range(2):
        for sx in (1, -1):
            for sy in (1, -1):
                for _ in range(blocks):
                    for op, t in (("Recv", -1), ("Send", 1)):
                        for d, s in ((0, sx), (1, sy)):
                            to = grid.step(d, t * s)
                            if to is not None:
                                rec(op, f"{op}{d}", to, 80)


@program
def red_black(rec: Recorder, dims: int = 2) -> None:
    """Red ranks (even sum of coordinates) send first, then the black ones answer."""
    grid = rec.grid(dims)
    near = [grid.step(d, s) for d in range(dims) for s in (-1, 1)]
    red = sum(grid.at) % 2 == 0
    for _ in range(3):
        for site, sends, nbytes in (("red", red, 80), ("black", not red, 40)):
            for q in near:
                if q is not None:
                    rec("Send" if sends else "Recv", site, q, nbytes)


@program
def odd_even(rec: Recorder, rounds: int = 3) -> None:
    """Odd-even transposition along the ranks."""
    for _ in range(rounds):
        for phase in (0, 1):
            q = rec.rank + 1 if rec.rank % 2 == phase else rec.rank - 1
            if 0 <= q < rec.n:
                rec.exchange(f"s{phase}", q)


@program
def lower_first(rec: Recorder) -> None:
    """Neighbours on a 2-D grid; the lower rank of a pair sends, the upper answers."""
    near = rec.grid(2).beside((0, 1), (1, 0), (0, -1), (-1, 0))
    for _ in range(3):
        for q in near:
            low = rec.rank < q
            rec("Send" if low else "Recv", "first", q, 80)
            rec("Recv" if low else "Send", "second", q, 40)


@program
def interior_and_border(rec: Recorder) -> None:
    """Ranks inside a 2-D grid write to a log rank, those at the border to another."""
    grid = rec.grid(2)

    def border(rank: int) -> bool:
        return any(x in (0, e - 1) for x, e in zip(grid.place(rank), grid.dims, strict=True))

    for _ in range(2):
        rec.halo(grid.beside(*CROSS), "h")
        if border(rec.rank):
            members = tuple(filter(border, range(rec.n)))
            rec("Allreduce", "border", nbytes=8, comm=rec.comm(members))
        rec("Barrier", "all")


@program
def split_by(rec: Recorder, colour: Callable[[int, int], int], key: int = 1) -> None:
    """Collectives and a root in the communicators of MPI_Comm_split (negative: left out)."""
    mine = colour(rec.rank, rec.n)
    members = tuple(r for r in range(rec.n) if colour(r, rec.n) == mine)[::key]
    rec("Comm_split")
    rec("Allreduce", "world", nbytes=16)
    if mine >= 0:
        group = rec.comm(members)
        for _ in range(3):
            rec("Allreduce", "part", comm=group, nbytes=8)
            rec("Bcast", "part", comm=group, nbytes=80, root=members[0])


@program
def split_on_grid(rec: Recorder, colour: Callable[[int, int], int]) -> None:
    """As split_by, in a program with a 2-D halo."""
    _halo(lambda n: dims_balanced(n, 2))(rec)
    split_by(colour)(rec)


@program
def planes(rec: Recorder) -> None:
    """Collectives in planes and lines of a 3-D grid."""
    grid = rec.grid(3)
    for d in range(3):
        plane = grid.along(*(e for e in range(3) if e != d))
        rec("Allreduce", f"plane{d}", nbytes=8, comm=rec.comm(plane))
        rec("Allgather", f"line{d}", nbytes=8, comm=rec.comm(grid.along(d)))


@program
def roots(rec: Recorder) -> None:
    """Broadcasts with fixed, last, row and diagonal roots on a 2-D grid of squares."""
    grid = rec.square()
    (i, j), p = grid.at, grid.dims[0]
    row, col = rec.comm(grid.along(1)), rec.comm(grid.along(0))
    for _ in range(2):
        for site, root, comm in (
            ("zero", 0, 0),
            ("two", 2, 0),
            ("last", rec.n - 1, 0),
            ("row", i * p, row),
            ("row_last", i * p + p - 1, row),
            ("row_diagonal", i * p + i, row),
            ("col_diagonal", j * p + j, col),
        ):
            rec("Bcast", site, root=root, comm=comm, nbytes=8)


@program
def gather_on_diagonal(rec: Recorder) -> None:
    """Ranks of a row send to the diagonal of the row, diagonals to all of their column."""
    grid = rec.square()
    (i, j), p = grid.at, grid.dims[0]
    for _ in range(2):
        if i != j:
            rec("Send", "to", i * p + i, 80)
            rec("Recv", "from", j * p + j, 40)
            continue
        for op, site, nbytes in (("Recv", "to", 80), ("Send", "from", 40)):
            for k in range(p):
                if k != i:
                    rec(op, site, i * p + k if op == "Recv" else k * p + j, nbytes)


@program
def ring_on_grid(rec: Recorder) -> None:
    """A ring over all ranks and an exchange with the opposite rank beside a 2-D halo."""
    _halo(lambda n: dims_balanced(n, 2))(rec)
    r, n = rec.rank, rec.n
    for _ in range(n - 1):
        rec.exchange("ring", (r + 1) % n, (r - 1) % n)
    rec.exchange("mirror", n - 1 - r)


@program
def io_ranks(rec: Recorder, k: int = 3) -> None:
    """The first k ranks write; rank r sends to r mod k."""
    for _ in range(2):
        if rec.rank >= k:
            rec("Send", peer=rec.rank % k, nbytes=80)
        else:
            for q in range(rec.rank + k, rec.n, k):
                rec("Recv", peer=q, nbytes=80)


@program
def halves(rec: Recorder) -> None:
    """The lower half sends to the upper, an odd rank stays out."""
    half = rec.n // 2
    for _ in range(3):
        if rec.rank < half:
            rec("Send", "ping", rec.rank + half, 80)
            rec("Recv", "pong", rec.rank + half, 80)
        elif rec.rank < 2 * half:
            rec("Recv", "ping", rec.rank - half, 80)
            rec("Send", "pong", rec.rank - half, 80)


@program
def two_grids(rec: Recorder) -> None:
    """A 3-D halo and transposes in rows and columns of a 2-D grid of the same ranks."""
    _halo(lambda n: dims_balanced(n, 3))(rec)
    grid = rec.grid(2)
    row, col = rec.comm(grid.along(1)), rec.comm(grid.along(0))
    for _ in range(2):
        rec("Alltoall", "row", comm=row, nbytes=80)
        rec("Alltoall", "col", comm=col, nbytes=80)


@program
def uneven_rows(rec: Recorder, size: int = 301) -> None:
    """A bordered 2-D halo whose blocks are uneven, on squares, one neighbour loop."""
    grid = rec.square()
    for _ in range(3):
        for op in ("Irecv", "Isend"):
            for step in CROSS:
                for peer in grid.beside(step):
                    along = grid.at[1 if step[0] else 0]
                    rec(op, peer=peer, nbytes=8 * block(size, grid.dims[0], along))


@program
def cannon(rec: Recorder) -> None:
    """Cannon's products on a square torus: skew by row and column number, then shifts by one."""
    grid = rec.square(wrap=True)
    (i, j), p = grid.at, grid.dims[0]
    rec.exchange("skew_a", grid.rank((i, j - i)), grid.rank((i, j + i)))
    rec.exchange("skew_b", grid.rank((i - j, j)), grid.rank((i + j, j)))
    for _ in range(p - 1):
        rec.exchange("a", grid.step(1, -1), grid.step(1, 1))
        rec.exchange("b", grid.step(0, -1), grid.step(0, 1))


def half_ring() -> Program:
    """All pairs once: partners at distance 1 to n/2 on the ring."""
    return messages(
        lambda r, n: [(r + s) % n for s in range(1, n // 2 + 1)],
        lambda r, n: [(r - s) % n for s in range(1, n // 2 + 1)],
    )


def bitonic() -> Program:
    """Bitonic sorting: for every i the partners across bits i, i - 1, ..., 0."""
    return both(
        lambda r, n: [r ^ 1 << j for i in range(n.bit_length() - 1) for j in range(i, -1, -1)]
    )


def scan() -> Program:
    """A prefix sum: to r + 2^s, from r - 2^s."""
    return messages(
        lambda r, n: [r + (1 << s) for s in range(8) if r + (1 << s) < n],
        lambda r, n: [r - (1 << s) for s in range(8) if r - (1 << s) >= 0],
    )


def quarter_rings(parts: int = 4) -> Program:
    """A ring inside each quarter of the ranks, without communicators."""

    def ring(step: int) -> Partners:
        return lambda r, n: [r // (n // parts) * (n // parts) + (r + step) % (n // parts)]

    return messages(ring(1), ring(-1))


def hexagonal() -> Program:
    """Six neighbours on a bordered 2-D grid."""
    steps = ((0, 1), (0, -1), (1, 0), (-1, 0), (1, -1), (-1, 1))
    return both(lambda r, n: Grid(dims_balanced(n, 2), r).beside(*steps))


def wide_halo() -> Program:
    """Neighbours at distances one and two along both dimensions of a torus of squares."""
    steps = [step for s in (1, -1, 2, -2) for step in ((s, 0), (0, s))]
    return both(lambda r, n: Grid((round(n**0.5),) * 2, r, wrap=True).beside(*steps))


@program
def row_gather(rec: Recorder) -> None:
    """Ranks send to the first of their row, these to rank 0; the last of a column sends back."""
    grid = rec.grid(2)
    (x, y), (px, py) = grid.at, grid.dims
    for _ in range(2):
        if y:
            rec("Send", "row", x * py, 80)
        else:
            for k in range(1, py):
                rec("Recv", "row", x * py + k, 80)
            if x:
                rec("Send", "first", 0, 160)
            else:
                for k in range(1, px):
                    rec("Recv", "first", k * py, 160)
        if x == px - 1:
            for k in range(px - 1):
                rec("Send", "back", k * py + y, 40)
        else:
            rec("Recv", "back", (px - 1) * py + y, 40)


@program
def row_exchange(rec: Recorder) -> None:
    """All to all by hand in rows, recursive doubling in columns of powers of two."""
    k = rec.n.bit_length() - 1
    px, py = 1 << k - k // 2, 1 << k // 2
    x, y = divmod(rec.rank, py)
    for _ in range(2):
        for s in range(1, py):
            rec.exchange("row", x * py + (y + s) % py, x * py + (y - s) % py)
        for s in range(px.bit_length() - 1):
            rec.exchange("col", (x ^ 1 << s) * py + y, nbytes=40)


@program
def io_server(rec: Recorder, last: bool = True) -> None:
    """All ranks but one halve a square grid; the other collects from all of them."""
    p = round((rec.n - 1) ** 0.5)
    server, first = (rec.n - 1, 0) if last else (0, 1)
    for _ in range(3):
        if rec.rank == server:
            for q in range(rec.n):
                if q != server:
                    rec("Recv", "io", q, 800)
        else:
            rec.halo((first + q for q in Grid((p, p), rec.rank - first).beside(*ROWS_FIRST)), "h")
            rec("Waitall", nbytes=4)
            rec("Send", "io", server, 800)


@program
def idle_ranks(rec: Recorder, power: bool = False) -> None:
    """Only the ranks of the largest square (or power of two) work; the others wait."""
    p = int(rec.n**0.5 + 1e-9)
    low = 1 << rec.n.bit_length() - 1
    for _ in range(3):
        if power and rec.rank < low:
            for s in range(low.bit_length() - 1):
                rec.exchange("Sendrecv", rec.rank ^ 1 << s)
        if not power and rec.rank < p * p:
            rec.halo(Grid((p, p), rec.rank).beside(*ROWS_FIRST), "h")
            rec("Waitall", nbytes=4)
    rec("Barrier")


@program
def block_cyclic(rec: Recorder, panels: int = 131) -> None:
    """Panel k is sent by the ranks of column k mod p along their rows, on squares."""
    p = round(rec.n**0.5)
    i, j = divmod(rec.rank, p)
    for k in range(panels):
        owner = k % p
        if j != owner:
            rec("Recv", peer=i * p + owner, nbytes=80)
            continue
        for c in range(p):
            if c != j:
                rec("Send", peer=i * p + c, nbytes=80)


@program
def row_trees(rec: Recorder) -> None:
    """Binomial broadcasts along the rows from the diagonal, by hand, on squares."""
    p = round(rec.n**0.5)
    i, j = divmod(rec.rank, p)
    for _ in range(2):
        binomial_tree(rec, (j - i) % p, p, lambda v: i * p + (v + i) % p)


@program
def leader_ring(rec: Recorder, k: int = 4) -> None:
    """The leaders of nodes of k ranks pass data around a ring."""
    nodes = rec.n // k
    for _ in range(4):
        if rec.rank % k == 0:
            rec("Send", peer=(rec.rank // k + 1) % nodes * k, nbytes=80)
            rec("Recv", peer=(rec.rank // k - 1) % nodes * k, nbytes=80)
        rec("Barrier")


@program
def null_borders(rec: Recorder) -> None:
    """A bordered 3-D halo through one Sendrecv; beyond the border is MPI_PROC_NULL."""
    grid = rec.grid(3)
    for _ in range(2):
        for d in range(3):
            for s in (1, -1):
                ends = (grid.step(d, s), grid.step(d, -s))
                rec.exchange("Sendrecv", *(-3 if end is None else end for end in ends))
