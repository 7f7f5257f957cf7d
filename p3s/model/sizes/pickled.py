"""Sizes of objects that were put into bytes: a head and the elements, as mpi4py pickles arrays.

The bytes of all ranks of a line are as many heads as there are ranks, and the elements of one
extent: two counts tell both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np

from p3s.laws.expr import add, mul, num
from p3s.model.sizes.blocks import ExtentPool, FittedSize, Observations
from p3s.model.sizes.elements import distinct, fit_alone

#: Bytes of an element, and the longest head that is believed.
_WIDTHS, _LONGEST_HEAD = (8, 4, 16, 2), 4096


def fit_pickled(obs: Observations, pool: ExtentPool) -> FittedSize | None:
    """Return the law of sizes in bytes as a head and elements, or None."""
    obs = distinct(obs)
    if not obs.whole or not len(obs.value):
        return None
    step = int(np.gcd.reduce(obs.value - obs.value.min()))
    for head in dict.fromkeys(_heads(obs)):
        for width in (w for w in _WIDTHS if step and step % w == 0):
            if np.any((obs.value - head) % width):
                continue
            law = fit_alone(replace(obs, value=(obs.value - head) // width), pool)
            if law is not None and law.expr[0] != "num":
                return _with_head(law, head, width)
    return None


def _heads(obs: Observations) -> Iterator[int]:
    """Yield the lengths of the head by which all ranks of some line have one extent."""
    counts = np.unique(obs.env["n"])
    means = [Fraction(int(v.sum()), len(v)) for n in counts for v in [obs.value[obs.env["n"] == n]]]
    for name in ("n", *(f"p{d}" for d in range(obs.ndims))):
        ranks = [int(obs.env[name][obs.env["n"] == n][0]) for n in counts]
        totals = [p * mean for p, mean in zip(ranks, means, strict=True)]
        slopes = {
            (b - a) / (q - p)
            for p, q, a, b in zip(ranks, ranks[1:], totals, totals[1:], strict=False)
            if q != p
        }
        head = slopes.pop() if len(slopes) == 1 else Fraction(0)
        if head.denominator == 1 and 0 < head <= min(_LONGEST_HEAD, int(obs.value.min())):
            yield int(head)


def _with_head(law: FittedSize, head: int, width: int) -> FittedSize:
    """Return a law of elements as one of bytes."""
    expr, *others = (add(num(head), mul(num(width), e)) for e in (law.expr, *law.others))
    return replace(law, expr=expr, others=tuple(others), free=law.free + 1)
