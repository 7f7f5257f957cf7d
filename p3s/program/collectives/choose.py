"""Which algorithm a library takes for a call, and the schedule of messages that it makes.

Open MPI: collectives.tuned for what the "tuned" component (priority 30) implements; what it does
not - Gatherv, Scatterv, Alltoallw, Scan, Exscan - comes from "basic" (priority 10). Other
components are off by default or need hardware. Open MPI 5 on several nodes: "han" (35), see
collectives.nodes. MPICH 4 and 5: maint/tuning/coll/mpir/generic.json (the same file in
4.1.2, 4.2.3 and 5.0.1), and for communicators on several nodes maint/tuning/coll/ch4/generic.json.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from p3s.program.collectives import creation, exchanges, nodes, reductions, rooted
from p3s.program.collectives import nonblocking as nb
from p3s.program.collectives.job import Job, power_below, shares, whole
from p3s.program.collectives.registry import COLLECTIVES, CREATIONS
from p3s.program.collectives.rules import MPICH, Library
from p3s.program.collectives.tuned import switch_points, tuned
from p3s.program.collectives.writer import Schedule, Writer
from p3s.simulate.steps import Ints

KNOMIAL_RADIX = 4
#: The files of algorithms.
FILES = (exchanges, rooted, reductions, nb, creation)


@dataclass(frozen=True)
class Choice:
    """An algorithm by name, and the size its messages are cut into (0: not)."""

    algorithm: str
    segment: int = 0


def size_for_choice(call: str, at: Ints, members: int = 0) -> int:
    """Return the size in bytes by which Open MPI and the user's rules choose.

    ``members``: as of so many, each of which sends as much in all; 0: as of those that there are.
    """
    p, total = len(at) - 1, int(at[-1])
    if call in ("allgather", "gather", "scatter", "reduce_scatter_block", "allgatherv"):
        return total // p
    if call in ("alltoall", "alltoallv", "alltoallw"):
        return total // (p * (members or p))
    return total


def choose(library: Library, call: str, at: Ints, element: int, blocking: bool = True) -> Choice:
    """Return the algorithm of a library for ``len(at) - 1`` members and a vector cut at ``at``."""
    p = library.members(len(at) - 1)
    size = size_for_choice(call, at, p)
    for rule in library.rules:
        if (
            rule.call == call
            and (rule.members_below is None or p < rule.members_below)
            and (rule.bytes_below is None or size < rule.bytes_below)
        ):
            return Choice(rule.algorithm, rule.segment)
    if call in CREATIONS:
        return Choice("mask" if library.family == MPICH else "agree")
    if library.family == MPICH:
        name = _mpich(call, p, int(at[-1]), size, element)
        return Choice(name if blocking else nb.mpich(call, p, int(at[-1]), size, name))
    if not blocking:
        return Choice(nb.libnbc(call, p, int(at[-1]), element))
    if call in switch_points():
        return Choice(tuned(call, p, size))
    return Choice("linear_nonempty" if call == "alltoallw" else "linear")


def _mpich(call: str, p: int, total: int, size: int, element: int) -> str:
    """Return MPICH's algorithm on one node or among nodes (generic.json of "mpir", 5.0.1)."""
    power = p & (p - 1) == 0
    enough = total // element >= power_below(p)
    if call == "bcast":
        if p < 8 or total <= 12288:
            return "binomial_far"
        return "scatter_doubling" if power and total <= 524288 else "scatter_ring"
    if call == "allreduce":
        return "rabenseifner_blocks" if total > 8 and enough else "recursive_doubling"
    if call == "reduce":
        return "rabenseifner_blocks" if total > 2048 and enough else "binomial_blocking"
    if call in ("allgather", "allgatherv"):
        if total >= (524288 if power else 81920):
            return "ring_cut" if call == "allgatherv" else "ring"
        return "recursive_doubling" if power else "bruck"
    if COLLECTIVES[call].shared:
        return "halving" if total < 524288 else "pairwise"
    if call == "alltoall":
        # "comm_size<8" takes 8 in as well where it is asked behind the sizes (csel.c).
        if size <= 256 and p > 8:
            return "bruck"
        return "scattered" if size <= 32768 else "pairwise_xor"
    return {
        "barrier": "dissemination",
        "gather": "binomial",
        "scatter": "binomial",
        "gatherv": "linear_posted",
        "scatterv": "linear_posted",
    }.get(call, "recursive_doubling" if call in ("scan", "exscan") else "scattered")


