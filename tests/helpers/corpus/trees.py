"""True trees of programs whose loops have names, and the trees that a fold finds beside them.

A program (nests.py) yields both what each rank records (:func:`sequences`) and the tree that a fold
has to find (:func:`truth`), with turns, entries and trips per member and ``when`` per call. In the
body of a loop calls and loops come in one order, whatever a rank leaves out.

The true tree is in normal form, so that it can be seen in the events at all:

- a loop of at most one turn per entry on every member is no loop, its body is part of the loop
  around; a loop that holds nothing but another loop is one loop with it;
- a turn in which a rank does nothing is no turn of that rank;
- programs are written so that no loop begins with a call of its first turn only or ends with one
  of its last turn only (in the events these are code before and behind the loop), and that a
  loop begins with the call that it is entered with where all ranks agree on one;
- the order of parts that no rank has both of is open (:func:`lines` ignores it);
- ``turns`` follow the definition of the signature (entries, plus transitions that do not go
  forward in the tree and whose innermost common loop it is); ``stated`` are the turns that the
  program began. They differ only where a rank's last call of one turn comes before its first
  call of the next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from corpus.language import Path, Program, Recorder

Member = tuple[int, int]
Node = tuple[str, str]
#: A call of the source: names of the loops around it, its node.
Call = tuple[tuple[str, ...], Node]


@dataclass
class Leaf:
    """A call of the true tree: ``when`` in the turns of its loop, events per member."""

    site: str
    op: str
    when: str = "always"
    count: dict[Member, int] = field(default_factory=dict)


@dataclass
class Tree:
    """A loop of the true tree; dicts are per member (count, rank) that takes part in it."""

    name: str
    walk: str
    children: list[Leaf | Tree] = field(default_factory=list)
    turns: dict[Member, int] = field(default_factory=dict)
    stated: dict[Member, int] = field(default_factory=dict)
    trips: dict[Member, list[int]] = field(default_factory=dict)

    def loops(self) -> Iterator[Tree]:
        """Yield this loop and all inside, outermost first, in program order."""
        yield self
        for child in self.children:
            if isinstance(child, Tree):
                yield from child.loops()

    def find(self, name: str) -> Tree:
        """Return the loop of that name."""
        return next(t for t in self.loops() if t.name == name)

    def weight(self, n: int) -> int:
        """Return the weight at one count: the largest number of turns over the ranks."""
        return max((t for (m, _), t in self.turns.items() if m == n), default=0)


def done(program: Program, n: int, rank: int) -> Recorder:
    """Return the recorder of what a rank does."""
    rec = Recorder.alone(rank, n)
    program(rec)
    return rec


def _members(counts: Iterable[int]) -> Iterator[Member]:
    return ((n, rank) for n in counts for rank in range(n))


def sequences(
    program: Program, counts: Iterable[int]
) -> tuple[dict[Member, list[int]], list[Node]]:
    """Return the sequence of node numbers of every member, and the nodes."""
    number: dict[Node, int] = {}
    out = {
        m: [number.setdefault(node, len(number)) for _, node in done(program, *m).told]
        for m in _members(counts)
    }
    return out, list(number)


def transitions(
    sequence: Sequence[int], start: int = -1, end: int = -2
) -> dict[tuple[int, int], int]:
    """Return the transitions of one sequence with counts, start and end included."""
    walk = [start, *sequence, end]
    return dict(Counter(zip(walk[:-1], walk[1:], strict=True)))


def positions(members: Mapping[Any, Sequence[int]]) -> dict[int, float]:
    """Return the mean place in the run (0 to 1) of every node."""
    place: dict[int, list[float]] = {}
    for s in members.values():
        for i, v in enumerate(s):
            place.setdefault(v, []).append(i / len(s))
    return {v: sum(p) / len(p) for v, p in place.items()}


# -- the true tree


class _Source:
    """What the members did, as the source has it: bodies in order, turns begun."""

    def __init__(self, program: Program, counts: Iterable[int]) -> None:
        self.calls: dict[Member, list[Call]] = {}
        self.stated: dict[tuple[str, ...], dict[Member, int]] = {}
        self.most: Counter[tuple[str, ...]] = Counter()
        self.walks: dict[str, str] = {}
        #: loop -> what its body has, as names of loops and nodes -> what comes before it
        self.before: dict[tuple[str, ...], dict[str | Node, set[str | Node]]] = {}
        for member in _members(counts):
            rec = done(program, *member)
            self.walks |= rec.walks
            self.calls[member] = [(tuple(name for name, _ in p), node) for p, node in rec.told]
            self._take(member, rec.told)

    def _take(self, member: Member, told: list[tuple[Path, Node]]) -> None:
        turns: dict[Path, dict[str | Node, None]] = {}
        for path, node in told:
            for depth in range(len(path)):
                turns.setdefault(path[:depth], {})[path[depth][0]] = None
            turns.setdefault(path, {})[node] = None
        entries = Counter((path[:-1], path[-1][0]) for path in turns if path)
        for path, children in turns.items():
            names = tuple(name for name, _ in path)
            body, last = self.before.setdefault(names, {}), None
            for child in children:
                body.setdefault(child, set()).update(() if last is None else (last,))
                last = child
            mine = self.stated.setdefault(names, {})
            mine[member] = mine.get(member, 0) + 1
        for (path, name), begun in entries.items():
            key = (*(each for each, _ in path), name)
            self.most[key] = max(self.most[key], begun)

    def body(self, loop: tuple[str, ...]) -> list[str | Node]:
        """Return what a loop's body has, in its order."""
        left, out = dict(self.before[loop]), []
        while left:
            out.append(next(child for child, before in left.items() if not before & left.keys()))
            del left[out[-1]]
        return out

    def shape(self, loop: tuple[str, ...], leaves: dict[Call, Leaf]) -> list[Leaf | Tree]:
        """Return the children of a loop in normal form; ``leaves`` gets those of calls."""
        out: list[Leaf | Tree] = []
        for child in self.body(loop):
            if not isinstance(child, str):
                out.append(leaves.setdefault((loop, child), Leaf(*child)))
                continue
            inner = (*loop, child)
            children = self.shape(inner, leaves)
            if self.most[inner] <= 1:
                out += children
            elif len(children) == 1 and isinstance(children[0], Tree):
                out += children  # nothing between its turns shows the outer loop
            else:
                tree = Tree(child, self.walks.get(child, ""), children)
                tree.stated = self.stated[inner]
                out.append(tree)
        return out


