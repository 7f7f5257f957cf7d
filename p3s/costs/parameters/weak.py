"""Weak scaling: a parameter that grows with the process count by a law the user states.

size~n^0.5: the value at n0, the smallest traced count, times (n / n0)**0.5; size~100*n: 100 n
itself. Laws are read by a small parser of their own: NAME~[NUMBER*]n[^EXPONENT], the exponent a
number or a fraction in brackets.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from p3s.base.errors import UsageError
from p3s.base.settings import parse_value, value_text
from p3s.base.text import processes

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