def division(call: str, p: int, sizes: Ints, element: int) -> Ints:
    """Return where the vector is cut, from the bytes of each member as a scaled trace has them."""
    if COLLECTIVES[call].blocks:
        if not COLLECTIVES[call].varying:
            sizes = np.full(p, most_common(sizes))
        return np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    total = most_common(sizes)
    return shares(p, total, element) if COLLECTIVES[call].shared else whole(p, total)


def most_common(values: Ints) -> int:
    """Return the value that occurs most often, the largest of several."""
    found, times = np.unique(values, return_counts=True)
    return int(found[times == times.max()].max())


def element_of(call: str, library: Library, nbytes: int) -> int:
    """Return the bytes of an element: unknown in a trace, the largest of 8, 4, 2, 1 that fits.

    MPICH's broadcasts divide bytes.
    """
    if call == "bcast" and library.family == MPICH:
        return 1
    if call in CREATIONS:
        return 4  # they agree on numbers of the library's own
    return next(e for e in (8, 4, 2, 1) if nbytes % e == 0)


@dataclass(frozen=True)
class Setting:
    """What a choice depends on beside the call: library, element size, blocking or not, nodes."""

    library: Library
    element: int
    blocking: bool = True
    nodes: Ints | None = None


def write(w: Writer, setting: Setting, call: str, at: Ints, root: int) -> None:
    """Write a collective with the algorithm that the library chooses."""
    p = len(at) - 1
    if p < 2 or (int(at[-1]) == 0 and not COLLECTIVES[call].silent):
        return
    if (
        setting.nodes is not None
        and len(setting.nodes) == p
        and by_nodes(w, setting, call, at, root)
    ):
        return

    def perform(inner: Writer, name: str, inner_at: Ints, inner_root: int) -> None:
        call, posted = name.lower(), name.lower().removeprefix("i")
        same = call in COLLECTIVES
        how = setting if same else replace(setting, blocking=False)
        write(inner, how, call if same else posted, inner_at, inner_root)

    chosen = choose(setting.library, call, at, setting.element, setting.blocking)
    job = Job(p, root, at, setting.element, chosen.segment, KNOMIAL_RADIX, perform)
    COLLECTIVES[call].algorithms[chosen.algorithm](w, job)


def by_nodes(w: Writer, setting: Setting, call: str, at: Ints, root: int) -> bool:
    """Write a collective over nodes first if the library does so; tell whether it does."""
    library, element = setting.library, setting.element
    ruled = any(rule.call == call for rule in library.rules)
    if setting.nodes is None or ruled:
        return False

    def part(view: Writer, name: str, inner: Ints, inner_root: int, blocking: bool) -> None:
        write(view, Setting(library, element, blocking), name, inner, inner_root)

    levels = nodes.Levels(w, nodes.Layout.of(setting.nodes), part, setting.blocking)
    if library.family == MPICH:
        return nodes.mpich(levels, call, at, root, library.device)
    new = library.version >= (5, 0) and setting.blocking
    return new and nodes.han(levels, call, at, root, element)


def _setting(
    library: Library, call: str, sizes: Ints, node: Ints | None, blocking: bool
) -> tuple[Setting, Ints]:
    element = element_of(call, library, most_common(sizes))
    return (Setting(library, element, blocking, node), division(call, len(sizes), sizes, element))


def chosen_name(
    library: Library, call: str, sizes: Ints, *, node: Ints | None = None, blocking: bool = True
) -> str:
    """Return the name of the algorithm of a call, for people."""
    setting, at = _setting(library, call, sizes, node, blocking)
    if node is not None and by_nodes(Writer(len(sizes)), setting, call, at, 0):
        return "by node"
    return choose(library, call, at, setting.element, blocking).algorithm


def schedule(
    library: Library,
    call: str,
    sizes: Ints,
    root: int = 0,
    *,
    node: Ints | None = None,
    blocking: bool = True,
    proof: bool = False,
) -> Schedule:
    """Return the messages of a call; ``sizes``: bytes of each member as in a scaled trace.

    ``node``: of every member, where the library's choice depends on it.
    """
    setting, at = _setting(library, call, sizes, node, blocking)
    w = Writer(len(sizes), proof)
    write(w, setting, call, at, root)
    return w.finish()