def _paths(tree: Tree, path: list[Tree]) -> Iterator[tuple[Leaf, list[Tree]]]:
    """Yield the leaves in order, each with the loops around it, outermost first."""
    for child in tree.children:
        if isinstance(child, Leaf):
            yield child, [*path, tree]
        else:
            yield from _paths(child, [*path, tree])


def truth(program: Program, counts: Iterable[int]) -> Tree:
    """Return the tree of a program over all ranks of the counts."""
    source = _Source(program, counts)
    leaves: dict[Call, Leaf] = {}
    root = Tree("main", "", source.shape((), leaves), stated=source.stated[()])
    path_of = {id(leaf): (leaf, path) for leaf, path in _paths(root, [])}
    tree_of = {call: path_of[id(leaf)] for call, leaf in leaves.items()}
    place = {id(leaf): i for i, (leaf, _) in enumerate(path_of.values())}
    turns_of: dict[int, list[tuple[Member, list[list[set[int]]]]]] = {}
    for member, calls in source.calls.items():
        _count(member, calls, tree_of, place, turns_of)
    for loop in root.loops():
        for leaf in (c for c in loop.children if isinstance(c, Leaf)):
            leaf.when = _when(leaf, turns_of.get(id(loop), []))
    return root


def _count(
    member: Member,
    done: Sequence[Call],
    tree_of: Mapping[Call, tuple[Leaf, list[Tree]]],
    place: Mapping[int, int],
    turns_of: dict[int, list[tuple[Member, list[list[set[int]]]]]],
) -> None:
    """Count turns, entries and events of one member, by transitions as the definition says."""
    entries: dict[int, list[list[set[int]]]] = {}  # loop -> entry -> turn -> leaves done in it
    loop_of: dict[int, Tree] = {}
    before: Call | None = None
    for call in done:
        leaf, path = tree_of[call]
        common = 0
        if before is not None:
            old = tree_of[before][1]
            while common < min(len(path), len(old)) and path[common] is old[common]:
                common += 1
            if place[id(leaf)] <= place[id(tree_of[before][0])]:
                if common == 1:
                    raise ValueError(f"{before} -> {call} goes back outside any loop")
                entries[id(path[common - 1])][-1].append(set())
        for loop in path[common:]:
            loop_of[id(loop)] = loop
            entries.setdefault(id(loop), []).append([set()])
        entries[id(path[-1])][-1][-1].add(id(leaf))
        leaf.count[member] = leaf.count.get(member, 0) + 1
        before = call
    for key, found in entries.items():
        loop_of[key].turns[member] = sum(map(len, found))
        loop_of[key].trips[member] = [len(e) for e in found]
        turns_of.setdefault(key, []).append((member, found))


