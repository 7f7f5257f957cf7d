"""Whatever is changed in a file of a study: commands refuse it in one line, or nothing changes."""

from __future__ import annotations

import pytest
from fuzzing import FORMATS, Bench, Format, Outcome, trials

#: Inputs of each format; every second one has a digest that fits what was changed.
FEW, MANY = 2, 5_000


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench.made(tmp_path_factory.mktemp("fuzz"))


@pytest.mark.parametrize(
    "inputs", [range(FEW), pytest.param(range(FEW, MANY), marks=pytest.mark.slow)], ids=len
)
@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_no_changed_file_crashes_or_misleads(form: Format, inputs: range, bench: Bench) -> None:
    bad = [
        trial
        for trial in trials(bench, form, inputs)
        if trial.outcome in (Outcome.CRASHED, Outcome.HUNG, Outcome.SILENT)
    ]
    assert not bad, f"{len(bad)} of {len(inputs)}, the first: {bad[0]}"


def test_what_is_not_changed_is_unchanged(bench: Bench) -> None:
    for form in FORMATS[:3]:
        expected = bench.expected(form)
        bench.fresh(form)
        assert bench.outcome(form, expected)[0] is Outcome.UNCHANGED
