"""The corpus by parts: name, program, counts to learn from, larger ones to check at."""

from __future__ import annotations

from corpus import drawn, nests
from corpus import grids as g
from corpus import neighbours as nb
from corpus import programs as p
from corpus import sizes as s
from corpus.language import Program

Case = tuple[str, Program, tuple[int, ...], tuple[int, ...]]

P2 = ((2, 4, 8, 16), (64, 128))
P4 = ((4, 8, 16), (32, 64, 128))
ANY = ((3, 4, 6, 8, 12, 16), (36, 49, 64, 100))
ANY_4 = ((4, 6, 8, 9, 16), (36, 49, 64, 100, 125))
SQ = ((4, 9, 16, 25), (36, 49, 64, 100))
G2 = ((4, 6, 8, 9, 12, 16), (36, 48, 64, 96, 100))
G3 = ((8, 12, 18, 27), (36, 48, 64, 96, 125))
PLANES = ((4, 6, 9, 12, 16), (36, 48, 64, 100))
B2, B3 = nb.balanced(2), nb.balanced(3)
TORUS = (1, 1, 1)

FIRST: list[Case] = [
    ("jacobi2d", p.jacobi2d(), (2, 4, 8, 16), (48, 60, 64, 128)),
    ("jacobi2d-uneven", p.jacobi2d(97, 61, 3), (2, 4, 6, 9, 12), (35, 64)),
    ("jacobi2d-plain-ranks", p.jacobi2d(cart=False), (2, 4, 8, 16), (48, 64)),
    ("ring", p.ring(), (2, 4, 8, 16), (37, 64)),
    ("halo3d", p.halo3d(), (8, 12, 18, 27), (36, 64, 125)),
    ("halo3d-one-tag", p.halo3d(tags=False), (8, 12, 18, 27), (64,)),
    ("cg", p.cg(), (2, 4, 8, 16), (32, 64, 128)),
    ("wavefront", p.wavefront(), (2, 4, 8, 16), (48, 64)),
    ("wavefront-mixed", p.wavefront(), (4, 6, 9, 16), (48, 64)),
    ("halo9", p.halo9(), (4, 9, 16), (25, 36, 64)),
    ("fft2d", p.fft2d(), (2, 4, 8, 16), (32, 64)),
    ("hypercube", p.hypercube(), (2, 4, 8, 16), (64, 128)),
    ("dissemination", p.dissemination(), (3, 4, 6, 8), (37, 64)),
    ("gather", p.gather_to_root(), (2, 4, 8, 16), (37, 64)),
    ("binomial", p.binomial_broadcast(), (2, 4, 6, 8, 16), (37, 64)),
    ("packed-halo", p.packed_halo(), (4, 6, 9, 16), (48, 64)),
    ("steps-per-rank", p.shares_of_steps(), (4, 6, 8, 12, 16), (48, 64)),
    ("every-tenth", p.every_tenth(), (2, 4, 8), (37, 64)),
]
#: Grids, partners, guards and communicators.
GRIDS: list[Case] = [
    ("fixed-plane", g.fixed_plane(), (8, 12, 18, 36), (48, 64, 96, 100)),
    ("fixed-middle", g.fixed_middle(), (12, 18, 27, 48), (36, 96, 108)),
    ("column-major", g.column_major(), *G2),
    ("column-major3", g.column_major3(), (4, 8, 16, 32, 64), (128, 256)),
    ("nested-divisors", g.nested_divisors(), (8, 12, 16, 27, 36), (64, 96, 125)),
    ("halo4d", g.halo4d(), (16, 24, 36, 81), (64, 96, 256)),
    ("recursive-bisection", g.recursive_bisection(), (4, 8, 16), (64, 128)),
    ("recursive-bisection-one-tag", g.recursive_bisection(tags=False), (4, 8, 16), (64, 128)),
    ("recursive-bisection-3d", g.recursive_bisection(3), (8, 16, 32, 64), (128, 256)),
    ("reordered-cart", g.reordered_cart(), *G2),
    ("reordered-cart-columns", g.reordered_cart("columns"), *G2),
    ("halving-doubling", g.halving_doubling(), *P2),
    ("halving-doubling-fold", g.halving_doubling(), (3, 4, 6, 8, 12, 16), (36, 64, 100)),
    ("pair-folding", g.pair_folding(), (3, 4, 6, 8, 12, 16), (36, 64, 100)),
    ("binomial-root-3", g.binomial(lambda n: 3), (4, 6, 8, 12, 16), (36, 64, 100)),
    ("binomial-last", g.binomial(lambda n: n - 1), *ANY),
    ("binomial-middle", g.binomial(lambda n: n // 2), *ANY),
    ("binomial-reduce", g.binomial(lambda n: 0, up=True), *ANY),
    ("binomial-reduce-2", g.binomial(lambda n: 2, up=True), *ANY),
    ("doubling-broadcast", g.doubling_broadcast(), *ANY),
    ("heap-tree", g.heap_tree(), *ANY),
    ("heap-tree-3", g.heap_tree(3), *ANY),
    ("row-ring", g.row_ring(), *G2),
    ("node-ring", g.node_ring(), (4, 8, 12, 16), (36, 48, 64, 96, 100)),
    ("node-gather", g.node_gather(), (6, 8, 12, 16), (36, 49, 64, 100)),
    ("master-worker", g.master_worker(), (2, 4, 6, 11), (26, 51)),
    ("transpose", g.transpose(), *SQ),
    ("transpose-2:1", g.transpose(True), (4, 8, 16), (32, 64, 128)),
    ("pairwise-xor", g.pairwise("xor"), *ANY),
    ("pairwise-xor-2", g.pairwise("xor"), *P2),
    ("pairwise-mod", g.pairwise("mod"), *ANY),
    ("pairwise-ranks", g.pairwise("ranks"), *ANY),
    ("stage-sizes-xor", g.stage_sizes("xor"), (4, 8, 16), (32, 64)),
    ("stage-sizes-mod", g.stage_sizes("mod"), (4, 6, 8, 16), (36, 49, 64)),
    ("multigrid", g.multigrid(), (4, 6, 8, 12, 16), (36, 48, 64, 100)),
    ("multigrid-bordered", g.multigrid(wrap=False), (4, 6, 8, 12, 16), (36, 48, 64, 100)),
    ("multigrid-2d", g.multigrid(2), (4, 16, 36), (64, 100)),
    ("multigrid-2d-bordered", g.multigrid(2, False), (4, 9, 16, 25), (36, 64, 100)),
    ("multigrid-last", g.multigrid(2, True, last=True), (4, 16, 36), (64, 100)),
    ("axis-sweeps", g.axis_sweeps(), *G3),
    ("octants", g.octants(), *SQ),
    ("red-black", g.red_black(), *G2),
    ("red-black-3d", g.red_black(3), *G3),
    ("odd-even", g.odd_even(), *ANY),
    ("lower-first", g.lower_first(), *G2),
    ("interior-border", g.interior_and_border(), (9, 12, 16, 20, 25), (36, 48, 64, 100)),
    ("split-modulo-3", g.split_by(lambda r, n: r % 3), *ANY),
    ("split-nodes-4", g.split_by(lambda r, n: r // 4), (4, 6, 8, 12, 16), (36, 49, 64, 100)),
    ("split-nodes-3", g.split_by(lambda r, n: r // 3), *ANY),
    ("split-thirds", g.split_by(lambda r, n: r // (n // 3)), *ANY),
    ("split-thirds-even", g.split_by(lambda r, n: 3 * r // n), *ANY),
    ("split-parity", g.split_by(lambda r, n: r % 2), *ANY),
    ("split-halves", g.split_by(lambda r, n: int(r < n // 2)), *ANY),
    ("split-halves-reverse", g.split_by(lambda r, n: int(r < n // 2), -1), *ANY),
    (
        "split-leaders",
        g.split_by(lambda r, n: 0 if r % 4 == 0 else -1),
        (4, 6, 8, 12, 16),
        (36, 49, 64, 100),
    ),
    ("split-nodes-4-on-grid", g.split_on_grid(lambda r, n: r // 4), (4, 8, 12, 16), (36, 48, 64)),
    ("split-modulo-4-on-grid", g.split_on_grid(lambda r, n: r % 4), (4, 8, 12, 16), (36, 48, 64)),
    ("split-parity-on-grid", g.split_on_grid(lambda r, n: r % 2), *G2),
    ("planes", g.planes(), *G3),
    ("roots", g.roots(), *SQ),
    ("gather-on-diagonal", g.gather_on_diagonal(), *SQ),
    ("ring-on-grid", g.ring_on_grid(), *G2),
    ("io-ranks", g.io_ranks(), (6, 8, 12, 16), (36, 49, 64)),
    ("halves", g.halves(), *ANY),
    ("halves-even", g.halves(), (4, 8, 16), (36, 64)),
    ("two-grids", g.two_grids(), (8, 12, 16, 18, 27), (36, 48, 64, 100)),
    ("uneven-rows", g.uneven_rows(), *SQ),
    ("cannon", g.cannon(), *SQ),
    ("half-ring", g.half_ring(), (4, 5, 6, 7, 8, 12, 16), (36, 49, 64)),
    ("bitonic", g.bitonic(), (4, 8, 16), (32, 64)),
    ("scan", g.scan(), *ANY),
    ("quarter-rings", g.quarter_rings(), (8, 12, 20), (36, 64, 100)),
    ("hexagonal", g.hexagonal(), *G2),
    ("wide-halo", g.wide_halo(), (9, 16, 25, 36), (49, 64, 100)),
    ("row-gather", g.row_gather(), *G2),
    ("row-exchange", g.row_exchange(), (4, 8, 16), (32, 64)),
    ("io-server-last", g.io_server(), (5, 10, 17, 26), (37, 65, 101)),
    ("io-server-first", g.io_server(False), (5, 10, 17, 26), (37, 65, 101)),
    ("idle-ranks", g.idle_ranks(), (4, 6, 9, 12, 16, 20), (36, 48, 70)),
    ("idle-ranks-power", g.idle_ranks(True), (4, 6, 8, 12, 16), (36, 64, 100)),
    ("block-cyclic", g.block_cyclic(), *SQ),
    ("row-trees", g.row_trees(), *SQ),
    ("leader-ring", g.leader_ring(), (8, 12, 20), (36, 64, 100)),
    ("null-borders", g.null_borders(), *G3),
]
SIZES: list[Case] = [
    ("multipartition", s.multipartition(), *SQ),
    ("multipartition-buffers", s.multipartition((24, 24, 24), 0, 10, 30, 5, buffers=True), *SQ),
    ("multipartition-extents", s.multipartition((30, 26, 33), 0, 5, 7, 3), *SQ),
    ("allgather-ring", s.allgather_ring(), *ANY_4),
    ("halving", s.halving(), *P4),
    ("summa", s.summa(), *SQ),
    ("cannon", s.cannon(), *SQ),
    ("vcycle", s.vcycle(), *PLANES),
    ("pencils", s.pencils(), *PLANES),
    ("fused", s.fused(), *ANY_4),
    ("chunks", s.chunks(), *ANY_4),
    ("rounded", s.rounded(), (2, 4, 8), (16, 32)),
    ("rounded-up-and-down", s.rounded(1012), (3, 4, 8, 9, 12), (16, 18, 24, 28)),
    ("panels", s.panels(), *ANY_4),
    ("trimmed-halo", s.trimmed_halo(), *PLANES),
    ("scattered", s.scattered(), *ANY_4),
    ("faces3d", s.faces3d(), (4, 8, 16, 32), (64, 128)),
]
#: Neighbourhoods from one call.
NEIGHBOURS: list[Case] = [
    ("star-3d", nb.stencil(B3, nb.star, sizes=(21, 21, 21)), (2, 4, 8, 12), (18, 27)),
    ("star-3d-last-first", nb.stencil(B3, nb.star, last_first=True), (4, 8, 12, 18), (27, 64)),
    (
        "star-3d-rows",
        nb.stencil(B3, nb.star, last_first=True, first_fastest=False),
        (4, 8, 12),
        (27, 36),
    ),
    ("star-3d-torus", nb.stencil(B3, nb.star, TORUS), (2, 4, 6, 8, 12, 16), (27, 36)),
    ("star-3d-one-periodic", nb.stencil(B3, nb.star, (0, 1, 0)), (8, 12, 18, 27), (36, 64)),
    ("star-4d", nb.stencil(nb.balanced(4), nb.star, (0, 0, 0, 0)), (8, 16, 24, 36), (54, 81)),
    ("star-2d-one-periodic", nb.stencil(B2, nb.star, (1, 0)), (4, 6, 9, 12), (16, 40)),
    ("box-3d", nb.stencil(B3), (8, 12, 18), (36, 64)),
    ("box-3d-small", nb.stencil(B3), (4, 8, 12), (27, 36)),
    ("box-3d-torus", nb.stencil(B3, periodic=TORUS), (8, 12, 18, 27), (36, 64)),
    ("box-3d-oneself", nb.stencil(B3, periodic=TORUS, oneself=True), (8, 12, 18, 27), (36, 64)),
    ("box-3d-one-periodic", nb.stencil(B3, periodic=(0, 0, 1)), (8, 12, 18, 27), (36, 64)),
    ("box-3d-dealt", nb.stencil(nb.doubled((0, 1, 2))), (8, 16, 32), (64, 128)),
    (
        "box-3d-dealt-rows",
        nb.stencil(nb.doubled((2, 0, 1)), first_fastest=False),
        (8, 16, 32),
        (64, 128),
    ),
    ("box-2d", nb.stencil(B2), (4, 6, 8, 12), (16, 40)),
    ("faces-edges", nb.stencil(B3, nb.faces_and_edges), (8, 12, 18, 27), (36, 64)),
    ("faces-edges-torus", nb.stencil(B3, nb.faces_and_edges, TORUS), (8, 12, 18, 27), (36, 64)),
]
#: The part of a program made up at random, and how many of each are frozen.
DRAWN = {"random": drawn.make, "domain": drawn.make_domain}
SEEDS = 24
#: Programs on grids that are quick to fit.
QUICK = set(
    """
    reordered-cart reordered-cart-columns pair-folding binomial-last row-ring transpose
    stage-sizes-mod roots planes split-modulo-3 split-nodes-4 split-thirds split-thirds-even
    split-halves split-halves-reverse split-leaders master-worker odd-even lower-first halves
    halves-even recursive-bisection cannon row-trees leader-ring quarter-rings block-cyclic
    heap-tree octants split-parity-on-grid
    """.split()
)


def listed() -> dict[str, list[Case]]:
    """Return the cases of all parts."""
    parts = {"corpus": FIRST, "grid": GRIDS, "size": SIZES, "neighbour": NEIGHBOURS}
    parts["nest"] = [
        (name, program, counts, (2 * counts[-1],))
        for name, (program, counts) in nests.PROGRAMS.items()
    ]
    for part, make in DRAWN.items():
        parts[part] = [(f"{seed:03d}", *make(seed)[:3]) for seed in range(SEEDS)]
    return parts
