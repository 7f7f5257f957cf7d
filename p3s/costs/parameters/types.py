"""The laws of the parameters: what one file, family.json, holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from p3s.base.errors import P3SError
from p3s.base.ops import COMPLETION
from p3s.base.serialise import from_data, to_data
from p3s.base.settings import Setting, without_threads
from p3s.costs.parameters.tree import leaves_of
from p3s.laws import lawfinder
from p3s.laws.exact import value_at
from p3s.laws.expr import Expr, num
from p3s.laws.lawfinder import find_law
from p3s.laws.symbolic import to_text
from p3s.laws.worklaws import Powers
from p3s.model.comparison import HoldOut, Summary
from p3s.model.work_types import Segment

#: A law is exact, with a value to spare; open: as many numbers as values, or rivals; fitted: real.
EXACT, OPEN, FITTED = "exact", "open", "fitted"


@dataclass(frozen=True)
class Number:
    """A number as a law of the parameters.

    state: EXACT, OPEN or FITTED. expr: an expression whose symbols are parameters, None for a
    fitted one; then ``terms`` are [coefficient, powers of the parameters], ``error`` their
    relative error at a setting left out. whole: all values were whole numbers. rivals: other
    exact laws that meet the values.
    """

    state: str
    expr: Expr | None = None
    terms: tuple[tuple[float, tuple[float, ...]], ...] = ()
    error: float = 0.0
    whole: bool = True
    rivals: tuple[Expr, ...] = ()

    def value(self, setting: Setting) -> Fraction | float:
        """Return the number at a setting, as the law says it; never rounded."""
        if self.expr is not None:
            found = value_at(self.expr, setting)
            if found is not None:
                return found
            raise P3SError("model: a law of the parameters has no value there")
        own = without_threads(setting)
        return Powers(tuple(own), self.terms, self.error).value(own)

    def settled(self, setting: Setting) -> bool:
        """Tell whether the law is exact and gives a number of the right kind at a setting."""
        if self.state != EXACT:
            return False
        value = self.value(setting)
        return not self.whole or (isinstance(value, Fraction) and value.denominator == 1)


def with_values(expr: Any, setting: Setting) -> Any:
    """Return an expression with the values of the parameters in the place of their symbols."""
    if not isinstance(expr, list):
        return expr
    if expr[0] == "sym" and expr[1] in setting:
        return num(setting[expr[1]])
    return [with_values(part, setting) for part in expr]


def find_number(settings: Sequence[Setting], values: Sequence[Fraction | float]) -> Number:
    """Return the law of a number with one value at each of the settings (at least one).

    The threads of a process are the same at all of them, and in no law.
    """
    settings = [without_threads(setting) for setting in settings]
    exact = [Fraction(v) if not isinstance(v, float) or v.is_integer() else v for v in values]
    rational = not any(isinstance(v, float) for v in exact)
    whole = rational and all(Fraction(v).denominator == 1 for v in exact)
    found = find_law(
        zip(settings, exact, strict=True), "any" if rational else "work", of="parameters"
    )
    if found.powers is not None:
        return Number(FITTED, None, found.powers.terms, found.powers.error, whole)
    state = EXACT if found.verdict == lawfinder.EXACT else OPEN
    return Number(state, found.expr, whole=whole, rivals=found.rivals)


@dataclass(frozen=True)
class Means:
    """A law of means: at each process count the mean as a law of the parameters.

    amount: of a size, which goes with the extents of the process grid, not with the count alone.
    """

    state: Literal["fitted"]
    amount: bool
    counts: tuple[tuple[int, Number], ...]


#: Told apart by the keys of Means, which a number lacks.
Law = Number | Means


@dataclass(frozen=True)
class SegmentLaws:
    """Laws of the work of segments, by where they start and end ("site:op > site:op").

    Expressions hold numbers of laws (``{"law": k}``) and symbols of the parameters.
    """

    segments: Mapping[str, Segment]


@dataclass(frozen=True)
class MissedRules:
    """What the laws fitted without the last setting got wrong there: (site, op, tag) of calls, and
    the calls of phases whose iterations were missed.
    """

    calls: tuple[tuple[str, str, int | None], ...]
    phases: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Part:
    """Settings that are alike and the laws of their numbers.

    tree: of rules, its numbers replaced by numbers of laws (p3s.costs.parameters.tree); where: the
    place of each law in it. holdout: of the last setting.
    """

    settings: tuple[str, ...]
    tree: Mapping[str, Any]
    where: tuple[str, ...]
    laws: tuple[Law, ...]
    work: SegmentLaws
    holdout: HoldOut
    missed: MissedRules


@dataclass(frozen=True)
class SettingInfo:
    """A traced setting, its process counts, and whether they are enough for a model."""

    name: str
    counts: tuple[int, ...]
    modelled: bool


@dataclass(frozen=True)
class Check:
    """The laws compared with a run of a setting without a model; summary: None where ``why`` says
    why that cannot be.
    """

    name: str
    why: str = ""
    equal: bool = False
    summary: Summary | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the check as plain data."""
        if self.summary is None:
            return {"name": self.name, "possible": False, "why": self.why}
        head = {"name": self.name, "possible": True, "equal": self.equal}
        return {**head, **to_data(self.summary)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Check:
        """Return the check from :meth:`to_json` data."""
        name = str(data["name"])
        if not data["possible"]:
            return Check(name, str(data["why"]))
        known = {k: v for k, v in data.items() if k not in ("name", "possible", "equal")}
        return Check(name, "", data["equal"] is True, from_data(Summary, known))


@dataclass(frozen=True)
class Family:
    """The laws of a study's parameters: of settings that are alike; alone: why others are not."""

    parameters: tuple[str, ...]
    settings: tuple[SettingInfo, ...]
    alone: Mapping[str, str]
    parts: tuple[Part, ...]
    checks: tuple[Check, ...]


# ---- as text ------------------------------------------------------------------------------------
def rules(part: Part) -> list[str]:
    """Return a line per distinct rule of an item or phase that follows the parameters."""
    found: dict[str, dict[str, None]] = {}
    for item in part.tree["items"]:
        op = item["op"].removeprefix("MPI_")
        for slot in item["slots"]:
            for key, name in (("elements", "elements"), ("count", "calls of a rank")):
                if key == "elements" and item["kind"] == COMPLETION:
                    continue
                for text in _texts(slot[key], part.laws):
                    found.setdefault(f"{name} = {text}", {})[op] = None
    for phase in part.tree["phases"]:
        for text in _texts(phase["weight"], part.laws):
            found.setdefault(f"weight = {text}", {})[phase["name"]] = None
    return [f"{text}   {', '.join(names)}" for text, names in found.items()]


def is_ordered(part: Part) -> bool:
    """Tell whether the order of events follows rules that hold at all settings."""
    return part.tree["order"] is not None


def _texts(law: Any, laws: Sequence[Law]) -> list[str]:
    """Return the equations in a law that follow the parameters, with how sure they are."""
    if not isinstance(law, dict):
        return []
    out = []
    for key in ("expr", "total"):
        if key in law and (used := leaves_of(law[key])):
            states = {laws[k].state for k in used}
            state = next(s for s in ("fitted", "open", "exact") if s in states)
            out.append(f"{_text(law[key], laws)}  [{state}]")
    if "stat" in law and "points" in law["stat"]:
        out.append("means, fitted  [fitted]")
    return out


def _text(expr: Any, laws: Sequence[Law]) -> str:
    """Return an expression as text, exact laws of the parameters in place."""

    def shown(tree: Any) -> Any:
        if isinstance(tree, list):
            if len(tree) == 2 and tree[0] == "num" and isinstance(tree[1], dict):
                return _number(laws[tree[1]["law"]])
            return [shown(part) for part in tree]
        return tree

    return to_text(shown(expr))


def _number(law: Law) -> Any:
    """Return a number as an expression in the parameters; one without an exact law, rounded."""
    if not isinstance(law, Number):
        raise TypeError("a law of means is no number")
    exact = law.expr if law.state != FITTED else None
    return exact or ["num", round(sum(c for c, _ in law.terms)), 1]
