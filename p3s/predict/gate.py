"""Conditions on a prediction, for continuous integration: ``efficiency@1024 < 0.6``.

    condition = side ("<" | "<=" | ">" | ">=") side
    side      = number [unit] | [number "*"] quantity
    quantity  = ["base."] name [".low" | ".high"] ["@" count]
    count     = whole number | "smallest" | "largest"

Nothing in a condition is ever executed: it is cut into words, and the words are looked up.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from p3s.base.arrays import Floats
from p3s.base.errors import P3SError, UsageError
from p3s.base.text import join_words, likely, processes
from p3s.predict.commands import Proposals
from p3s.predict.rows import draw_times
from p3s.predict.times import ratio
from p3s.predict.types import CHANCE_LIMIT, Count, Prediction, Recommended, filter_untrusted

#: A longer condition is a mistake.
MAX_LENGTH = 500

#: What a value is, for people and for the check that two sides can be compared.
TIME, COST, RATIO, COUNT = "a time", "core hours", "a ratio", "a process count"

#: Units by name: what they measure, and how much of s, core hours or 1 they are.
UNITS: dict[str, tuple[str, float]] = {
    "ns": (TIME, 1e-9),
    "us": (TIME, 1e-6),
    "ms": (TIME, 1e-3),
    "s": (TIME, 1.0),
    "min": (TIME, 60.0),
    "h": (TIME, 3600.0),
    "core-h": (COST, 1.0),
    "%": (RATIO, 0.01),
    "x": (RATIO, 1.0),
}


@dataclass(frozen=True)
class _Quantity:
    """A quantity by its keys in prediction.json: value, low and high end ("": it has none)."""

    kind: str
    value: str
    low: str = ""
    high: str = ""
    per_count: bool = True


#: Quantities by name. Efficiency and cost have the ends of the times they are made of.
QUANTITIES: dict[str, _Quantity] = {
    "time": _Quantity(TIME, "time_s", "low_s", "high_s"),
    "speedup": _Quantity(RATIO, "speedup", "speedup_low", "speedup_high"),
    "efficiency": _Quantity(RATIO, "efficiency", "speedup_low", "speedup_high"),
    "cost": _Quantity(COST, "cost_core_h", "low_s", "high_s"),
    "compute": _Quantity(TIME, "compute_s"),
    "communication": _Quantity(TIME, "comm_s"),
    "transfer": _Quantity(TIME, "transfer_s"),
    "waiting": _Quantity(TIME, "waiting_s"),
    "software": _Quantity(TIME, "software_s"),
    "knee": _Quantity(COUNT, "knee", per_count=False),
    "recommended": _Quantity(COUNT, "recommended", per_count=False),
    "unknown": _Quantity(RATIO, "unknown_share", per_count=False),
    "extrapolation": _Quantity(RATIO, "extrapolation_ratio", per_count=False),
}

_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}

_NUMBER = r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?"
_NAME = r"core-h|[A-Za-z]+|%"
#: All that a condition is made of, and one side of it.
_WORDS = re.compile(rf"(?:\s*(?:{_NUMBER}|{_NAME}|[<>]=?|[@*.]))*", re.ASCII)
_SIDE = re.compile(
    rf"\s*(?:(?P<number>{_NUMBER})\s*(?P<times>\*)?\s*)?(?:(?P<base>base)\s*\.\s*)?"
    rf"(?P<name>{_NAME})?(?:\s*\.\s*(?P<end>\w*))?(?:\s*@\s*(?P<at>[\w.]*))?\s*(?P<rest>.*)",
    re.ASCII,
)


@dataclass(frozen=True)
class Side:
    """One side of a condition: ``factor`` times a quantity, or ``factor`` alone of a kind.

    ``kind`` is None for a plain number, which is taken in the unit of the other side. ``end`` is
    "", "low" or "high"; ``at`` a count, "smallest" or "largest", "" where it is of none.
    """

    factor: float
    kind: str | None
    name: str = ""
    end: str = ""
    at: int | str = ""
    base: bool = False


@dataclass(frozen=True)
class Condition:
    """A comparison, with the words it was read from."""

    text: str
    left: Side
    sign: str
    right: Side

    @property
    def needs_base(self) -> bool:
        """Whether it names a value of another prediction."""
        return self.left.base or self.right.base


class SavedPrediction(Protocol):
    """A prediction and its file, None where it is in none."""

    @property
    def content(self) -> Prediction: ...

    @property
    def source(self) -> Path | None: ...


@dataclass(frozen=True)
class _UnsavedPrediction:
    """A prediction that is in no file."""

    content: Prediction
    source: None = None


@dataclass(frozen=True)
class Value:
    """A value and its interval (``low`` and ``high`` equal to it where there is none).

    draws: joint draws of it, (NUMBER,), None where it has none.
    """

    value: float
    low: float
    high: float
    known: bool
    kind: str | None
    draws: Floats | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Finding:
    """What became of a condition.

    ``met``: whether it is true of the values; ``certain``: whether it is so anywhere in their
    intervals, None where a value has no interval that is known; ``chance``: how likely it is true,
    by joint draws. ``values``: per quantity its text, value, low and high (the value itself where
    there is no interval), unit.
    """

    condition: Condition
    met: bool
    certain: bool | None
    values: tuple[tuple[str, Value], ...]
    chance: float | None = None


def parse(text: str) -> Condition:
    """Read a condition; raises UsageError that says what is wrong with it and where."""
    text = " ".join(text.split())[: MAX_LENGTH + 1]
    if len(text) > MAX_LENGTH:
        raise UsageError(f"condition {text[:40]!r}... is longer than {MAX_LENGTH}")
    try:
        return _condition(text)
    except ValueError as err:
        raise UsageError(f"condition {text!r}: {err}") from None


def _condition(text: str) -> Condition:
    """Return a condition; raises ValueError that says what is wrong with it."""
    words = _WORDS.match(text)
    if words is not None and (strange := text[words.end() :]):
        raise ValueError(f"{strange.split()[0][:20]!r} cannot be read")
    before, *signs = re.split("(<=|>=|<|>)", text, maxsplit=1)
    left, rest = _side(before)
    if rest or not signs:
        raise ValueError(f"{_first(rest)} where one of {' '.join(_COMPARE)} was expected")
    right, rest = _side(signs[1])
    if rest:
        raise ValueError(f"{_first(rest)} after the condition; give --fail-if once per condition")
    if not (left.name or right.name):
        raise ValueError(f"it names no quantity ({', '.join(QUANTITIES)})")
    if None not in (left.kind, right.kind) and left.kind != right.kind:
        raise ValueError(f"{left.kind} cannot be compared with {right.kind}")
    return Condition(text, left, signs[0], right)


def _side(text: str) -> tuple[Side, str]:
    """Return what begins a text, and the rest of it."""
    found = _SIDE.match(text)
    assert found is not None, "it may be empty"
    number, name, end, at = found["number"], found["name"] or "", found["end"], found["at"]
    factor = float(number) if number else 1.0
    if not math.isfinite(factor):
        raise ValueError(f"{number!r} is too large")
    if number and not found["times"]:
        if name in UNITS and not found["base"]:
            unit, size = UNITS[name]
            return Side(factor * size, unit), text[found.end("name") :].strip()
        return Side(factor, None), text[found.end("number") :].strip()
    if name not in QUANTITIES:
        known = ", ".join(QUANTITIES)
        raise ValueError(f"{_first(name or found['rest'])} is no quantity; they are {known}")
    quantity = QUANTITIES[name]
    if end is not None and end not in ("low", "high"):
        raise ValueError(f"{name}.{end}: the ends of an interval are low and high")
    if end and not quantity.low:
        having = ", ".join(each for each, one in QUANTITIES.items() if one.low)
        raise ValueError(f"{name} has no interval; {having} have one")
    if not quantity.per_count and at is not None:
        raise ValueError(f"{name} is not of one count: write it without @")
    if quantity.per_count and at is None:
        raise ValueError(f"{name} of which count? write {name}@1024 or {name}@largest")
    named = at in ("smallest", "largest", None)
    if not named and not (at.isdigit() and len(at) <= 9 and int(at) > 0):
        raise ValueError(f"{name}@{at}: after @ comes a process count, smallest or largest")
    count = (at or "") if named else int(at)
    return Side(factor, quantity.kind, name, end or "", count, bool(found["base"])), found["rest"]


def _first(text: str) -> str:
    return repr(text.split()[0]) if text else "the end"


def check(
    condition: Condition, prediction: SavedPrediction, base: SavedPrediction | None = None
) -> Finding:
    """Return whether a condition is true of a prediction, and of ``base`` where it names that.

    Raises UsageError for a count or a base that is not there, P3SError for a value that is null.
    """
    sides = []
    named: list[tuple[str, Value]] = []
    for side in (condition.left, condition.right):
        value = _value(condition, side, base if side.base else prediction)
        sides.append(value)
        if side.name:
            one = _scale_value(value, 1.0 / side.factor) if side.factor else value
            named.append((_name_side(side), one))
    left, right = sides
    compare = _COMPARE[condition.sign]
    met = compare(left.value, right.value)
    certain: bool | None = None
    if left.known and right.known:
        ends = {compare(a, b) for a in (left.low, left.high) for b in (right.low, right.high)}
        certain = len(ends) == 1
    drawn = [np.array(side.value) if side.draws is None else side.draws for side in sides]
    chance = float(np.mean(compare(*drawn))) if certain is not None else None  # type: ignore[arg-type]
    return Finding(condition, met, certain, tuple(named), chance)


def _name_side(side: Side) -> str:
    at = f"@{side.at}" if side.at else ""
    return f"{'base.' if side.base else ''}{side.name}{'.' if side.end else ''}{side.end}{at}"


def _value(condition: Condition, side: Side, prediction: SavedPrediction | None) -> Value:
    if not side.name:
        return Value(side.factor, side.factor, side.factor, True, side.kind)
    if prediction is None:
        raise UsageError(f"{condition.text!r}: names base, so say whose: --base STUDY")
    quantity, content = QUANTITIES[side.name], prediction.content
    row = _row(condition, side, prediction) if quantity.per_count else None
    at = f" at {processes(row.n)}" if row else ""
    found, low, high = (
        getattr(row or content, key) if key else None
        for key in (quantity.value, quantity.low, quantity.high)
    )
    if isinstance(found, Recommended):
        found = found.n
    if row and side.name in ("efficiency", "cost"):  # goes with the speedup or the time
        per = content.baseline_n / row.n if side.name == "efficiency" else row.n / 3600.0
        low, high = (None if end is None else end * per for end in (low, high))
    if found is None and side.name == "knee":  # not reached: somewhere above the largest count
        return _scale_value(Value(math.inf, content.last.n, math.inf, True, COUNT), side.factor)
    if side.end:
        found = low = high = low if side.end == "low" else high
    if found is None:
        what = "has no interval that is" if side.end else "is not"
        raise P3SError(f"{condition.text!r}: {side.name}{at} {what} known")
    known = row is None or None not in (low, high)
    value = Value(
        found,
        found if low is None else min(low, found),
        found if high is None else max(high, found),
        known,
        quantity.kind,
        _draws(side, row, content) if row and not side.end else None,
    )
    return _scale_value(value, side.factor)


def _draws(side: Side, row: Count, content: Prediction) -> Floats | None:
    """Return joint draws of a quantity of a count; None where it has none."""
    mine, base = draw_times(row), draw_times(content.base)
    if mine is None or side.name not in ("time", "cost", "speedup", "efficiency"):
        return None
    if side.name in ("time", "cost"):
        return mine if side.name == "time" else mine * row.n / 3600.0
    if row is content.base:
        return None
    share = content.baseline_n / row.n if side.name == "efficiency" else 1.0
    work = row.speedup * row.time_s / content.base.time_s  # more of it in weak scaling
    return ratio(base, mine, share * work)


def _row(condition: Condition, side: Side, prediction: SavedPrediction) -> Count:
    rows = {row.n: row for row in prediction.content.counts}
    at = {"smallest": min(rows), "largest": max(rows)}.get(str(side.at), side.at)
    if at not in rows:
        commands = Proposals(str(prediction.source.parent) if prediction.source else "")
        raise UsageError(
            f"{condition.text!r}: {prediction.source or 'the prediction'} does not have "
            f"{processes(int(at))}, but {join_words(rows)}; predict it first: "
            f"{commands.predict(int(at))}"
        )
    return rows[int(at)]


def _scale_value(value: Value, factor: float) -> Value:
    if factor == 1.0:
        return value
    return replace(
        value,
        value=_times(factor, value.value),
        low=_times(factor, value.low),
        high=_times(factor, value.high),
        draws=None if value.draws is None else factor * value.draws,
    )


def _times(factor: float, value: float) -> float:
    return 0.0 if factor == 0 else factor * value


# ---- a demand: p3s predict --at-least --------------------------------------------------------
@dataclass(frozen=True)
class Answer:
    """Whether a demand is met at a count: yes, no, or cannot tell, and how likely it is."""

    demand: str
    n: int
    said: str
    chance: float | None

    @property
    def text(self) -> str:
        """The answer in one line."""
        how = "" if self.chance is None else f" ({likely(self.chance)})"
        return f"{self.demand} at {processes(self.n)}: {self.said}{how}"


def answer_demand(text: str, found: Prediction, n: int) -> Answer:
    """Return whether a prediction meets a demand at a count.

    ``text``: so many times as fast as at the largest traced count below (1.1x), an efficiency of so
    much (50%), or a time of at most so much (12s). Cannot tell: the prediction is unusable, its
    interval is not known, or neither answer is likely enough.
    """
    smaller = [row.n for row in found.counts if row.n < n and row.n in found.traced_counts]
    demand = parse_demand(text, n, max(smaller, default=found.baseline_n))
    return settled(text, demand, found, n)


def settled(text: str, demand: Condition, found: Prediction, n: int) -> Answer:
    """Return whether a prediction meets a condition at a count; text: the demand in words."""
    chance = check(demand, _UnsavedPrediction(found)).chance
    chance = None if filter_untrusted(found.reasons) else chance
    if chance is None or CHANCE_LIMIT < chance < 1.0 - CHANCE_LIMIT:
        return Answer(text, n, "cannot tell", chance)
    return Answer(text, n, "yes" if chance > 0.5 else "no", chance)


def parse_demand(text: str, n: int = 2, before: int = 1) -> Condition:
    """Return a demand as a condition that is true where it is met; UsageError where it is none."""
    try:
        side, rest = _side(text)
    except ValueError:
        side, rest = Side(0.0, None), text
    if rest or side.name or side.kind not in (TIME, RATIO):
        raise UsageError(
            f"--at-least {text}: write how many times as fast as at the largest traced count "
            "(1.1x), an efficiency (50%) or a time (12s)"
        )
    if side.kind == TIME:
        return parse(f"time@{n} <= {text}")
    if text.strip().endswith("%"):
        return parse(f"efficiency@{n} >= {text}")
    return parse(f"{side.factor!r} * time@{n} <= time@{before}")
