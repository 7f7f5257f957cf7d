"""Expressions that are linear in their coefficients: what is read and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p3s.base.errors import UsageError
from p3s.methods.baseline.trees.prototype import parse

W, K, T = np.array([100.0, 2000.0]), np.array([4.0, 8.0]), np.array([1.0, 3.0])
COLUMNS = {"workload": W, "workers": K, "threads": T}


def test_the_thesis_s_expression_is_read() -> None:
    found = parse("b3*W**2/(K*T)+b2*W/(K*T)+b1*K+b0")  # eq. 4.3
    assert found.coefficients == ("b0", "b1", "b2", "b3")
    assert found.variables == ("threads", "workers", "workload")
    one = np.ones(2)
    assert found.design(COLUMNS) == pytest.approx(
        np.stack([one, K, W / (K * T), W**2 / (K * T)], axis=1)
    )


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("b1*W^(1/2)", np.sqrt(W)),
        ("b1*sqrt(W)/2", np.sqrt(W) / 2),
        ("(b1*W)/K", W / K),
        ("W*K*b1", W * K),
        ("b1*(W + K)", W + K),
        ("b1*W + b1*K", W + K),
        ("-b1*W", -W),
        ("b1*max(W, K)*log2(W)", W * np.log2(W)),
        ("b1*1.5e2/T**(-1)", 150 * T),
    ],
)
def test_terms(text: str, column: np.ndarray) -> None:
    assert parse(text).design(COLUMNS)[:, 0] == pytest.approx(column)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it is empty"),
        ("(" * 300 + "b1" + ")" * 300, "brackets deeper than 16"),
        ("b0*" + "(" * 60 + "W" + "**8)" * 60, "brackets deeper than 16"),
        ("b0*" + "log2(" * 16 + "W" + ")" * 16, "brackets deeper than 16"),
        ("b1*W+" * 400 + "b0", "longer than"),
    ],
)
def test_what_is_refused(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why) as caught:
        parse(text)
    assert "\n" not in str(caught.value)


def test_variables_that_are_not_there_and_terms_without_a_value() -> None:
    with pytest.raises(UsageError, match="size is no variable here; there are threads, workers"):
        parse("b1*size").design(COLUMNS)
    with pytest.raises(UsageError, match="the term of b1 has no value in row 1"):
        parse("b1/(K-4)").design(COLUMNS)


@settings(max_examples=300, deadline=None)
@given(st.text("b01WKT+-*/^()., exp_log2'\"\\[]{}:;=é", max_size=40))
def test_any_text_is_read_or_refused_in_one_line(text: str) -> None:
    try:
        parse(text)
    except UsageError as error:
        assert "\n" not in str(error)
