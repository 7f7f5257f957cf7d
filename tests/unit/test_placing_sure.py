"""Regret, chance and gain from intervals; fronts of configurations; where points stand."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p3s.methods.placement.ranked.result import drawn
from p3s.methods.placement.ranked.types import Placements, Ranked, advice_of, layers


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(0.1, 10), st.floats(0, 0.2), st.floats(0, 0.2)), min_size=1, max_size=8
    )
)
def test_chances_are_all_there_are_and_regret_is_never_negative(
    rows: list[tuple[float, ...]],
) -> None:
    times = [t for t, _, _ in rows]
    low, high = [t * (1 - a) for t, a, _ in rows], [t * (1 + b) for t, _, b in rows]
    found = drawn(times, low, high)
    assert found.chance.sum() == pytest.approx(1.0) and (found.regret >= 0).all()
    assert (drawn(times, low, high).seconds == found.seconds).all()


def at(n: int, nodes: int, time: float) -> Placements:
    one = Ranked(
        name="block", cost_s=0.0, time_s=time, low_s=time, high_s=time, regret=0.0, chance=1.0,
        busiest=0.0, node_of=(), phases=(),
    )  # fmt: skip
    return Placements(
        n=n, hosts=("",) * nodes, slots=(n // nodes,) * nodes, topology="", network="",
        estimator="machine", cost="", matters=False, ranked=(one,), gains=(),
        left_out=0.0,
    )  # fmt: skip


def test_three_layers_with_ties() -> None:
    cores = [16, 16, 32, 32, 64, 64]
    times = [4.0, 4.0, 3.0, 3.5, 2.0, 3.6]
    found = advice_of(
        [at(n, n // 16 * (1 + k % 2), t) for k, (n, t) in enumerate(zip(cores, times, strict=True))]
    )
    by = {(one.n, one.time_s): one.cores_front for one in found.configurations}
    assert by == {(16, 4.0): 0, (32, 3.0): 0, (32, 3.5): 1, (64, 2.0): 0, (64, 3.6): 2}
    assert layers(cores, times).tolist() == [0, 0, 0, 1, 0, 2]
    assert found.configurations[0].n == 64 and found.breaks_at is None


def test_where_more_ranks_are_slower_that_is_said() -> None:
    found = advice_of([at(16, 1, 3.0), at(32, 2, 2.0), at(64, 4, 2.5)])
    assert found.breaks_at == 32 and found.configurations[0].n == 32