def _when(leaf: Leaf, members: Sequence[tuple[Member, list[list[set[int]]]]]) -> str:
    """Say in which turns of an entry the ranks that do a call at all do it."""
    done = [
        [id(leaf) in turn for turn in entry]
        for member, entries in members
        if member in leaf.count
        for entry in entries
    ]
    if all(all(entry) for entry in done):
        return "always"
    if all(entry[0] and not any(entry[1:]) for entry in done):
        return "first"
    if all(entry[-1] and not any(entry[:-1]) for entry in done):
        return "last"
    longest = max(done, key=len)
    at = [i for i, yes in enumerate(longest) if yes]
    if len(at) > 1:
        step = at[1] - at[0]
        if step > 1 and all(
            entry == [i % step == at[0] % step for i in range(len(entry))] for entry in done
        ):
            return f"every {step}"
    return "some"


# -- compared with what a fold finds, as text


@dataclass
class Plain:
    """A loop as it is compared: turns per member; children are loops and (text, node)."""

    turns: Mapping[Any, int]
    children: list[Plain | tuple[str, Node]]

    def nodes(self) -> set[Node]:
        """Return all nodes inside."""
        return {v for c in self.children for v in (c.nodes() if isinstance(c, Plain) else {c[1]})}


def plain(tree: Tree, with_when: bool = True) -> Plain:
    """Return the true tree as it is compared."""
    out: list[Plain | tuple[str, Node]] = []
    for c in tree.children:
        if isinstance(c, Tree):
            out.append(plain(c, with_when))
        else:
            when = f" ({c.when})" if with_when and c.when != "always" else ""
            out.append((f"{c.op} {c.site}{when}", (c.site, c.op)))
    return Plain(tree.turns, out)


def plain_json(loop: Mapping[str, Any]) -> Plain:
    """Return the tree of signature/phases.json likewise; turns are the fewest and the most."""
    turns = {
        (int(n), which): t[key]
        for n, t in loop["trips"].items()
        for which, key in enumerate(("turns_min", "turns"))
    }
    out: list[Plain | tuple[str, Node]] = []
    for c in loop["body"]:
        if "call" in c:
            when = "" if c["when"] == "always" else f" ({c['when']})"
            out.append((f"{c['op']} {c['site']}{when}", (c["site"], c["op"])))
        else:
            out.append(plain_json(c))
    return Plain(turns, out)


def ranks_of(program: Program, counts: Iterable[int]) -> dict[Node, set[Member]]:
    """Return the members that have each node."""
    out: dict[Node, set[Member]] = {}
    for member in _members(counts):
        for _, node in done(program, *member).told:
            out.setdefault(node, set()).add(member)
    return out


def lines(
    loop: Plain, counts: Sequence[int], ranks: Mapping[Node, set[Member]], depth: int = 0
) -> list[str]:
    """Return a tree as text; parts that no rank has both of come in alphabetical order."""
    parts = []
    for child in loop.children:
        pad = "  " * depth
        if isinstance(child, Plain):
            who = set().union(*(ranks[v] for v in child.nodes()))
            parts.append(
                (
                    who,
                    [
                        f"{pad}loop {turns_text(child.turns, counts)}",
                        *lines(child, counts, ranks, depth + 1),
                    ],
                )
            )
        else:
            parts.append((ranks[child[1]], [pad + child[0]]))
    out = []
    while parts:
        free = [
            i
            for i, (who, _) in enumerate(parts)
            if not any(who & earlier for earlier, _ in parts[:i])
        ]
        out += parts.pop(min(free, key=lambda i: [line.split() for line in parts[i][1]][::-1]))[1]
    return out


def turns_text(turns: Mapping[Any, int], counts: Sequence[int]) -> str:
    """Return "4: 10, 8: 7..10": turns per count over the ranks that take part."""
    parts = []
    for n in counts:
        mine = [t for (m, _), t in turns.items() if m == n and t]
        if mine:
            low, high = min(mine), max(mine)
            parts.append(f"{n}: {high}" if low == high else f"{n}: {low}..{high}")
    return ", ".join(parts)
