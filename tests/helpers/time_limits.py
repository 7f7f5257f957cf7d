"""Time limits of runs that are over when the run has come to a place, however long that takes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from p3s.signature_runner import launch

#: A limit to give; also how often it is looked whether the place is reached.
LIMIT_S = 0.5
#: What is not reached by then never is: the test fails for what it finds.
_HARD_S = 240.0


@contextlib.contextmanager
def over_when(reached: Callable[[], bool]) -> Iterator[None]:
    """Let the clock of run_traced stand still until ``reached``; then it leaps, and goes on.

    A limit in seconds would end a slow machine's run before, or last longer than it need.
    """
    begin = time.monotonic()

    def monotonic() -> float:
        passed = time.monotonic() - begin
        return 1e9 + passed if passed > _HARD_S or reached() else 0.0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "time", SimpleNamespace(monotonic=monotonic))
        yield
