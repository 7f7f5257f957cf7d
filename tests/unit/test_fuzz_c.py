"""What the tracer writes is read as it was written, and no program crashes the replay's inner loop.

The inputs are those that a fuzzer found worth keeping (tests/fuzz/corpus), and random ones.
benchmarks/fuzz_c.py looks for more.
"""

from __future__ import annotations

from pathlib import Path

import fuzz_c
import pytest

#: Random inputs of each program.
RANDOM = 60


@pytest.fixture(scope="module", params=fuzz_c.TARGETS)
def target(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def program(target: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program to be fuzzed, with the sanitizers."""
    built = fuzz_c.build(target, tmp_path_factory.mktemp(target), coverage=False)
    if built is None:
        pytest.skip("no C compiler with AddressSanitizer and UndefinedBehaviorSanitizer")
    return built


def test_kept_and_random_inputs(target: str, program: Path, tmp_path: Path) -> None:
    inputs = []
    for data in [*fuzz_c.corpus(target), *fuzz_c.random_inputs(7, RANDOM)]:
        inputs.append(tmp_path / str(len(inputs)))
        inputs[-1].write_bytes(data)
    folders = fuzz_c.kept(program, inputs, tmp_path / "kept")
    if target == "writer":
        different = [found for folder in folders if (found := fuzz_c.difference(folder))]
        assert not different, different


def test_the_comparison_sees_what_was_not_written(tmp_path: Path) -> None:
    program = fuzz_c.build("writer", tmp_path, coverage=False)
    if program is None:
        pytest.skip("no C compiler with AddressSanitizer and UndefinedBehaviorSanitizer")
    told = bytes([0, 1, 0, 255]) + bytes(range(200)) * 4
    (tmp_path / "input").write_bytes(told)
    (folder,) = fuzz_c.kept(program, [tmp_path / "input"], tmp_path / "kept")
    assert fuzz_c.difference(folder) == ""
    path = folder / "written.txt"
    lines = path.read_text().splitlines()
    event = next(number for number, line in enumerate(lines) if line.startswith("E "))
    path.write_text("\n".join(lines[:event] + lines[event + 1 :]) + "\n")
    assert fuzz_c.difference(folder).startswith("events: ")
