"""Libraries that run another algorithm at some counts are named, with the counts."""

from __future__ import annotations

from dataclasses import replace

import corpus

from p3s.model.algorithms import other_algorithms
from p3s.model.holdout import build_model
from p3s.model.types import Model

COUNTS = (4, 8, 12, 16)


@corpus.program
def transposes(rec: corpus.Recorder, odd: set[int]) -> None:
    """A transpose in one call, at some counts by messages instead; then an own one by the rest."""
    for _ in range(3):
        if rec.n in odd:
            for k in range(1, rec.n):
                to, back = (rec.rank + k) % rec.n, (rec.rank - k) % rec.n
                rec.exchange("Sendrecv", to, back, 80)
        else:
            rec("Alltoall", nbytes=80)
        if rec.n > 4:
            rec("Allreduce", nbytes=80)


def fitted(odd: set[int], inside: str = "libfft.so.3") -> Model:
    model = build_model([corpus.table(transposes(odd), n) for n in COUNTS], typed={3})
    sites = {
        site: (f"{inside}+0x{k:x}", f"{inside}+0xff", "program+0x40", "program+0x10")
        for k, site in enumerate(sorted(model.sites))
    }
    return replace(model, sites=sites)


def test_the_counts_of_another_algorithm_are_named() -> None:
    (found,) = other_algorithms(fitted({12}))
    assert found.counts == (12,) and found.rest == (4, 8, 16)
    assert found.caller == ("program+0x40", "program+0x10")
    assert found.sentence == (
        "libfft.so.3: another algorithm runs at 12 processes than at 4, 8 and 16"
    )


def test_more_calls_at_more_processes_are_none() -> None:
    assert not other_algorithms(fitted(set()))


def test_a_program_that_chooses_itself_is_no_library() -> None:
    assert not other_algorithms(fitted({12}, "program"))
