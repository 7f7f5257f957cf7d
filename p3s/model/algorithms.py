"""Libraries that run another algorithm at some counts: other calls there than elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from p3s.base.text import join_words
from p3s.model.types import Model


@dataclass(frozen=True)
class Another:
    """A call of a library that makes other MPI calls at some counts than at the rest.

    module: the library; caller: the frames of who calls it, innermost first; counts: those at
    which it differs; rest: those at which it is one algorithm.
    """

    module: str
    caller: tuple[str, ...]
    counts: tuple[int, ...]
    rest: tuple[int, ...]

    @property
    def sentence(self) -> str:
        """What was found, in words."""
        here, there = (join_words([f"{n:,}" for n in each]) for each in (self.counts, self.rest))
        return f"{self.module}: another algorithm runs at {here} processes than at {there}"


def other_algorithms(model: Model) -> list[Another]:
    """Return the libraries' calls that are made by other MPI calls at some counts, neither set
    part of the other."""
    made: dict[tuple[str, tuple[str, ...]], dict[int, set[tuple[str, str]]]] = {}
    for item in model.items:
        module, caller = _caller(model.sites.get(item.site, ()))
        if caller:
            for n in {n for slot in item.slots for n in slot.seen}:
                by_count = made.setdefault((module, caller), {})
                by_count.setdefault(n, set()).add((item.site, item.op))
    out = []
    for (module, caller), by_count in made.items():
        if counts := _differing(by_count):
            rest = tuple(sorted(set(by_count) - set(counts)))
            out.append(Another(module, caller, counts, rest))
    return out


def _caller(frames: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Return the module of the innermost frame, and the frames around it that are of others."""
    modules = [frame.partition("+0x")[0] for frame in frames]
    own = next((k for k, module in enumerate(modules) if module != modules[0]), len(modules))
    return (modules[0] if modules else ""), tuple(frames[own:])


def _differing(by_count: Mapping[int, set[tuple[str, str]]]) -> tuple[int, ...]:
    """Return the counts whose calls differ both ways from those of most, of the larger at a tie."""
    against = {
        n: [m for m, other in by_count.items() if calls - other and other - calls]
        for n, calls in by_count.items()
    }
    usual = min(against, key=lambda n: (len(against[n]), -n))
    return tuple(sorted(against[usual]))
