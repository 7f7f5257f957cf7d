"""Start and end of runs: what the launch takes beyond them, and what is said of it."""

from types import SimpleNamespace

from p3s.predict.notes import of_start_and_end
from p3s.predict.types import StartAndEnd

TRACED = [StartAndEnd(2, 0.4, 0.4, 0.5), StartAndEnd(8, 0.7, 0.6, 0.9)]


def rows(*counts: int) -> list[SimpleNamespace]:
    return [SimpleNamespace(n=n, time_s=8.0 / n) for n in counts]


def test_it_is_known_at_the_traced_counts_alone() -> None:
    (said,) = of_start_and_end(TRACED, rows(2, 8, 64))  # type: ignore[arg-type]
    assert "took 700 ms (600 ms to 900 ms) at 8 processes; what they take at 64 is not" in said
    (said,) = of_start_and_end(TRACED, rows(2, 8))  # type: ignore[arg-type]
    assert said.endswith("at 8 processes")
    assert of_start_and_end([], rows(2)) == []  # type: ignore[arg-type]
