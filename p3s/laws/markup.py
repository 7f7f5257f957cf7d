"""Pieces of MathML, as p3s.laws.symbolic and the laws put them together."""

from __future__ import annotations

from collections.abc import Sequence

#: Between factors.
GAP = '<mspace width="0.17em"/>'
MOD = '<mo lspace="0.3em" rspace="0.3em">mod</mo>'
_LOG2 = "<msub><mi>log</mi><mn>2</mn></msub>"
LOG2_N = f"<mrow>{_LOG2}{GAP}<mi>n</mi></mrow>"


def row(*parts: str) -> str:
    """Return parts as one; a single one stays as it is."""
    return parts[0] if len(parts) == 1 else f"<mrow>{''.join(parts)}</mrow>"


def number(value: float) -> str:
    """Return a number with four figures."""
    mantissa, _, exponent = f"{value:.4g}".replace("-", "−").partition("e")
    if not exponent:
        return f"<mn>{mantissa}</mn>"
    sign = "−" * (exponent[0] == "−")
    power = f"<msup><mn>10</mn><mn>{sign}{int(exponent[1:])}</mn></msup>"
    return row(f"<mn>{mantissa}</mn>", "<mo>·</mo>", power)


def fenced(inner: str) -> str:
    """Return a part in brackets."""
    return row("<mo>(</mo>", inner, "<mo>)</mo>")


def fraction(over: Sequence[str], under: Sequence[str]) -> str:
    """Return a product, over another one if there is one; factors of one are left out."""
    above = [factor for factor in over if factor != "<mn>1</mn>"] or ["<mn>1</mn>"]
    line = row(*_with(GAP, above))
    return f"<mfrac>{line}{row(*_with(GAP, under))}</mfrac>" if under else line


def total(terms: Sequence[str]) -> str:
    """Return a sum."""
    return row(*_with("<mo>+</mo>", terms)) if terms else "<mn>0</mn>"


def listed(parts: Sequence[str]) -> str:
    """Return several formulas with commas between them."""
    return row(*_with("<mo>,</mo>", parts))


def _with(sign: str, parts: Sequence[str]) -> list[str]:
    return [piece for part in parts for piece in (sign, part)][1:]
