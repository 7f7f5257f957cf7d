"""The programs of tests/programs/patterns/, and what the model says of each at larger counts."""

from __future__ import annotations

from patterns import NOTHING, PAIRS, Program

TABLE = (
    # process grids
    Program(
        "ratio.c",
        "168 84 4",
        (4, 6, 8, 12),
        (24, 26),
        open_at=(26,),
        why_not="at 26 MPI_Dims_create, which fits as well, has another grid",
    ),
    Program(
        "surface.c",
        "24 48 72 3",
        (4, 8, 12, 16),
        (24, 36),
        NOTHING,
        "balanced in two dimensions fits as well, and a third is cut at 24 first: ambiguous",
    ),
    Program("longest.c", "40 100 64 5", (2, 4, 8, 16), (32,)),
    Program("dealt.c", "96 6", (2, 4, 8, 16), (32,)),
    Program("nodesgrid.c", "24 4", (4, 8, 16), (32, 36)),
    # cuts
    Program(
        "cellpoint.c",
        "72 9",
        (2, 4, 6, 9),
        (12, 16),
        open_at=(16,),
        why_not="72 is divided evenly at all traced counts",
    ),
    Program("cellpoint.c", "77 9", (2, 4, 6, 9), (12, 16, 20)),
    Program("ceilcut.c", "157 211 3", (4, 6, 9, 12), (24, 36)),
    Program("elements.f90", "151 89 4", (4, 6, 9, 12), (24, 36)),
    Program("polled.c", "403 5", (2, 3, 5, 8), (16, 27)),
    Program("caravan.f90", "203", (3, 4, 5, 7), (14, 24)),
    Program("stages.py", "90 4", (2, 3, 5, 8), (16, 21)),
    # numbers of iterations
    Program("tolerance.c", "", (2, 4, 8), (16, 24), PAIRS, "the data decides when the loop ends"),
    Program("rounding.c", "", (2, 4, 8), (12, 24), PAIRS, "rounding decides when the loop ends"),
    Program("coarsening.c", "20 4", (4, 8, 16), (32, 36)),
    # partners
    Program("intervals.c", "6 4", (3, 5, 6, 8), (16, 23)),
    Program("box26.c", "30 37 44 4", (8, 12, 18), (27, 36)),
    Program("star3d.c", "29 5", (4, 8, 12, 16), (27, 32)),
    Program("torus.c", "33 5", (4, 8, 12, 16), (24, 36)),
    Program("tags.c", "17 6", (3, 5, 8), (16, 21)),
    Program("doubling.c", "5 5", (2, 4, 8), (16, 32)),
    Program("tree3.c", "31 6", (3, 5, 8, 13), (26, 30)),
    Program("transposed.f90", "85 4", (4, 9, 16), (25, 36)),
    # sizes of one field
    Program("vlevels.c", "192 96 96 3 2", (4, 8, 16), (32,)),
    Program("shells.c", "48 36 24 3", (4, 8, 12), (24, 36)),
    # classes of ranks, completions, sites
    Program("corners.f90", "93 70 3", (4, 6, 12), (24, 36)),
    Program("leaders.c", "131 4", (4, 6, 12), (24, 36)),
    Program("idle.c", "12 7", (4, 6, 12), (24, 36)),
    Program("tested.c", "250 6", (4, 6, 9), (18, 24)),
    Program("cloned.c", "40 8 0", (4, 6, 12), (24, 36)),
    Program("cloned.c", "40 8 1", (4, 6, 12), (24, 36)),
    Program("modes.c", "", (2, 4, 8), (16, 24)),
    # communicators
    Program(
        "halves.c",
        "15 3",
        (4, 8, 16),
        (32,),
        PAIRS,
        "each depth has a rule of its own, and the fifth was not traced",
    ),
    Program("rowofrow.c", "8 4", (4, 8, 16), (32, 36)),
    # Python
    Program("tasks.py", "121 3", (3, 4, 6, 8), (12, 16)),
)

#: Neighbourhood collectives (tests/programs/neighbours), all of which `make test-mpi` runs.
NEIGHBOURS = (
    Program("cart2.c", "p", (2, 4, 6), (8,)),
    Program("nine.c", "", (2, 4, 6), (8,)),
    Program("graph.c", "", (4, 6, 8), (10,)),
    Program("gossip.c", "", (3, 4, 5, 8), (10,)),
)
#: Those of TABLE that `make test-mpi` runs; all others are slow.
QUICK = {
    f"{name}-{args}".rstrip("-").replace(" ", "-")
    for name, args in (
        ("cellpoint", "77 9"),
        ("polled", "403 5"),
        ("caravan", "203"),
        ("tolerance", ""),
        ("rounding", ""),
        ("coarsening", "20 4"),
        ("tags", "17 6"),
        ("doubling", "5 5"),
        ("transposed", "85 4"),
        ("corners", "93 70 3"),
        ("idle", "12 7"),
        ("tested", "250 6"),
        ("cloned", "40 8 0"),
        ("tasks", "121 3"),
    )
}
