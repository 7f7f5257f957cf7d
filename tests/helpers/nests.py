"""Programs as loop nests with guards and trips per rank and turn: their events and true trees.

A program is a :class:`Nest` of calls; who does what, and how often, are plain functions of
:class:`At` (count, rank, turn of every loop around). One description yields both what each rank
records (:func:`sequences`, :func:`program`) and the tree that a fold has to find
(:func:`truth`), with turns, entries and trips per member and ``when`` per call.

The true tree is in normal form, so that it can be seen in the events at all:

- a loop of at most one turn per entry on every member is no loop, its body is part of the loop
  around; a loop that holds nothing but another loop is one loop with it;
- a turn in which a rank does nothing is no turn of that rank;
- programs are written so that no loop begins with a call of its first turn only or ends with one
  of its last turn only (in the events these are code before and behind the loop), and that a
  loop begins with the call that it is entered with where all ranks agree on one;
- the order of parts that no rank has both of is open (:func:`compare` ignores it);
- ``turns`` follow the definition of the signature (entries, plus transitions that do not go
  forward in the tree and whose innermost common loop it is); ``stated`` are the turns that the
  program began. They differ only where a rank's last call of one turn comes before its first
  call of the next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import corpus

PROC_NULL = -3
Member = tuple[int, int]
Node = tuple[str, str]


class At(dict[str, int]):
    """Where a rank is: ``n``, ``rank`` and, as items, the turn (from 0) of each loop around."""

    def __init__(self, n: int, rank: int) -> None:
        super().__init__()
        self.n, self.rank = n, rank


@dataclass(frozen=True, eq=False)
class Call:
    """One call; ``when`` and ``peer`` may depend on where the rank is, ``site`` names the line."""

    op: str
    site: str = ""
    when: Callable[[At], bool] | None = None
    peer: Callable[[At], int] | None = None
    nbytes: Callable[[At], int] | int = 8
    root: int = -1

    @property
    def node(self) -> Node:
        """The node: (site key, MPI name of the operation)."""
        return self.site or self.op, "MPI_" + self.op


@dataclass(frozen=True, eq=False)
class Nest:
    """A loop (the program itself is the nest of one trip) around calls and loops.

    walk: None, or "partners" or "requests" where the loop only goes from one to the other.
    """

    name: str
    trips: int | Callable[[At], int]
    body: tuple[Call | Nest, ...]
    walk: str | None = None


def nest(
    name: str, trips: int | Callable[[At], int], *body: Call | Nest, walk: str | None = None
) -> Nest:
    """Return a loop around calls and loops."""
    return Nest(name, trips, body, walk)


def main(*body: Call | Nest) -> Nest:
    """Return a program."""
    return Nest("main", 1, body)


def sendrecv(
    site: str,
    to: Callable[[At], int],
    source: Callable[[At], int],
    when: Callable[[At], bool] | None = None,
) -> tuple[Call, Call]:
    """Return the two halves of an MPI_Sendrecv."""
    return Call("Sendrecv", site, when, to), Call("Sendrecv_recv", site, when, source)


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
    walk: str | None
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


def _walk(
    node: Nest, at: At, leaves: Callable[[Call], None], turn: Callable[[Nest, int], None]
) -> bool:
    """Run a nest on one rank; tell whether it did anything."""
    trips = node.trips if isinstance(node.trips, int) else node.trips(at)
    outer = at.get(node.name)
    begun = 0
    for k in range(trips):
        at[node.name] = k
        busy = False
        for child in node.body:
            if isinstance(child, Nest):
                busy |= _walk(child, at, leaves, turn)
            elif child.when is None or child.when(at):
                leaves(child)
                busy = True
        begun += busy
    if outer is None:
        at.pop(node.name, None)
    else:
        at[node.name] = outer
    if begun:
        turn(node, begun)
    return begun > 0


def calls(top: Nest, n: int, rank: int) -> list[tuple[Call, int, int]]:
    """Return what a rank does: (call, partner or -1, bytes) in order."""
    at = At(n, rank)
    out: list[tuple[Call, int, int]] = []

    def leaf(c: Call) -> None:
        size = c.nbytes if isinstance(c.nbytes, int) else c.nbytes(at)
        out.append((c, -1 if c.peer is None else c.peer(at), size))

    _walk(top, at, leaf, lambda _nest, _begun: None)
    return out


def sequences(top: Nest, counts: Iterable[int]) -> tuple[dict[Member, list[int]], list[Node]]:
    """Return the sequence of node numbers of every member, and the nodes."""
    number: dict[Node, int] = {}
    out = {}
    for n in counts:
        for rank in range(n):
            out[n, rank] = [
                number.setdefault(c.node, len(number)) for c, _, _ in calls(top, n, rank)
            ]
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


def program(top: Nest) -> corpus.Program:
    """Return the program in the form of tests/corpus.py: tables, signatures and models of it."""

    def run(rec: corpus.Recorder) -> None:
        for c, peer, nbytes in calls(top, rec.n, rec.rank):
            rec(c.op, site=c.site or c.op, peer=peer, nbytes=nbytes, root=c.root)

    return run


# -- the true tree


def _begun(
    top: Nest, members: Iterable[Member]
) -> tuple[dict[Nest, dict[Member, int]], dict[Nest, int]]:
    """Return the turns begun per loop and member, and the most in one entry."""
    stated: dict[Nest, dict[Member, int]] = {}
    most: dict[Nest, int] = {}
    for member in members:

        def turn(node: Nest, begun: int, member: Member = member) -> None:
            mine = stated.setdefault(node, {})
            mine[member] = mine.get(member, 0) + begun
            most[node] = max(most.get(node, 0), begun)

        _walk(top, At(*member), lambda _call: None, turn)
    return stated, most


def _shape(
    node: Nest, most: Mapping[Nest, int], call_of: dict[int, Call], done: set[Call]
) -> list[Leaf | Tree]:
    """Return the children of a loop in normal form; leaves get their calls in ``call_of``."""
    out: list[Leaf | Tree] = []
    for child in node.body:
        if isinstance(child, Call):
            if child in done:
                out.append(Leaf(*child.node))
                call_of[id(out[-1])] = child
            continue
        children = _shape(child, most, call_of, done)
        if most.get(child, 0) <= 1:
            out += children
        elif len(children) == 1 and isinstance(children[0], Tree):
            out += children  # nothing between its turns shows the outer loop
        else:
            out.append(Tree(child.name, child.walk, children))
    return out


def _paths(tree: Tree, path: list[Tree]) -> Iterator[tuple[Leaf, list[Tree]]]:
    """Yield the leaves in order, each with the loops around it, outermost first."""
    for child in tree.children:
        if isinstance(child, Leaf):
            yield child, [*path, tree]
        else:
            yield from _paths(child, [*path, tree])


def truth(top: Nest, counts: Iterable[int]) -> Tree:
    """Return the tree of a program over all ranks of the counts."""
    members = [(n, r) for n in counts for r in range(n)]
    done = {c for m in members for c, _, _ in calls(top, *m)}
    stated, most = _begun(top, members)
    call_of: dict[int, Call] = {}
    root = Tree("main", None, _shape(top, most, call_of, done))
    by_name = {node.name: node for node in stated}
    for tree in root.loops():
        tree.stated = stated[by_name[tree.name]]
    tree_of = {call_of[id(leaf)]: (leaf, path) for leaf, path in _paths(root, [])}
    place = {c: i for i, c in enumerate(tree_of)}
    turns_of: dict[int, list[tuple[Member, list[list[set[int]]]]]] = {}
    for member in members:
        _count(member, [c for c, _, _ in calls(top, *member)], tree_of, place, turns_of)
    for loop in root.loops():
        for leaf in (c for c in loop.children if isinstance(c, Leaf)):
            leaf.when = _when(leaf, turns_of.get(id(loop), []))
    return root


def _count(
    member: Member,
    done: Sequence[Call],
    tree_of: Mapping[Call, tuple[Leaf, list[Tree]]],
    place: Mapping[Call, int],
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
            if place[call] <= place[before]:
                if common == 1:
                    raise ValueError(f"{before.node} -> {call.node} goes back outside any loop")
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


def plain_fold(loop: Any, nodes: Sequence[Node]) -> Plain:
    """Return a fold's result (``children``: node numbers or loops; ``turns``) likewise."""
    return Plain(
        loop.turns,
        [
            (f"{nodes[c][1]} {nodes[c][0]}", nodes[c])
            if isinstance(c, int)
            else plain_fold(c, nodes)
            for c in loop.children
        ],
    )


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


def ranks_of(top: Nest, counts: Iterable[int]) -> dict[Node, set[Member]]:
    """Return the members that have each node."""
    out: dict[Node, set[Member]] = {}
    for n in counts:
        for rank in range(n):
            for c, _, _ in calls(top, n, rank):
                out.setdefault(c.node, set()).add((n, rank))
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


def compare(
    top: Nest, counts: Sequence[int], loop: Any, nodes: Sequence[Node]
) -> tuple[list[str], list[str]]:
    """Return (true lines, lines of a fold's result): equal where the fold is right."""
    ranks = ranks_of(top, counts)
    return (
        lines(plain(truth(top, counts), with_when=False), counts, ranks),
        lines(plain_fold(loop, nodes), counts, ranks),
    )
