"""What is computed in a second process comes back, whatever becomes of that process."""

from __future__ import annotations

import os

import pytest

from p3s.errors import P3SError
from p3s.model.aside import Aside


def test_the_result_is_that_of_the_function():
    numbers = list(range(200_000))  # more than a pipe holds
    assert Aside(lambda: {"sum": sum(numbers), "numbers": numbers}).result() == {
        "sum": sum(numbers),
        "numbers": numbers,
    }


def test_errors_are_raised_here():
    def fails():
        raise P3SError("model: no")

    with pytest.raises(P3SError, match="model: no"):
        Aside(fails).result()


def test_a_process_that_dies_is_made_up_for():
    here = os.getpid()

    def dies():
        if os.getpid() != here:
            os._exit(9)
        return {"pid": os.getpid()}

    assert Aside(dies).result() == {"pid": here}


def test_one_core_does_it_itself(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    assert Aside(os.getpid).result() == os.getpid()


def test_nothing_is_left_behind():
    pids = []
    for _ in range(3):
        pids.append(Aside(os.getpid).result())
    assert len(set(pids)) == 3
    for pid in pids:
        if pid != os.getpid():
            assert not os.path.exists(f"/proc/{pid}")
