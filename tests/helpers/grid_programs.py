"""Event-list programs for grids, partners, guards and communicators, at any count.

Each is written as in corpus.py; sizes are constants where sizes are not the point.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from corpus import Program, Recorder, block

from p3s.model.grid.grids import dims_balanced

#: (rank, n) -> partners in the order of the calls, or the partners of a rank at a stage.
Partners = Callable[[int, int], Iterable[int]]


def messages(send: Partners, recv: Partners, turns: int = 3, words: int = 10) -> Program:
    """Send to all of ``send``, receive from all of ``recv``, through one call each."""

    def program(rec: Recorder) -> None:
        for _ in range(turns):
            for q in recv(rec.rank, rec.n):
                rec("Irecv", peer=q, nbytes=8 * words)
            for q in send(rec.rank, rec.n):
                rec("Isend", peer=q, nbytes=8 * words)
            rec("Allreduce", nbytes=8)

    return program


def both(partners: Partners, **kw: int) -> Program:
    """An exchange: who is sent to is received from."""
    return messages(partners, partners, **kw)


def _grid(rank: int, dims: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(x) for x in np.unravel_index(rank, dims))


def _rank(coords: Iterable[int], dims: tuple[int, ...]) -> int:
    return int(np.ravel_multi_index(tuple(coords), dims))


def _halo(
    dims_of: Callable[[int], tuple[int, ...]],
    layout: str = "row",
    wrap: bool = False,
    sites: bool = True,
) -> Program:
    """A halo on extents given as a function of n, in row- or column-major rank order."""

    def program(rec: Recorder) -> None:
        dims = dims_of(rec.n)
        seen = dims if layout == "row" else dims[::-1]
        c = _grid(rec.rank, seen)
        c = c if layout == "row" else c[::-1]
        for _ in range(3):
            for op, sign in (("Irecv", 1), ("Isend", -1)):
                for d in range(len(dims)):
                    for s in (-sign, sign):
                        to = list(c)
                        to[d] += s
                        if wrap:
                            to[d] %= dims[d]
                        if 0 <= to[d] < dims[d] and to[d] != c[d]:
                            way = to if layout == "row" else to[::-1]
                            rec(
                                op,
                                site=f"{op}{d}{s * sign}" if sites else None,
                                peer=_rank(way, seen),
                                nbytes=8 * (d + 2),
                            )
            rec("Allreduce", nbytes=8)

    return program


def one_call(dims: int, wrap: bool = False) -> Program:
    """A halo on MPI_Dims_create's extents, the first fastest, all neighbours from one call."""
    return _halo(lambda n: dims_balanced(n, dims), "column", wrap, sites=False)


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
    return _halo(lambda n: dims_balanced(n, 2), layout="column")


