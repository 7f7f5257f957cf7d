"""A flame graph of the predicted time, whose colours say what grows from the smallest count on.

The root is on top. A frame is as wide as its time at the largest count; its colour is how much of
the core time (processes x time) has been added since the smallest count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from p3s.base.text import factor, percent, processes, seconds
from p3s.report.call_tree import PARTS, CallTree, Node, Spent
from p3s.report.costs import KIND_NAMES

WIDTH, ROW, GAP, LETTER = 1120.0, 24.0, 1.0, 7.7
#: Frames narrower than this share are left out.
LEAST = 0.002
#: Core time over that at the smallest count: below which it has the colour of its place.
STEPS = (0.8, 1.25, 2.0, 5.0)
STEP_NAMES = ("shrinks", "stays: it scales", "up to 2x", "2 to 5x", "more than 5x, or new")


def legend() -> list[tuple[str, str]]:
    """Return the classes of the colours, and what they mean."""
    return [(f"g-{k}", name) for k, name in enumerate(STEP_NAMES)]


@dataclass(frozen=True)
class Frame:
    """A frame: its place (shares of the width, level), name, time now and at the smallest count."""

    x: float
    width: float
    level: int
    name: str
    now: Spent
    then: Spent | None


def frames_of(tree: CallTree) -> list[Frame]:
    """Return the frames of a tree from the top down, those of one level from left to right."""
    root = tree.root
    if not root.spent:
        return []
    whole = root.spent.total()
    return [frame for frame in _frames(root, 0.0, 0, whole) if frame.width >= LEAST]


def _frames(node: Node, x: float, level: int, whole: float) -> Iterator[Frame]:
    if node.spent is None:
        return
    name = node.name if not node.phase else f"{node.name} (phase {node.phase})"
    yield Frame(x, node.spent.total() / whole, level, name, node.spent, node.before)
    inner = [(each, each.spent) for each in _yield_timed(node) if each.spent]
    for each, spent in sorted(inner, key=lambda pair: -pair[1].total()):
        yield from _frames(each, x, level + 1, whole)
        x += spent.total() / whole
    for part in PARTS:
        now = _subtract_inner(node.spent, [spent for _, spent in inner], part)
        before = _subtract_inner(node.before, [each.before for each, _ in inner], part)
        if now:
            yield Frame(x, now.total() / whole, level + 1, KIND_NAMES[part], now, before)
            x += now.total() / whole


def _yield_timed(node: Node) -> Iterator[Node]:
    """Yield the nodes in one that have a time; of those that have none what is in them."""
    for each in node.body:
        if each.spent is None:
            yield from _yield_timed(each)
        elif each.kind != "call":
            yield each


def _subtract_inner(whole: Spent | None, inner: Sequence[Spent | None], part: str) -> Spent:
    """Return a part of the time of a node that is in none of those in it."""
    if whole is None:
        return Spent()
    left = whole[part] - sum(each[part] for each in inner if each is not None)
    return Spent({part: left} if left > 1e-9 * whole.total() else {})


def growth(tree: CallTree, now: Spent, then: Spent | None) -> float | None:
    """Return the core time over that at the smallest count; None where there was none."""
    return tree.n * now.total() / (tree.base_n * then.total()) if then else None


def step_of(ratio: float | None) -> int:
    """Return the place of a growth in STEP_NAMES."""
    if ratio is None:
        return len(STEPS)
    return next((k for k, limit in enumerate(STEPS) if ratio < limit), len(STEPS))


def flame_chart(tree: CallTree) -> str:
    """Return the flame graph as markup; empty where nothing takes time."""
    frames = frames_of(tree)
    if not frames:
        return ""
    high = (max(frame.level for frame in frames) + 1) * ROW
    what = f"Predicted time at {processes(tree.n)} by call path; arrow keys move, Enter enlarges"
    parts = [
        f'<svg class="flame" viewBox="0 0 {coord(WIDTH)} {coord(high)}" role="tree" '
        f'aria-label="{escape(what)}">'
    ]
    parts += [_draw_frame(tree, frame, k == 0) for k, frame in enumerate(frames)]
    return "".join([*parts, "</svg>"])


def coord(value: float) -> str:
    """Return a coordinate as text."""
    return f"{round(value, 1):g}"


def describe_frame(tree: CallTree, frame: Frame) -> str:
    """Return what a frame is, in words."""
    share = percent(frame.width)
    ratio = growth(tree, frame.now, frame.then)
    was = "did not occur" if ratio is None else f"{factor(ratio)} the core time of {tree.base_n:,}"
    return f"{frame.name}: {seconds(frame.now.total())}, {share} at {tree.n:,}; {was}"


def _draw_frame(tree: CallTree, frame: Frame, first: bool) -> str:
    x, wide, y = frame.x * WIDTH, max(frame.width * WIDTH - GAP, 0.5), frame.level * ROW
    step = step_of(growth(tree, frame.now, frame.then))
    label = shorten_start(frame.name, wide)
    words = escape(describe_frame(tree, frame))
    text = f'<text x="{coord(x + 6)}" y="{coord(y + 16)}">{escape(label)}</text>'
    return (
        f'<g class="ff g-{step}" role="treeitem" aria-level="{frame.level + 1}" '
        f'aria-label="{words}" tabindex="{0 if first else -1}" data-t="{escape(frame.name)}">'
        f"<title>{words}</title>"
        f'<rect x="{coord(x)}" y="{coord(y)}" width="{coord(wide)}" '
        f'height="{coord(ROW - GAP)}" rx="2"/>'
        f"{text}</g>"
    )


def shorten_start(name: str, wide: float) -> str:
    """Return as much of a name as has room, its end first: what is called, not by whom."""
    room = int((wide - 10) / LETTER)
    if room >= len(name):
        return name
    return f"…{name[len(name) - room + 1 :]}" if room >= 4 else ""
