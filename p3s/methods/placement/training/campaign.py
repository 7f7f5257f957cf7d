"""What is measured to learn a machine: probes of single messages, and random pairs.

The random pairs of Papadopoulou 2017, section 3.4: on several allocations, of which each is an
execution, ranks are paired at random and exchange messages of one length. Lengths, how many
messages, and the share of pairs inside nodes are drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from p3s.base.arrays import Ints
from p3s.base.errors import UsageError
from p3s.base.extents import dims_balanced
from p3s.base.text import plural
from p3s.methods.placement.phases import Traffic, together, traffic
from p3s.methods.placement.training.costs import Hockney
from p3s.program.mapping import RankMap, rank_map


def random_pairs(
    node_of: Ints, messages: int, nbytes: int, inside: float, seed: int
) -> tuple[Traffic, list[Ints]]:
    """Return the traffic of random pairs, and the partner of each rank in each round.

    Each of the ``messages`` rounds pairs all ranks at random, with probability ``inside`` only
    ranks of the same node; both send ``nbytes``. A rank that is left over (an odd number of them)
    is its own partner, and sends nothing. ``seed``: the same pairs again.
    """
    rng = np.random.default_rng(seed)
    rounds = [_round(node_of, bool(rng.random() < inside), rng) for _ in range(messages)]
    ranks = np.arange(len(node_of))
    parts = [
        traffic(len(node_of), ranks[pair != ranks], pair[pair != ranks], nbytes) for pair in rounds
    ]
    return (together(parts) if parts else traffic(len(node_of), [], [], [])), rounds


def _round(node_of: Ints, inside: bool, rng: np.random.Generator) -> Ints:
    partner = np.arange(len(node_of))
    groups = [np.flatnonzero(node_of == node) for node in np.unique(node_of)]
    for group in groups if inside else [partner.copy()]:
        mixed = rng.permutation(group)
        half = len(mixed) // 2
        one, other = mixed[:half], mixed[half : 2 * half]
        partner[one], partner[other] = other, one
    return partner


#: Messages of a rank in a phase: those of halos are among them.
_MESSAGES = (1, 2, 3, 4, 6, 8, 13, 26)
#: Nodes and ranks of a node, as far as there are so many: also such as are no powers of two.
_NODES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
_SLOTS = (1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 32, 48, 64, 96, 128)
#: Shares of the rounds that pair only ranks of one node.
_INSIDE = (0.0, 0.0, 0.25, 0.5, 0.75)
#: Bytes of a message, as powers of two.
_SHORTEST, _LONGEST, _LEAST_LONG = 3.0, 23.0, 10.0
#: Allocations of one size: in a row, and scattered.
_COPIES = 2


@dataclass(frozen=True)
class Settings:
    """How much is measured.

    ``ranks``: of the largest execution. ``slots``: ranks that a node has room for at most.
    ``phases``: of random pairs, about so many. ``budget_s``: seconds that they may take, None
    where no time passes. ``patterns``: of applications, beside the random pairs.
    """

    ranks: int = 128
    slots: int = 1
    phases: int = 1500
    seed: int = 0
    budget_s: float | None = None
    patterns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Draw:
    """One phase of random pairs, or of a pattern; inside: share of the rounds inside nodes."""

    messages: int
    nbytes: int
    inside: float
    seed: int
    pattern: str = ""


@dataclass(frozen=True, eq=False)
class Execution:
    """Phases that are measured on one allocation.

    ``number``: which execution; ``nodes``: of the network, ascending; ``slots``: ranks on each.
    """

    number: int
    nodes: Ints
    slots: int
    draws: tuple[Draw, ...]

    @property
    def placed(self) -> RankMap:
        """Where its ranks are: one node is filled after the other."""
        names = tuple(f"+n{node}" for node in self.nodes.tolist())
        return rank_map("block", np.repeat(np.arange(len(self.nodes)), self.slots), names)


#: Patterns of SC13 and their dimensions: 4 neighbours, 14 neighbours, all-to-all in rows.
PATTERNS = {"halo2d": 2, "halo3d": 3, "rows": 3}


def patterned(name: str, ranks: int, nbytes: int) -> Traffic:
    """Return the messages of a pattern on the most even grid of these ranks, periodic."""
    dims = dims_balanced(ranks, PATTERNS[name])
    around = [step for step in product((-1, 0, 1), repeat=len(dims)) if any(step)]
    steps = [each for each in around if sum(map(abs, each)) in (1, 3)]
    if name == "rows":
        steps = [(0, 0, k) for k in range(1, dims[-1])]
    rank = np.arange(ranks)
    at = np.stack(np.unravel_index(rank, dims), axis=1)
    to = [np.ravel_multi_index(tuple(((at + step) % dims).T), dims) for step in steps]
    parts = [traffic(ranks, rank[rank != dest], dest[rank != dest], nbytes) for dest in to]
    return together(parts) if parts else traffic(ranks, [], [], [])


def traffic_of(draw: Draw, placed: RankMap) -> Traffic:
    """Return the messages of random pairs, or of a pattern."""
    if draw.pattern:
        return patterned(draw.pattern, placed.n, draw.nbytes)
    return random_pairs(placed.node_of, draw.messages, draw.nbytes, draw.inside, draw.seed)[0]


def shapes(nodes: int, settings: Settings) -> list[tuple[int, int]]:
    """Return how many nodes executions have, and how many ranks on each; at least two ranks.

    Errors: UsageError where the machine has no room for two ranks.
    """
    counts = sorted({*(n for n in _NODES if n <= nodes), nodes})
    slots = sorted({*(k for k in _SLOTS if k <= settings.slots), settings.slots})
    shapes_found = [(n, k) for n in counts for k in slots if 2 <= n * k <= settings.ranks]
    if not shapes_found:
        raise UsageError(
            f"{plural(nodes, 'node')} with {plural(settings.slots, 'rank')} each: no two ranks to "
            "measure between; give more --hosts or --ppn"
        )
    return shapes_found


def executions(
    nodes: Ints, settings: Settings, cost: Hockney, repeats: int = 1
) -> Iterator[Execution]:
    """Yield what is measured on these nodes of a network, the same every time.

    ``cost``: of messages, by which lengths are bounded so that all takes no longer than it may
    when each phase is run so often.
    """
    rng = np.random.default_rng(settings.seed)
    planned = [
        (n, slots, copy)
        for n, slots in shapes(len(nodes), settings)
        for copy in range(_COPIES if n < len(nodes) else 1)
    ]
    each = max(settings.phases // len(planned), 4)
    planned_executions = [
        Execution(
            number,
            _allocation(nodes, n, copy, rng),
            slots,
            tuple(_draws(each, n, slots, rng, settings.patterns)),
        )
        for number, (n, slots, copy) in enumerate(planned)
    ]
    top = _LONGEST
    while (
        settings.budget_s is not None
        and top > _LEAST_LONG
        and (
            repeats * sum(_seconds(execution, cost, top) for execution in planned_executions)
            > settings.budget_s
        )
    ):
        top -= 0.5
    for execution in planned_executions:
        yield replace(execution, draws=tuple(_limit_length(draw, top) for draw in execution.draws))


def _allocation(nodes: Ints, count: int, copy: int, rng: np.random.Generator) -> Ints:
    """Return nodes in a row, or for the copies scattered ones."""
    if copy:
        return np.sort(rng.permutation(nodes)[:count])
    first = int(rng.integers(len(nodes) - count + 1))
    return nodes[first : first + count]


def _draws(
    number: int, nodes: int, slots: int, rng: np.random.Generator, patterns: Sequence[str]
) -> Iterator[Draw]:
    for _ in range(number):
        inside = float(rng.choice(_INSIDE)) if slots > 1 else 0.0
        yield Draw(
            int(rng.choice(_MESSAGES)),
            round(2.0 ** rng.uniform(_SHORTEST, _LONGEST)),
            inside if nodes > 1 else 1.0,
            int(rng.integers(1 << 31)),
            str(rng.choice(["", *patterns])) if patterns else "",
        )


def _limit_length(draw: Draw, top: float) -> Draw:
    """Return a phase whose length is drawn up to a smaller end of the range."""
    share = (np.log2(draw.nbytes) - _SHORTEST) / (_LONGEST - _SHORTEST)
    return replace(draw, nbytes=round(2.0 ** (_SHORTEST + share * (top - _SHORTEST))))


def _seconds(execution: Execution, cost: Hockney, top: float) -> float:
    """Return about how long the phases of an execution take once."""
    return sum(
        draw.messages * execution.slots * (cost.alpha + cost.beta * _limit_length(draw, top).nbytes)
        for draw in execution.draws
    )