def column_major3() -> Program:
    """A periodic 3-D halo on powers of two, the first coordinate runs fastest and doubles first."""

    def dims(n: int) -> tuple[int, ...]:
        k = n.bit_length() - 1
        return tuple(1 << ((k + 2 - d) // 3) for d in range(3))

    return _halo(dims, layout="column", wrap=True)


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


def recursive_bisection(dims: int = 2, tags: bool = True) -> Program:
    """A bordered halo where rank bits are dealt to the dimensions in turn, the highest first."""

    def place(rank: int, k: int) -> list[int]:
        c = [0] * dims
        for b in range(k):
            c[b % dims] = 2 * c[b % dims] + (rank >> (k - 1 - b) & 1)
        return c

    def program(rec: Recorder) -> None:
        k = rec.n.bit_length() - 1
        where = {tuple(place(r, k)): r for r in range(rec.n)}
        me = place(rec.rank, k)
        for _ in range(4):
            for op, sign in (("Irecv", 1), ("Isend", -1)):
                for d in range(dims):
                    for s in (-sign, sign):
                        to = list(me)
                        to[d] += s
                        if tuple(to) in where:
                            rec(
                                op,
                                peer=where[tuple(to)],
                                nbytes=80,
                                tag=2 * d + (s * sign > 0) if tags else 0,
                            )
            rec("Barrier")

    return program


def reordered_cart(order: str = "reverse") -> Program:
    """A halo on a Cartesian communicator whose ranks are not those of the world."""

    def program(rec: Recorder) -> None:
        dims = dims_balanced(rec.n, 2)
        if order == "reverse":
            members = tuple(range(rec.n))[::-1]
        else:  # dealt out column by column
            members = tuple(int(r) for r in np.arange(rec.n).reshape(dims[::-1]).T.reshape(-1))
        grid = rec.comm(members, 0, dims, (False, False))
        rec("Cart_create")
        c = _grid(members.index(rec.rank), dims)
        for _ in range(3):
            for op in ("Irecv", "Isend"):
                for d in range(2):
                    for s in (-1, 1):
                        to = list(c)
                        to[d] += s
                        if 0 <= to[d] < dims[d]:
                            rec(
                                op,
                                peer=members[_rank(to, dims)],
                                nbytes=80,
                                comm=grid,
                                tag=2 * d + (s > 0) if op == "Isend" else 2 * d + (s < 0),
                            )
            rec("Allreduce", nbytes=8, comm=grid)

    return program


def halving_doubling(words: int = 4096, rounds: int = 2) -> Program:
    """Reduce-scatter by halving, allgather by doubling; others hand in to a rank below first."""

    def program(rec: Recorder) -> None:
        low = 1 << (rec.n.bit_length() - 1)
        for _ in range(rounds):
            if rec.rank >= low:
                rec("Send", site="in", peer=rec.rank - low, nbytes=8 * words)
                rec("Recv", site="out", peer=rec.rank - low, nbytes=8 * words)
            else:
                if rec.rank + low < rec.n:
                    rec("Recv", site="in", peer=rec.rank + low, nbytes=8 * words)
                step, part = low // 2, words // 2
                while step:
                    rec("Sendrecv", site="half", peer=rec.rank ^ step, nbytes=8 * part)
                    rec("Sendrecv_recv", site="half", peer=rec.rank ^ step, nbytes=8 * part)
                    step, part = step // 2, part // 2
                step, part = 1, max(words // low, 1)
                while step < low:
                    rec("Sendrecv", site="double", peer=rec.rank ^ step, nbytes=8 * part)
                    rec("Sendrecv_recv", site="double", peer=rec.rank ^ step, nbytes=8 * part)
                    step, part = step * 2, part * 2
                if rec.rank + low < rec.n:
                    rec("Send", site="out", peer=rec.rank + low, nbytes=8 * words)

    return program


def pair_folding(words: int = 32, rounds: int = 3) -> Program:
    """Recursive doubling where the first ranks pair up until a power of two is left."""

    def program(rec: Recorder) -> None:
        low = 1 << (rec.n.bit_length() - 1)
        rest, rank = rec.n - low, rec.rank
        for _ in range(rounds):
            new = (
                -1
                if rank < 2 * rest and rank % 2 == 0
                else rank // 2
                if rank < 2 * rest
                else rank - rest
            )
            if rank < 2 * rest:
                if rank % 2 == 0:
                    rec("Send", site="in", peer=rank + 1, nbytes=8 * words)
                else:
                    rec("Recv", site="in", peer=rank - 1, nbytes=8 * words)
            if new >= 0:
                mask = 1
                while mask < low:
                    to = new ^ mask
                    q = 2 * to + 1 if to < rest else to + rest
                    rec("Sendrecv", peer=q, nbytes=8 * words)
                    rec("Sendrecv_recv", site="Sendrecv", peer=q, nbytes=8 * words)
                    mask *= 2
            if rank < 2 * rest:
                if rank % 2:
                    rec("Send", site="out", peer=rank - 1, nbytes=8 * words)
                else:
                    rec("Recv", site="out", peer=rank + 1, nbytes=8 * words)

    return program


def binomial(root: Callable[[int], int], up: bool = False, rounds: int = 3) -> Program:
    """A broadcast (or, up, a reduction) along a binomial tree from any root."""

    def program(rec: Recorder) -> None:
        n, top = rec.n, root(rec.n)
        v = (rec.rank - top) % n
        for _ in range(rounds):
            mask = 1
            while mask < n and not v & mask:
                if up and v + mask < n:
                    rec("Recv", peer=(v + mask + top) % n, nbytes=80)
                mask *= 2
            if v:
                rec("Send" if up else "Recv", peer=(v - mask + top) % n, nbytes=80)
            if not up:
                mask //= 2
                while mask:
                    if v + mask < n:
                        rec("Send", peer=(v + mask + top) % n, nbytes=80)
                    mask //= 2

    return program


def doubling_broadcast(rounds: int = 3) -> Program:
    """A broadcast in which all ranks that have the data hand it 2^s ranks on."""

    def program(rec: Recorder) -> None:
        for _ in range(rounds):
            step = 1
            while step < rec.n:
                if rec.rank < step:
                    if rec.rank + step < rec.n:
                        rec("Send", peer=rec.rank + step, nbytes=80)
                elif rec.rank < 2 * step:
                    rec("Recv", peer=rec.rank - step, nbytes=80)
                step *= 2

    return program


def heap_tree(arity: int = 2, rounds: int = 3) -> Program:
    """A reduction along a tree in which rank r has the children k r + 1, ..., k r + k."""

    def program(rec: Recorder) -> None:
        for _ in range(rounds):
            for q in range(arity * rec.rank + 1, arity * rec.rank + arity + 1):
                if q < rec.n:
                    rec("Recv", peer=q, nbytes=80)
            if rec.rank:
                rec("Send", peer=(rec.rank - 1) // arity, nbytes=80)

    return program


def row_ring() -> Program:
    """A ring in the row communicators and a broadcast along columns, made by MPI_Comm_split."""

    def program(rec: Recorder) -> None:
        px, py = dims_balanced(rec.n, 2)
        x, y = divmod(rec.rank, py)
        row, col = rec.comm(tuple(range(x * py, x * py + py))), rec.comm(tuple(range(y, rec.n, py)))
        rec("Comm_split", site="a")
        rec("Comm_split", site="b")
        for _ in range(4):
            rec("Sendrecv", peer=x * py + (y + 1) % py, nbytes=80, comm=row)
            rec("Sendrecv_recv", site="Sendrecv", peer=x * py + (y - 1) % py, nbytes=80, comm=row)
            rec("Bcast", comm=col, nbytes=800, root=y)

    return program


def node_ring(k: int = 4) -> Program:
    """A 2-D halo beside a ring inside each node of k ranks and a reduction over node leaders."""

    def program(rec: Recorder) -> None:
        rank, n = rec.rank, rec.n
        px, py = dims_balanced(n, 2)
        x, y = divmod(rank, py)
        first = rank // k * k
        node = rec.comm(tuple(range(first, min(first + k, n))))
        leaders = rec.comm(tuple(range(0, n, k)))
        size = min(first + k, n) - first
        rec("Comm_split", site="node")
        rec("Comm_split", site="leaders")
        for _ in range(3):
            for op in ("Irecv", "Isend"):
                for dx, dy in ((-1, 0), (1, 0), (0, -1), (0, 1)):
                    if 0 <= x + dx < px and 0 <= y + dy < py:
                        rec(op, site=f"{op}h", peer=(x + dx) * py + y + dy, nbytes=80)
            rec(
                "Sendrecv",
                site="ring",
                peer=first + (rank - first + 1) % size,
                nbytes=40,
                comm=node,
            )
            rec(
                "Sendrecv_recv",
                site="ring",
                peer=first + (rank - first - 1) % size,
                nbytes=40,
                comm=node,
            )
            rec("Reduce", site="local", comm=node, root=first, nbytes=64)
            if rank == first:
                rec("Allreduce", site="top", comm=leaders, nbytes=64)
            rec("Bcast", site="down", comm=node, root=first, nbytes=64)

    return program


def node_gather(k: int = 3) -> Program:
    """Ranks send to the leader of their node of k ranks, leaders on to rank 0, by hand."""

    def program(rec: Recorder) -> None:
        rank, n = rec.rank, rec.n
        first = rank // k * k
        for _ in range(3):
            if rank != first:
                rec("Send", site="up", peer=first, nbytes=80)
            else:
                for q in range(first + 1, min(first + k, n)):
                    rec("Recv", site="up", peer=q, nbytes=80)
                if rank:
                    rec("Send", site="top", peer=0, nbytes=240)
                else:
                    for q in range(k, n, k):
                        rec("Recv", site="top", peer=q, nbytes=240)

    return program


def master_worker(tasks: int = 50) -> Program:
    """Rank 0 hands task t to worker 1 + t mod (n - 1) and collects the answers."""

    def program(rec: Recorder) -> None:
        if rec.rank == 0:
            for t in range(tasks):
                rec("Send", peer=1 + t % (rec.n - 1), nbytes=80)
            for t in range(tasks):
                rec("Recv", peer=1 + t % (rec.n - 1), nbytes=16)
        else:
            for _ in range(rec.rank - 1, tasks, rec.n - 1):
                rec("Recv", site="task", peer=0, nbytes=80)
                rec("Send", site="answer", peer=0, nbytes=16)

    return program


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


def _axes(rank: int, n: int, dims: int = 2) -> tuple[tuple[int, ...], tuple[int, ...]]:
    d = dims_balanced(n, dims)
    return _grid(rank, d), d


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


def stage_sizes(kind: str) -> Program:
    """All others in turn, in each turn a size of its own: the order of partners matters."""

    def program(rec: Recorder) -> None:
        r, n = rec.rank, rec.n
        for _ in range(2):
            for s in range(1, n):
                to = r ^ s if kind == "xor" else (r + s) % n
                frm = r ^ s if kind == "xor" else (r - s) % n
                rec("Sendrecv", peer=to, nbytes=8 * s)
                rec("Sendrecv_recv", site="Sendrecv", peer=frm, nbytes=8 * s)

    return program


def multigrid(dims: int = 1, wrap: bool = True, cycles: int = 3, last: bool = False) -> Program:
    """Levels with every 2^l-th rank of each dimension (last: the last of 2^l go on working)."""

    def program(rec: Recorder) -> None:
        p = dims_balanced(rec.n, dims)
        c = [e - 1 - x if last else x for x, e in zip(_grid(rec.rank, p), p, strict=True)]
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
                                rec(op, site=f"{op}{d}{s}", peer=_rank(other, p), nbytes=80)
                rec("Waitall", nbytes=4)
                level += 1
            rec("Allreduce", nbytes=8)

    return program


def axis_sweeps() -> Program:
    """Pipelines forth and back along each dimension of a 3-D grid."""

    def program(rec: Recorder) -> None:
        c, p = _axes(rec.rank, rec.n, 3)
        for _ in range(2):
            for d in range(3):
                for s in (1, -1):
                    for op, t in (("Recv", -s), ("Send", s)):
                        to = list(c)
                        to[d] += t
                        if 0 <= to[d] < p[d]:
                            rec(op, site=f"{op}{d}", peer=_rank(to, p), nbytes=80)

    return program


def octants(blocks: int = 3) -> Program:
    """Sweeps from all four corners of a 2-D grid through the same four calls."""

    def program(rec: Recorder) -> None:
        c, p = _axes(rec.rank, rec.n)
        for _ in range(2):
            for sx in (1, -1):
                for sy in (1, -1):
                    for _ in range(blocks):
                        for op, t in (("Recv", -1), ("Send", 1)):
                            for d, s in ((0, sx), (1, sy)):
                                to = list(c)
                                to[d] += t * s
                                if 0 <= to[d] < p[d]:
                                    rec(op, site=f"{op}{d}", peer=_rank(to, p), nbytes=80)

    return program


def red_black(dims: int = 2) -> Program:
    """Red ranks (even sum of coordinates) send first, then the black ones answer."""

    def program(rec: Recorder) -> None:
        c, p = _axes(rec.rank, rec.n, dims)
        near = []
        for d in range(dims):
            for s in (-1, 1):
                if 0 <= c[d] + s < p[d]:
                    to = list(c)
                    to[d] += s
                    near.append(_rank(to, p))
        red = sum(c) % 2 == 0
        for _ in range(3):
            for q in near:
                rec("Send" if red else "Recv", site="red", peer=q, nbytes=80)
            for q in near:
                rec("Recv" if red else "Send", site="black", peer=q, nbytes=40)

    return program


def odd_even(rounds: int = 3) -> Program:
    """Odd-even transposition along the ranks."""

    def program(rec: Recorder) -> None:
        for _ in range(rounds):
            for phase in (0, 1):
                q = rec.rank + 1 if rec.rank % 2 == phase else rec.rank - 1
                if 0 <= q < rec.n:
                    rec("Sendrecv", site=f"s{phase}", peer=q, nbytes=80)
                    rec("Sendrecv_recv", site=f"s{phase}", peer=q, nbytes=80)

    return program


def lower_first() -> Program:
    """Neighbours on a 2-D grid; the lower rank of a pair sends, the upper answers."""

    def program(rec: Recorder) -> None:
        c, p = _axes(rec.rank, rec.n)
        for _ in range(3):
            for dx, dy in ((0, 1), (1, 0), (0, -1), (-1, 0)):
                x, y = c[0] + dx, c[1] + dy
                if 0 <= x < p[0] and 0 <= y < p[1]:
                    q = x * p[1] + y
                    low = rec.rank < q
                    rec("Send" if low else "Recv", site="first", peer=q, nbytes=80)
                    rec("Recv" if low else "Send", site="second", peer=q, nbytes=40)

    return program


def interior_and_border() -> Program:
    """Ranks inside a 2-D grid write to a log rank, those at the border to another."""

    def program(rec: Recorder) -> None:
        c, p = _axes(rec.rank, rec.n)
        border = any(x in (0, e - 1) for x, e in zip(c, p, strict=True))
        for _ in range(2):
            for op in ("Irecv", "Isend"):
                for dx, dy in ((-1, 0), (1, 0), (0, -1), (0, 1)):
                    x, y = c[0] + dx, c[1] + dy
                    if 0 <= x < p[0] and 0 <= y < p[1]:
                        rec(op, site=f"{op}h", peer=x * p[1] + y, nbytes=80)
            if border:
                rec(
                    "Allreduce",
                    site="border",
                    nbytes=8,
                    comm=rec.comm(
                        tuple(
                            r
                            for r in range(rec.n)
                            if any(x in (0, e - 1) for x, e in zip(_grid(r, p), p, strict=True))
                        )
                    ),
                )
            rec("Barrier", site="all")

    return program


def split_by(colour: Callable[[int, int], int], key: int = 1) -> Program:
    """Collectives and a root in the communicators of MPI_Comm_split (negative: left out)."""

    def program(rec: Recorder) -> None:
        mine = colour(rec.rank, rec.n)
        members = tuple(r for r in range(rec.n) if colour(r, rec.n) == mine)[::key]
        rec("Comm_split")
        rec("Allreduce", site="world", nbytes=16)
        if mine >= 0:
            group = rec.comm(members)
            for _ in range(3):
                rec("Allreduce", site="part", comm=group, nbytes=8)
                rec("Bcast", site="part", comm=group, nbytes=80, root=members[0])

    return program


def split_on_grid(colour: Callable[[int, int], int]) -> Program:
    """As split_by, in a program with a 2-D halo."""

    inner, halo = split_by(colour), _halo(lambda n: dims_balanced(n, 2))

    def program(rec: Recorder) -> None:
        halo(rec)
        inner(rec)

    return program


def planes() -> Program:
    """Collectives in planes and lines of a 3-D grid."""

    def program(rec: Recorder) -> None:
        c, p = _axes(rec.rank, rec.n, 3)
        ranks = [(r, _grid(r, p)) for r in range(rec.n)]
        for d in range(3):
            rec(
                "Allreduce",
                site=f"plane{d}",
                nbytes=8,
                comm=rec.comm(tuple(r for r, x in ranks if x[d] == c[d])),
            )
            rec(
                "Allgather",
                site=f"line{d}",
                nbytes=8,
                comm=rec.comm(
                    tuple(r for r, x in ranks if all(x[e] == c[e] for e in range(3) if e != d))
                ),
            )

    return program


def roots() -> Program:
    """Broadcasts with fixed, last, row and diagonal roots on a 2-D grid of squares."""

    def program(rec: Recorder) -> None:
        p = round(rec.n**0.5)
        i, j = divmod(rec.rank, p)
        row, col = rec.comm(tuple(range(i * p, i * p + p))), rec.comm(tuple(range(j, rec.n, p)))
        for _ in range(2):
            rec("Bcast", site="zero", root=0, nbytes=8)
            rec("Bcast", site="two", root=2, nbytes=8)
            rec("Bcast", site="last", root=rec.n - 1, nbytes=8)
            rec("Bcast", site="row", root=i * p, comm=row, nbytes=8)
            rec("Bcast", site="row_last", root=i * p + p - 1, comm=row, nbytes=8)
            rec("Bcast", site="row_diagonal", root=i * p + i, comm=row, nbytes=8)
            rec("Bcast", site="col_diagonal", root=j * p + j, comm=col, nbytes=8)

    return program


def gather_on_diagonal() -> Program:
    """Ranks of a row send to the diagonal of the row, diagonals to all of their column."""

    def program(rec: Recorder) -> None:
        p = round(rec.n**0.5)
        i, j = divmod(rec.rank, p)
        for _ in range(2):
            if i != j:
                rec("Send", site="to", peer=i * p + i, nbytes=80)
                rec("Recv", site="from", peer=j * p + j, nbytes=40)
            else:
                for k in range(p):
                    if k != i:
                        rec("Recv", site="to", peer=i * p + k, nbytes=80)
                for k in range(p):
                    if k != i:
                        rec("Send", site="from", peer=k * p + j, nbytes=40)

    return program


def ring_on_grid() -> Program:
    """A ring over all ranks and an exchange with the opposite rank beside a 2-D halo."""

    halo = _halo(lambda n: dims_balanced(n, 2))

    def program(rec: Recorder) -> None:
        halo(rec)
        r, n = rec.rank, rec.n
        for _ in range(n - 1):
            rec("Sendrecv", site="ring", peer=(r + 1) % n, nbytes=80)
            rec("Sendrecv_recv", site="ring", peer=(r - 1) % n, nbytes=80)
        rec("Sendrecv", site="mirror", peer=n - 1 - r, nbytes=80)
        rec("Sendrecv_recv", site="mirror", peer=n - 1 - r, nbytes=80)

    return program


def io_ranks(k: int = 3) -> Program:
    """The first k ranks write; rank r sends to r mod k."""

    def program(rec: Recorder) -> None:
        for _ in range(2):
            if rec.rank >= k:
                rec("Send", peer=rec.rank % k, nbytes=80)
            else:
                for q in range(rec.rank + k, rec.n, k):
                    rec("Recv", peer=q, nbytes=80)

    return program


def halves() -> Program:
    """The lower half sends to the upper, an odd rank stays out."""

    def program(rec: Recorder) -> None:
        half = rec.n // 2
        for _ in range(3):
            if rec.rank < half:
                rec("Send", site="ping", peer=rec.rank + half, nbytes=80)
                rec("Recv", site="pong", peer=rec.rank + half, nbytes=80)
            elif rec.rank < 2 * half:
                rec("Recv", site="ping", peer=rec.rank - half, nbytes=80)
                rec("Send", site="pong", peer=rec.rank - half, nbytes=80)

    return program


def two_grids() -> Program:
    """A 3-D halo and transposes in rows and columns of a 2-D grid of the same ranks."""

    halo = _halo(lambda n: dims_balanced(n, 3))

    def program(rec: Recorder) -> None:
        halo(rec)
        px, py = dims_balanced(rec.n, 2)
        x, y = divmod(rec.rank, py)
        row = rec.comm(tuple(range(x * py, x * py + py)))
        col = rec.comm(tuple(range(y, rec.n, py)))
        for _ in range(2):
            rec("Alltoall", site="row", comm=row, nbytes=80)
            rec("Alltoall", site="col", comm=col, nbytes=80)

    return program


def uneven_rows(size: int = 301) -> Program:
    """A bordered 2-D halo whose blocks are uneven, on squares, one neighbour loop."""

    def program(rec: Recorder) -> None:
        p = round(rec.n**0.5)
        i, j = divmod(rec.rank, p)
        for _ in range(3):
            for op in ("Irecv", "Isend"):
                for di, dj in ((-1, 0), (1, 0), (0, -1), (0, 1)):
                    if 0 <= i + di < p and 0 <= j + dj < p:
                        rec(
                            op,
                            peer=(i + di) * p + j + dj,
                            nbytes=8 * block(size, p, j if di else i),
                        )

    return program


def cannon() -> Program:
    """Cannon's products on a square torus: skew by row and column number, then shifts by one."""

    def program(rec: Recorder) -> None:
        p = round(rec.n**0.5)
        i, j = divmod(rec.rank, p)
        for site, to, frm in (
            ("skew_a", (i, j - i), (i, j + i)),
            ("skew_b", (i - j, j), (i + j, j)),
        ):
            rec("Sendrecv", site=site, peer=to[0] % p * p + to[1] % p, nbytes=80)
            rec("Sendrecv_recv", site=site, peer=frm[0] % p * p + frm[1] % p, nbytes=80)
        for _ in range(p - 1):
            for site, di, dj in (("a", 0, 1), ("b", 1, 0)):
                rec("Sendrecv", site=site, peer=(i - di) % p * p + (j - dj) % p, nbytes=80)
                rec("Sendrecv_recv", site=site, peer=(i + di) % p * p + (j + dj) % p, nbytes=80)

    return program


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
        def partners(r: int, n: int) -> list[int]:
            size = n // parts
            return [r // size * size + (r % size + step) % size]

        return partners

    return messages(ring(1), ring(-1))


def hexagonal() -> Program:
    """Six neighbours on a bordered 2-D grid."""

    def partners(r: int, n: int) -> list[int]:
        c, p = _axes(r, n)
        return [
            (c[0] + a) * p[1] + c[1] + b
            for a, b in ((0, 1), (0, -1), (1, 0), (-1, 0), (1, -1), (-1, 1))
            if 0 <= c[0] + a < p[0] and 0 <= c[1] + b < p[1]
        ]

    return both(partners)


def wide_halo() -> Program:
    """Neighbours at distances one and two along both dimensions of a torus of squares."""

    def partners(r: int, n: int) -> list[int]:
        p = round(n**0.5)
        i, j = divmod(r, p)
        return [q for s in (1, -1, 2, -2) for q in ((i + s) % p * p + j, i * p + (j + s) % p)]

    return both(partners)


def row_gather() -> Program:
    """Ranks send to the first of their row, these to rank 0; the last of a column sends back."""

    def program(rec: Recorder) -> None:
        (x, y), (px, py) = _axes(rec.rank, rec.n)
        for _ in range(2):
            if y:
                rec("Send", site="row", peer=x * py, nbytes=80)
            else:
                for k in range(1, py):
                    rec("Recv", site="row", peer=x * py + k, nbytes=80)
                if x:
                    rec("Send", site="first", peer=0, nbytes=160)
                else:
                    for k in range(1, px):
                        rec("Recv", site="first", peer=k * py, nbytes=160)
            if x == px - 1:
                for k in range(px - 1):
                    rec("Send", site="back", peer=k * py + y, nbytes=40)
            else:
                rec("Recv", site="back", peer=(px - 1) * py + y, nbytes=40)

    return program


def row_exchange() -> Program:
    """All to all by hand in rows, recursive doubling in columns of powers of two."""

    def program(rec: Recorder) -> None:
        k = rec.n.bit_length() - 1
        px, py = 1 << k - k // 2, 1 << k // 2
        x, y = divmod(rec.rank, py)
        for _ in range(2):
            for s in range(1, py):
                rec("Sendrecv", site="row", peer=x * py + (y + s) % py, nbytes=80)
                rec("Sendrecv_recv", site="row", peer=x * py + (y - s) % py, nbytes=80)
            mask = 1
            while mask < px:
                rec("Sendrecv", site="col", peer=(x ^ mask) * py + y, nbytes=40)
                rec("Sendrecv_recv", site="col", peer=(x ^ mask) * py + y, nbytes=40)
                mask *= 2

    return program


def io_server(last: bool = True) -> Program:
    """All ranks but one halve a square grid; the other collects from all of them."""

    def program(rec: Recorder) -> None:
        p = round((rec.n - 1) ** 0.5)
        server, first = (rec.n - 1, 0) if last else (0, 1)
        if rec.rank == server:
            for _ in range(3):
                for q in range(rec.n):
                    if q != server:
                        rec("Recv", site="io", peer=q, nbytes=800)
        else:
            i, j = divmod(rec.rank - first, p)
            for _ in range(3):
                for op in ("Irecv", "Isend"):
                    for a, b in ((0, 1), (0, -1), (1, 0), (-1, 0)):
                        if 0 <= i + a < p and 0 <= j + b < p:
                            rec(op, site=f"{op}h", peer=first + (i + a) * p + j + b, nbytes=80)
                rec("Waitall", nbytes=4)
                rec("Send", site="io", peer=server, nbytes=800)

    return program


def idle_ranks(power: bool = False) -> Program:
    """Only the ranks of the largest square (or power of two) work; the others wait."""

    def program(rec: Recorder) -> None:
        p = int(rec.n**0.5 + 1e-9)
        low = 1 << rec.n.bit_length() - 1
        if power and rec.rank < low:
            for _ in range(3):
                for s in range(low.bit_length() - 1):
                    rec("Sendrecv", peer=rec.rank ^ 1 << s, nbytes=80)
                    rec("Sendrecv_recv", site="Sendrecv", peer=rec.rank ^ 1 << s, nbytes=80)
        if not power and rec.rank < p * p:
            i, j = divmod(rec.rank, p)
            for _ in range(3):
                for op in ("Irecv", "Isend"):
                    for a, b in ((0, 1), (0, -1), (1, 0), (-1, 0)):
                        if 0 <= i + a < p and 0 <= j + b < p:
                            rec(op, site=f"{op}h", peer=(i + a) * p + j + b, nbytes=80)
                rec("Waitall", nbytes=4)
        rec("Barrier")

    return program


def block_cyclic(panels: int = 131) -> Program:
    """Panel k is sent by the ranks of column k mod p along their rows, on squares."""

    def program(rec: Recorder) -> None:
        p = round(rec.n**0.5)
        i, j = divmod(rec.rank, p)
        for k in range(panels):
            owner = k % p
            if j == owner:
                for c in range(p):
                    if c != j:
                        rec("Send", peer=i * p + c, nbytes=80)
            else:
                rec("Recv", peer=i * p + owner, nbytes=80)

    return program


def row_trees() -> Program:
    """Binomial broadcasts along the rows from the diagonal, by hand, on squares."""

    def program(rec: Recorder) -> None:
        p = round(rec.n**0.5)
        i, j = divmod(rec.rank, p)
        v = (j - i) % p
        for _ in range(2):
            mask = 1
            while mask < p and not v & mask:
                mask *= 2
            if v:
                rec("Recv", peer=i * p + (v - mask + i) % p, nbytes=80)
            mask //= 2
            while mask:
                if v + mask < p:
                    rec("Send", peer=i * p + (v + mask + i) % p, nbytes=80)
                mask //= 2

    return program


def leader_ring(k: int = 4) -> Program:
    """The leaders of nodes of k ranks pass data around a ring."""

    def program(rec: Recorder) -> None:
        nodes = rec.n // k
        for _ in range(4):
            if rec.rank % k == 0:
                rec("Send", peer=(rec.rank // k + 1) % nodes * k, nbytes=80)
                rec("Recv", peer=(rec.rank // k - 1) % nodes * k, nbytes=80)
            rec("Barrier")

    return program


def null_borders() -> Program:
    """A bordered 3-D halo through one Sendrecv; beyond the border is MPI_PROC_NULL."""

    def program(rec: Recorder) -> None:
        c, p = _axes(rec.rank, rec.n, 3)
        for _ in range(2):
            for d in range(3):
                for s in (1, -1):
                    way = []
                    for t in (s, -s):
                        to = list(c)
                        to[d] += t
                        way.append(_rank(to, p) if 0 <= to[d] < p[d] else -3)
                    rec("Sendrecv", peer=way[0], nbytes=80)
                    rec("Sendrecv_recv", site="Sendrecv", peer=way[1], nbytes=80)

    return program
