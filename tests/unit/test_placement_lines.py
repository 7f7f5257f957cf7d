"""Times of phases as lines over products of features: published ones, and fitted ones."""

from __future__ import annotations

import numpy as np
import pytest

from p3s.methods.placement.lines import Line, fit_nonnegative


def line(text: str) -> Line:
    """Return a line from words such as ``5.8e-12*ppn*ND``, a constant on its own."""
    parts = [word.split("*") for word in text.split()]
    return Line(tuple(tuple(p[1:]) for p in parts), tuple(float(p[0]) for p in parts))


#: Tables 4.2 to 4.4 and 5.2 to 5.4 of the source; q = sw/r, p = n/a, u = a/c.
VILJE_IA = line(
    "6.6111e-6 5.8226e-12*ppn*ND -1.42e-13*l*ND -5.967e-11*r*ND 2.1315e-08*ppn*NM 1.0384e-09*l*NM "
    "8.1344e-08*r*NM -5.9903e-16*ppn*l*ND 1.2994e-12*ppn*r*ND 1.2228e-14*l*r*ND "
    "-4.7418e-09*ppn*r*NM -3.7129e-16*ppn*l*r*ND"
)
VILJE_IB = line(
    "7.7787e-10*l 1.2193e-06*q -6.1059e-11*l*q 2.8278e-10*ND 1.2398e-12*TD -5.7408e-15*l*ND "
    "2.6589e-11*q*ND 3.6211e-18*l*TD -1.8116e-13*q*TD 6.9513e-16*l*q*ND 2.3784e-18*l*q*TD"
)
VILJE_II = line(
    "-3.5128e-11*l -1.3962e-11*ppn*l 1.8077e-11*sw*l -1.0744e-12*ppn*l*sw 2.5808e-10*ND "
    "-3.8401e-12*ppn*ND 4.5466e-18*l*ND 1.3029e-11*sw*ND 1.5495e-19*ppn*l*ND "
    "3.5872e-13*ppn*sw*ND -1.6864e-19*l*sw*ND 2.1983e-20*ppn*l*sw*ND"
)
DAINT_IA = line(
    "1.816e-5 5.0144e-8*NM -2.927e-6*p 3.2788e-8*NM*p -6.4923e-7*c 1.3872e-8*NM*c 2.9738e-7*p*c "
    "-1.8538e-9*NM*c*p"
)
DAINT_IB = line(
    "2.0604e-5 -1.7625e-5*ppn 1.9318e-10*ND 2.7981e-7*NM 7.5479e-7*u 5.3778e-13*ppn*ND "
    "-1.9800e-8*ppn*NM 2.7822e-12*ND*u"
)
DAINT_II = line("7.0526e-5 -2.7899e-5*ppn 2.2196e-10*ND 1.4061e-11*ND*ppn")


@pytest.mark.parametrize(
    ("model", "values", "seconds"),
    [
        (VILJE_IA, {"ppn": 8, "l": 1024, "r": 2, "ND": 16384, "NM": 16}, "2.474e-05"),
        (VILJE_IB, {"l": 16384, "q": 2, "ND": 65536, "TD": 2097152}, "3.266e-05"),
        (VILJE_II, {"ppn": 8, "l": 1048576, "sw": 4, "ND": 16777216}, "4.870e-03"),
        (DAINT_IA, {"NM": 16, "p": 4, "c": 2}, "1.064e-05"),
        (DAINT_IB, {"ppn": 2, "ND": 65536, "NM": 8, "u": 8}, "7.503e-06"),
        (DAINT_II, {"ppn": 8, "ND": 16777216}, "5.458e-03"),
        (DAINT_II, {"ppn": 8, "ND": 131072}, "-1.088e-04"),
    ],
)
def test_published_lines(model, values, seconds) -> None:
    columns = {name: np.array([float(value)]) for name, value in values.items()}
    assert f"{model.seconds(columns)[0]:.3e}" == seconds


def test_no_coefficient_is_below_nothing() -> None:
    x = np.linspace(1, 100, 50)
    columns = {"a": x, "b": 1 / x, "c": np.zeros(50)}
    found = fit_nonnegative(((), ("a",), ("b",), ("c",)), columns, 2 + 3 * x)
    assert found.coefficients == pytest.approx((2, 3, 0, 0), abs=1e-9)
    falling = fit_nonnegative(((), ("a",)), columns, 200 - x)
    assert falling.coefficients[1] == 0 < falling.coefficients[0]
