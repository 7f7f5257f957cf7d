"""The laws of the parameters: what one file, family.json, holds; and those that the user states.

Weak scaling is a parameter that grows with the process count by a law the user states.
size~n^0.5: the value at n0, the smallest traced count, times (n / n0)**0.5; size~100*n: 100 n
itself. Such laws are read by a small parser of their own: NAME~[NUMBER*]n[^EXPONENT], the exponent
a number or a fraction in brackets.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from p3s.base.errors import P3SError, UsageError
from p3s.base.serialise import FileFormat
from p3s.base.settings import Setting, parse_value, value_text, without_threads
from p3s.base.text import processes
from p3s.laws import lawfinder
from p3s.laws.exact import value_at
from p3s.laws.expr import Expr, num
from p3s.laws.lawfinder import find_law
from p3s.laws.symbolic import to_text
from p3s.laws.worklaws import Powers
from p3s.model.comparison import HoldOut
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

    @property
    def shown(self) -> list[Any]:
        """The number as an expression in the parameters; one without an exact law, rounded."""
        exact = self.expr if self.state != FITTED else None
        return exact or ["num", round(sum(c for c, _ in self.terms)), 1]

    def rounded(self, setting: Setting) -> Fraction | float:
        """Return the same, of a whole number the next lower one (the nearest of a real law)."""
        value = self.value(setting)
        if not self.whole:
            return value
        if self.expr is None:
            return Fraction(max(round(float(value)), 0))
        return Fraction(Fraction(value).__floor__())

    def settled(self, setting: Setting) -> bool:
        """Tell whether the law is exact and gives a number of the right kind at a setting."""
        if self.state != EXACT:
            return False
        value = self.value(setting)
        return not self.whole or (isinstance(value, Fraction) and value.denominator == 1)


def with_values(expr: Any, values: Mapping[str, Fraction]) -> Any:
    """Return an expression with values in the place of some of its symbols."""
    if not isinstance(expr, list):
        return expr
    if expr[0] == "sym" and expr[1] in values:
        return num(values[expr[1]])
    return [with_values(part, values) for part in expr]


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

    def settled(self, setting: Setting) -> bool:
        """Tell that the law is not exact."""
        return False


#: Told apart by the keys of Means, which a number lacks.
Law = Number | Means


@dataclass(frozen=True)
class Equation:
    """What of some calls or loops follows the parameters; expr: None for fitted means.

    of: elements, calls of a rank, or weight; state: of the least sure of its numbers.
    """

    of: str
    expr: Expr | None
    state: str
    names: tuple[str, ...]

    @property
    def text(self) -> str:
        """The equation in one line."""
        return "means, fitted" if self.expr is None else to_text(self.expr)


#: A call: its site, operation and tag; with a site alone, all that is made there.
Call = tuple[str, str, int | None]


@dataclass(frozen=True)
class Part:
    """Settings that are alike and the laws of their numbers.

    ordered: whether the order of events follows rules that hold at all of them. laws: by the place
    of the number in the model (p3s.costs.parameters.alike), joined by dots. work: of segments,
    by where they start and end ("site:op > site:op"); the places of numbers are symbols there.
    holdout: of the last setting; missed: calls that the laws fitted without it got wrong there.
    """

    settings: tuple[str, ...]
    ordered: bool
    equations: tuple[Equation, ...]
    laws: Mapping[str, Law]
    work: Mapping[str, Segment]
    holdout: HoldOut
    missed: tuple[Call, ...]


@dataclass(frozen=True)
class SettingInfo:
    """A traced setting, its process counts, and whether they are enough for a model."""

    name: str
    counts: tuple[int, ...]
    modelled: bool


@dataclass(frozen=True)
class Family:
    """The laws of a study's parameters: of settings that are alike; alone: why others are not.

    checks: the laws compared with runs of settings without a model of their own.
    """

    parameters: tuple[str, ...]
    settings: tuple[SettingInfo, ...]
    alone: Mapping[str, str]
    parts: tuple[Part, ...]
    checks: tuple[HoldOut, ...]


FAMILY = FileFormat("p3s.family", 2, Family, again="run p3s model again")


_LAW = re.compile(
    r"(?P<name>[A-Za-z_]\w*)~(?:(?P<factor>[0-9.]+)\*)?n"
    r"(?:\^(?P<exponent>[0-9.]+|\([0-9.]+(?:/[0-9.]+)?\)))?",
    re.ASCII,
)
#: Largest exponent that is taken: n^4 at 1,000 processes is no size any more.
_MOST = 4
#: Significant digits of a value that is no whole number; largest value.
_DIGITS, _LARGEST = 6, 10**15


@dataclass(frozen=True)
class WeakLaw:
    """A parameter as a function of n; factor None: relative to a base value at a base count."""

    name: str
    exponent: Fraction
    factor: Fraction | None = None

    def value(self, n: int, base_n: int, base: Fraction, whole: bool) -> tuple[Fraction, bool]:
        """Return the value at ``n``, and whether it was rounded; whole: to a whole number."""
        if self.factor is None:
            exact, ratio = base, Fraction(n, base_n)
        else:
            exact, ratio = self.factor, Fraction(n)
        if self.exponent.denominator == 1:
            found = exact * ratio ** int(self.exponent)
        else:
            found = _nearly(float(exact) * float(ratio) ** float(self.exponent))
        if not found or found > _LARGEST:
            raise UsageError(
                f"--weak: {self.name} at {processes(n)} would be {float(found):.3g}; "
                "give a law that grows less"
            )
        if whole:
            rounded = Fraction(max(math.floor(found + Fraction(1, 2)), 1))
            return rounded, rounded != found
        rounded = Fraction(round(Fraction(f"{float(found):.{_DIGITS}g}") * 10**9), 10**9)
        return rounded, rounded != found

    def text(self) -> str:
        """Return the law as it is written."""
        factor = f"{value_text(self.factor)}*" if self.factor is not None else ""
        whole = self.exponent.denominator == 1
        power = (
            "" if self.exponent == 1 else f"^{self.exponent}" if whole else f"^({self.exponent})"
        )
        return f"{self.name}~{factor}n{power}"


def _nearly(value: float) -> Fraction:
    """Return a float as a fraction, whole where it is whole but for the last digits."""
    near = round(value)
    if near and abs(value - near) <= 1e-9 * abs(near):
        return Fraction(near)
    return Fraction(value)


def parse_laws(text: str) -> list[WeakLaw]:
    """Return the laws of size~n or nx~n^0.5,ny~n^0.5; UsageError for anything else."""
    out: list[WeakLaw] = []
    for word in text.replace(" ", "").split(","):
        match = _LAW.fullmatch(word)
        if match is None:
            raise UsageError(
                f"--weak {text[:60]}: {word[:40]!r} is no law; write NAME~n, "
                "NAME~n^0.5, NAME~n^(1/3) or NAME~100*n"
            )
        where = f"--weak {text[:60]}"
        raw = match["exponent"]
        exponent = Fraction(1)
        if raw is not None:
            top, _, bottom = raw.strip("()").partition("/")
            exponent = parse_value(top, where) / (parse_value(bottom, where) if bottom else 1)
        if exponent > _MOST or exponent.denominator > 1000:
            raise UsageError(
                f"{where}: the exponent {raw} is not between 0 and {_MOST} with a "
                "denominator up to 1000"
            )
        if any(law.name == match["name"] for law in out):
            raise UsageError(f"{where}: {match['name']} has two laws; give one")
        factor = parse_value(match["factor"], where) if match["factor"] else None
        out.append(WeakLaw(match["name"], exponent, factor))
    return out


def settings_along(
    laws: Sequence[WeakLaw],
    fixed: Mapping[str, Fraction],
    names: Sequence[str],
    counts: Sequence[int],
    base_n: int,
    whole: Mapping[str, bool],
) -> tuple[dict[int, dict[str, Fraction]], list[str]]:
    """Return the setting at every count, and a sentence per value that was rounded.

    fixed: the value of every parameter at ``base_n``; those without a law keep it.
    """
    by_name = {law.name: law for law in laws}
    out: dict[int, dict[str, Fraction]] = {}
    notes: list[str] = []
    for n in counts:
        out[n] = {}
        for name in names:
            if name not in by_name:
                out[n][name] = fixed[name]
                continue
            value, rounded = by_name[name].value(n, base_n, fixed[name], whole[name])
            out[n][name] = value
            if rounded:
                notes.append(f"at {processes(n)} {name} is rounded to {value_text(value)}")
    return out, notes
