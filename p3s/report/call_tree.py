"""The call paths of a program with what they take: traced, and predicted at the largest count.

Functions, loops and calls are one tree. Predicted are times of phases, that is of loops: a node has
a predicted time where it holds all the calls of each phase that it holds any of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from p3s.base.ops import COMPLETION, kind_of
from p3s.base.text import percent, processes, visible
from p3s.capture.callpath import PASS_ON, CallPath, FrameInfo, call_path, stack
from p3s.costs.counted import Counted
from p3s.predict.times import END, REST, START
from p3s.predict.types import Count, PhaseAt, Prediction
from p3s.report.costs import kinds_of
from p3s.report.phase_table import WIDTH, account, cut, of_ranks, span, table, volume
from p3s.report.places import Places
from p3s.report.places import lines_of as common_lines
from p3s.report.show import lines_of
from p3s.signature.phase_file import Call, Loop, Phase, Phases, Trips

#: Without --all: lines of the tree, calls in a row.
MAX_LINES, MAX_CALLS = 120, 12


def tree(found: Phases, places: Places, everything: bool = False) -> list[str]:
    """Return the loops and calls of the program, indented, in program order."""
    lines = _Lines(found, places, everything)
    lines.body(found.tree, 0)
    text = lines.text
    if not everything and len(text) > MAX_LINES:
        lines.hidden += len(text) - MAX_LINES
        text = text[:MAX_LINES]
    if lines.hidden:
        one = lines.hidden == 1
        what = "1 line of the tree is" if one else f"{lines.hidden} lines of the tree are"
        text.append(f"{what} hidden: --all shows {'it' if one else 'them'}")
    return text


class _Lines:
    """The lines of a tree as they are made; ``hidden`` counts those that are not."""

    def __init__(self, found: Phases, places: Places, everything: bool) -> None:
        self.found = found
        self.places = places
        self.everything = everything
        self.count = found.counts[-1]
        self.phase_of = {phase.loop: phase for phase in found.phases}
        self.text: list[str] = []
        self.hidden = 0

    def add(self, depth: int, left: str, right: str = "") -> None:
        left = "  " * min(depth, 20) + left
        if right:
            left = cut(left, max(WIDTH - len(right) - 2, 40))
            left = f"{left.ljust(min(62, WIDTH - 2 - len(right)))}  {right}"
        self.text.append(cut(left, WIDTH))

    def body(self, loop: Loop, depth: int) -> None:
        calls: list[Call] = []
        for item in loop.body:
            if isinstance(item, Call):
                calls.append(item)
                continue
            self.calls(calls, depth)
            calls = []
            self.loop(item, depth)
        self.calls(calls, depth)

    def loop(self, loop: Loop, depth: int) -> None:
        own = self.phase_of.get(loop.loop)
        self.add(depth, self.head(loop, depth), self.about(own))
        inside = [self.phase_of[each.loop] for each in loop.loops() if each.loop in self.phase_of]
        if not self.everything and inside and not any(phase.relevant for phase in inside):
            self.hidden += _size(loop)
        else:
            self.body(loop, depth + 1)

    def head(self, loop: Loop, depth: int) -> str:
        walk = f"walk over {loop.walk} " if loop.walk else ""
        trips = loop.trips.get(self.count)
        if trips is None:
            return f"{walk}not at {self.count}"
        text = f"{walk}× {turns(trips, depth > 0)}"
        each = {n: loop.trips.get(n) for n in self.found.counts}
        if len({None if t is None else t.per_entry for t in each.values()}) > 1:
            listed = [f"{n}: {span(*t.per_entry) if t else 'none'}" for n, t in each.items()]
            text += f" ({', '.join(listed)})"
        return text

    def about(self, phase: Phase | None) -> str:
        cost = phase.per_count.get(self.count) if phase is not None else None
        if phase is None or cost is None:
            return ""
        return f"phase {phase.phase}, {percent(cost.share)} of the time"

    def calls(self, calls: Sequence[Call], depth: int) -> None:
        """Add calls that follow one another; those of one function are packed into one line."""
        rows = [_Row.of(call, self.found.sites.get(call.site, ()), self.places) for call in calls]
        packed = [list(alike) for _, alike in groupby(rows, key=lambda row: row.kind)]
        if self.everything:
            packed = [[row] for row in rows]
        shown = packed
        if not self.everything and len(packed) > MAX_CALLS:
            shown = packed[: MAX_CALLS - 2]
        for alike in shown:
            facts = self.facts([row.call for row in alike])
            room = max(62, WIDTH - 2 - len(facts)) - 2 * min(depth, 20)
            self.add(depth, _place_of(alike, room), facts)
        if len(shown) < len(packed):
            self.hidden += len(packed) - len(shown)
            more = sum(map(len, packed[len(shown) :]))
            self.add(depth, f"… {more} more calls")

    def facts(self, calls: Sequence[Call]) -> str:
        """Return what is to be said of calls: how many, when, on which ranks, how large."""
        facts = [f"{len(calls)} calls"] if len(calls) > 1 else []
        if calls[0].when != "always":
            facts.append(visible(calls[0].when))
        ranks = [call.ranks.get(self.count, 0) for call in calls]
        if not any(ranks):
            return ", ".join([*facts, f"not at {self.count}"])
        low, high = min(ranks), max(ranks)
        some = of_ranks(high, self.count)
        facts.append(some if low == high else f"{low}..{high} of {self.count}")
        sizes = [call.bytes[self.count] for call in calls if self.count in call.bytes]
        least, most = min((a for a, _ in sizes), default=0), max((b for _, b in sizes), default=0)
        if kind_of(calls[0].op) == COMPLETION:  # its "bytes" are requests
            if most > 1:
                facts.append(f"{span(least, most)} requests")
        elif most:
            small, large = volume(least), volume(most)
            facts.append(large if small == large else f"{small}..{large}")
        return ", ".join(facts)


@dataclass(frozen=True)
class _Row:
    """A call and where it is."""

    call: Call
    path: CallPath

    @classmethod
    def of(cls, call: Call, frames: Sequence[str], places: Places) -> _Row:
        return cls(call, call_path(stack(frames, places)) or CallPath(FrameInfo("?"), "?"))

    @property
    def kind(self) -> tuple[object, ...]:
        """What calls on one line have in common; one without a line is on a line of its own."""
        at = self.path.at
        where = (at.function, at.file) if at.line else (at.frame,)
        return (self.call.op, self.call.when, where, *(w.frame for w in self.path.around()))


def _place_of(alike: Sequence[_Row], room: int) -> str:
    """Return operation and place, and what calls it where there is room."""
    first = alike[0]
    place = common_lines([row.path.at for row in alike]) or first.path.place
    path = replace(first.path, place=place)
    return visible(f"{first.call.op}  {path.within(room - len(first.call.op) - 2)}", 200)


def turns(trips: Trips, nested: bool) -> str:
    """Return how often the body of a loop runs: per entry, or in the run."""
    text = span(*trips.per_entry)
    if trips.per_entry[0] != trips.per_entry[1]:
        return text + (" by rank" if trips.turns_min != trips.turns else " from entry to entry")
    return text + (" per iteration" if nested else "")


def _size(loop: Loop) -> int:
    return sum(1 + _size(item) if isinstance(item, Loop) else 1 for item in loop.body)


def render(
    found: Phases,
    places: Places,
    counted: Sequence[Counted] = (),
    *,
    everything: bool = False,
    only_tree: bool = False,
) -> str:
    """Return table, tree and account as text, or the tree alone."""
    if only_tree:
        return "\n".join(tree(found, places, everything))
    last = found.counts[-1]
    unit = {"cpu_ns": "CPU time", "wall_ns": "wall time"}.get(found.work_unit, found.work_unit)
    title = f"Phases at {processes(last)} (times and work are sums over ranks; work in {unit})"
    return "\n".join(
        [
            title,
            "",
            *table(found, places, everything, counted),
            "",
            f"Loops and calls at {processes(last)}",
            "",
            *tree(found, places, everything),
            "",
            *lines_of(account(found))[:-1],
        ]
    )


#: Rows of a tree; those with the least time are left out, and it says so.
MAX_NODES = 240
#: The same of phases alone, which are listed on the page anyway.
MAX_PHASES = 60
#: Parts of a predicted time.
PARTS = ("compute", "io", "transfer", "waiting", "software", "comm")


#: Seconds of the rank that takes longest, at one count, by part; without zeros.
Spent = Counter[str]


@dataclass
class Node:
    """A function, a loop or a call, and what is in it.

    ``kind``: function, loop or call; ``where``: file and line, or how often; ``phase``: that of a
    loop, empty without; ``phases``: those it holds all calls of; ``whole``: whether it holds no
    part of another one. ``traced_s``: mean over the ranks, None where it does not occur. ``spent``
    and ``before``: predicted at the largest count and at the baseline, None: not told apart.
    """

    kind: str
    name: str
    where: str = ""
    phase: str = ""
    body: list[Node] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    traced_s: float | None = None
    spent: Spent | None = None
    before: Spent | None = None

    def walk(self, depth: int = 0) -> Iterator[tuple[int, Node]]:
        """Yield this node and all inside with their depths, from the top down."""
        yield depth, self
        for node in self.body:
            yield from node.walk(depth + 1)


@dataclass(frozen=True)
class CallTree:
    """The tree of a program; ``traced_n``: the count it was traced at, None: by phases alone.

    ``n``, ``base_n``: counts of ``spent`` and ``before``; ``cut``: what was left out.
    """

    root: Node
    traced_n: int | None
    n: int
    base_n: int
    cut: str


def tree_of(found: Phases | None, places: Places, prediction: Prediction) -> CallTree:
    """Return the call paths of phases with the times of a prediction; without, phases alone."""
    if found is None:
        return _of_phases(prediction)
    made = _Builder(found, places, prediction)
    root = Node("program", "whole program")
    made.fill(root, found.tree, [], _root_phase(found))
    made.measure(root)
    _join_functions(root)
    cut = _prune_nodes(root)
    return CallTree(root, made.count, prediction.last.n, prediction.baseline_n, cut)


def _root_phase(found: Phases) -> int | None:
    return next((phase.phase for phase in found.phases if phase.loop == found.tree.loop), None)


class _Builder:
    """Makes the nodes of a tree."""

    def __init__(self, found: Phases, places: Places, prediction: Prediction) -> None:
        self.found, self.places = found, places
        self.count = found.counts[-1]
        self.of_loop = {phase.loop: phase for phase in found.phases}
        self.owner: dict[int, int | None] = {}
        self.size: dict[int | None, int] = {}
        self.last = _spent(prediction.last, found)
        self.base = _spent(prediction.base, found)

    def fill(self, node: Node, loop: Loop, around: Sequence[FrameInfo], phase: int | None) -> None:
        """Add what is in a loop to its node; ``around``: functions that it is in."""
        for item in loop.body:
            if isinstance(item, Loop):
                self._loop(node, item, around, phase)
            else:
                self._call(node, item, around, phase)

    def _loop(self, node: Node, loop: Loop, around: Sequence[FrameInfo], phase: int | None) -> None:
        own = self.of_loop.get(loop.loop)
        paths = [self._path(call) for call in loop.calls()]
        common = _common(paths, len(around))
        inside = self._functions(node, around, common)
        trips = loop.trips.get(self.count)
        often = "" if trips is None else f"× {turns(trips, loop not in self.found.tree.body)}"
        name = "loop" if own is None else visible(own.name, 80)
        made = Node("loop", name, often, "" if own is None else str(own.phase))
        inside.body.append(made)
        self.fill(made, loop, common, phase if own is None else own.phase)

    def _call(self, node: Node, call: Call, around: Sequence[FrameInfo], phase: int | None) -> None:
        path = self._path(call)
        inside = self._functions(node, around, path)
        at = path[-1] if path else FrameInfo("?")
        where = at.name.removeprefix(f"{at.function} ") if at.line else ""
        self.owner[call.call] = phase
        self.size[phase] = self.size.get(phase, 0) + 1
        inside.body.append(Node("call", visible(call.op, 60), visible(where, 80), calls=[call]))

    def _functions(
        self, node: Node, around: Sequence[FrameInfo], path: Sequence[FrameInfo]
    ) -> Node:
        """Return the node of the innermost function of a path, made where there is none."""
        for where in path[len(around) :]:
            name = visible(where.function or where.name, 120)
            there = (each for each in node.body if each.kind == "function" and each.name == name)
            inner = next(there, None)
            if inner is None:
                inner = Node("function", name)
                node.body.append(inner)
            node = inner
        return node

    def _path(self, call: Call) -> list[FrameInfo]:
        """Return the functions around a call, outermost first."""
        frames = stack(self.found.sites.get(call.site, ()), self.places)
        known = [w for w in frames if (w.function or w.line) and not w.module.startswith(PASS_ON)]
        named = [w for w in known if not w.function.startswith(("_start", "__libc_start"))]
        return named[::-1]

    def measure(self, node: Node) -> list[Call]:
        """Give a node and all inside their times; return its calls."""
        for each in node.body:
            node.calls += self.measure(each)
        times = [call.time_ns[self.count] for call in node.calls if self.count in call.time_ns]
        node.traced_s = sum(times) / self.count / 1e9 if times else None
        held: dict[int | None, int] = {}
        for call in node.calls:
            owner = self.owner[call.call]
            held[owner] = held.get(owner, 0) + 1
        if all(self.size[phase] == number for phase, number in held.items()):
            node.spent, node.before = (
                _together(by_phase, held) for by_phase in (self.last, self.base)
            )
        return node.calls


def _common(paths: Sequence[Sequence[FrameInfo]], least: int) -> list[FrameInfo]:
    """Return the functions that all paths begin with, at least so many."""
    if not paths:
        return []
    common = list(paths[0])
    for path in paths[1:]:
        same = 0
        for one, other in zip(common, path, strict=False):
            if (one.function, one.file) != (other.function, other.file):
                break
            same += 1
        common = common[: max(same, least)]
    return common


def _spent(row: Count, found: Phases) -> dict[int | None, Spent]:
    """Return the times of phases by number; start and end belong to what is outside of loops."""
    names = {phase.phase: phase.name for phase in found.phases}
    spent: dict[int | None, Spent] = {}
    for phase in row.phases:
        number = REST if phase.phase in (START, END) else phase.phase
        if phase.kind == "loop" and names.get(number, phase.name) != phase.name:
            continue  # the runs are others than those of the prediction
        spent[number] = spent.get(number, Spent()) + of_phase(phase)
    return spent


def of_phase(phase: PhaseAt) -> Spent:
    """Return the time of a phase by its parts; communication that is not split stays whole."""
    return +Counter(kinds_of(phase))


def _together(spent: Mapping[int | None, Spent], phases: Mapping[int | None, int]) -> Spent | None:
    """Return the time of phases; None where one of them has none."""
    if not spent.keys() >= phases.keys():
        return None
    return sum((spent[phase] for phase in phases), Spent())


def _join_functions(node: Node) -> None:
    """Make functions that hold one function and nothing else one node with it."""
    for k, each in enumerate(node.body):
        while each.kind == "function" and len(each.body) == 1 and each.body[0].kind == "function":
            (inner,) = each.body
            inner.name = f"{each.name} › {inner.name}"
            each = inner
        node.body[k] = each
        _join_functions(each)


def _prune_nodes(root: Node, most: int = MAX_NODES) -> str:
    """Leave out the nodes with least time beyond ``most``; say how many that were."""
    nodes = [node for _, node in root.walk()]
    if len(nodes) <= most:
        return ""
    weights = {id(node): weight(node, root) for node in nodes}
    kept = {id(n) for n in sorted(nodes, key=lambda n: -weights[id(n)])[:most]}
    for node in nodes:  # a node weighs no more than what it is in
        node.body = [each for each in node.body if id(each) in kept]
    return f"{len(nodes) - most:,} nodes with the least time are left out."


def weight(node: Node, root: Node) -> float:
    """Return the largest share of the time that a node has."""
    traced = (node.traced_s or 0.0) / root.traced_s if root.traced_s else 0.0
    if node.spent is None or not root.spent:
        return traced
    return max(traced, node.spent.total() / root.spent.total())


def _of_phases(prediction: Prediction) -> CallTree:
    """Return the phases as a tree of one level."""
    base = {phase.phase: of_phase(phase) for phase in prediction.base.phases}
    root = Node("program", "whole program")
    for phase in sorted(prediction.last.phases, key=lambda each: -each.time_s):
        node = Node("loop", visible(phase.name, 80), "", str(phase.phase))
        node.spent, node.before = of_phase(phase), base.get(phase.phase)
        root.body.append(node)
    root.spent = sum((each.spent or Spent() for each in root.body), Spent())
    root.before = sum(base.values(), Spent())
    return CallTree(
        root, None, prediction.last.n, prediction.baseline_n, _prune_nodes(root, MAX_PHASES)
    )
