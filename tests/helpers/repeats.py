"""Loop nests by a plain search for repeats: what folding is checked against on small traces.

The textbook way: adjacent equal parts of a sequence are folded into one, the shortest period
first, from left to right, until nothing repeats any more. Quadratic, exact, one rank at a time;
parts are equal only if their inner loops have equal trips.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Repeat:
    """A body (nodes and repeats) that occurs ``times`` times in a row."""

    times: int
    body: tuple[int | Repeat, ...]

    def nodes(self) -> frozenset[int]:
        """Return all nodes inside."""
        return frozenset(unrolled(self.body, once=True))


Item = int | Repeat


def fold_repeats(sequence: Sequence[int]) -> tuple[Item, ...]:
    """Return the sequence as nodes and nested repeats."""
    items: list[Item] = list(sequence)
    period = 1
    while 2 * period <= len(items):
        shorter = _fold(items, period)
        if len(shorter) < len(items):
            items, period = shorter, 1
        else:
            period += 1
    return tuple(items)


def _fold(items: list[Item], period: int) -> list[Item]:
    out: list[Item] = []
    i = 0
    while i < len(items):
        body = items[i : i + period]
        times = 1
        while items[i + times * period : i + (times + 1) * period] == body:
            times += 1
        if times == 1 or len(body) < period:
            out.append(items[i])
            i += 1
            continue
        if period == 1 and isinstance(body[0], Repeat):  # the same repeat again: one with more
            out.append(Repeat(times * body[0].times, body[0].body))
        else:
            out.append(Repeat(times, tuple(body)))
        i += times * period
    return out


def unrolled(items: Sequence[Item], once: bool = False) -> Iterator[int]:
    """Yield the nodes in order, of every turn or of one turn each."""
    for item in items:
        if isinstance(item, Repeat):
            for _ in range(1 if once else item.times):
                yield from unrolled(item.body, once)
        else:
            yield item


def regular(items: Sequence[Item]) -> dict[frozenset[int], int]:
    """Return nodes -> total turns of the repeats whose nodes occur nowhere else.

    A repeat that is found in several places, or in every turn of another, counts with all of
    them. The search does not know the turns, and the repeat is left out, where a part of it also
    stands alone (a first or last turn that lacks something) or a node is in its body twice
    (turns of two kinds that alternate).
    """
    total: dict[frozenset[int], int] = {}
    inside: dict[frozenset[int], dict[int, int]] = {}
    count: dict[int, int] = {}
    twice: set[frozenset[int]] = set()

    def walk(items: Sequence[Item], factor: int, around: tuple[frozenset[int], ...]) -> None:
        for item in items:
            if isinstance(item, Repeat):
                nodes = item.nodes()
                total[nodes] = total.get(nodes, 0) + factor * item.times
                if len(list(unrolled(item.body, once=True))) > len(nodes):
                    twice.add(nodes)
                walk(item.body, factor * item.times, (*around, nodes))
                continue
            count[item] = count.get(item, 0) + factor
            for nodes in set(around):
                mine = inside.setdefault(nodes, {})
                mine[item] = mine.get(item, 0) + factor

    walk(items, 1, ())
    return {
        nodes: turns
        for nodes, turns in total.items()
        if nodes not in twice and inside[nodes] == {v: count[v] for v in nodes}
    }
