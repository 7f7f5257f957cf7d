"""The C of the tracer's writer and of the replay's inner loop, built to be fuzzed.

tests/fuzz has a program for each: with libFuzzer where there is clang, else with a main that takes
files. Both under AddressSanitizer and UndefinedBehaviorSanitizer. What the writer wrote is read
back here and compared with what it was told to write.
"""

from __future__ import annotations

import collections
import os
import random
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from p3s.capture.capture import Capture, read_capture
from p3s.capture.layout import CALL_FIELDS
from p3s.capture.threads import COLUMNS
from p3s.signature_runner.tracer.generate import generate

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "tests" / "fuzz"
TARGETS = ("writer", "interpreter")
_INCLUDED = (SOURCES, ROOT / "signature_runner" / "tracer", ROOT / "replay" / "engine")
_SANITIZED = ("-std=gnu11", "-g", "-O1", "-w", "-fno-omit-frame-pointer")
_CHECKS = "address,undefined"
_NUMBERS = len(CALL_FIELDS)

#: A finding ends the program; addresses are as large as the kernel lets them be.
ENVIRONMENT = {
    "ASAN_OPTIONS": "abort_on_error=0:allocator_may_return_null=1:detect_stack_use_after_return=0",
    "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
}


def environment(**more: str) -> dict[str, str]:
    """Return the environment that a fuzzer runs in."""
    return {**os.environ, **ENVIRONMENT, **more}


def build(target: str, folder: Path, *, coverage: bool) -> Path | None:
    """Build one of TARGETS; None where there is no compiler with the sanitizers.

    With ``coverage`` it is libFuzzer's program (clang), else one that takes files.
    """
    compiler = shutil.which("clang") if coverage else shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    program = folder / (f"{target}-fuzzer" if coverage else target)
    flags = (f"-fsanitize=fuzzer,{_CHECKS}",) if coverage else ("-DP3S_FUZZ_MAIN",)
    if not coverage:
        flags += (f"-fsanitize={_CHECKS}",)
    _put_generated(compiler, folder)
    made = subprocess.run(
        [
            compiler,
            *_SANITIZED,
            *flags,
            "-fno-sanitize-recover=undefined",
            *(f"-I{place}" for place in (folder, *_INCLUDED)),
            str(SOURCES / f"{target}.c"),
            "-o",
            str(program),
            "-lpthread",
        ],
        capture_output=True,
        text=True,
        timeout=300,
    )
    if made.returncode and "lib" in made.stderr and "error:" not in made.stderr.split("ld")[0]:
        return None  # the sanitizers' libraries are not there
    assert made.returncode == 0, made.stderr
    return program


def _put_generated(compiler: str, folder: Path) -> None:
    text = subprocess.run(
        [compiler, "-E", "-P", str(SOURCES / "mpi.h")],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    (folder / "p3s_generated.h").write_text(generate(text)[0])


def corpus(target: str) -> list[bytes]:
    """Return the inputs of a target that are kept: they reach its code, or crashed it once."""
    lines = (SOURCES / "corpus" / f"{target}.txt").read_text().split()
    return [bytes.fromhex(line) for line in lines]


def random_inputs(seed: int, count: int) -> Iterator[bytes]:
    """Yield inputs of random bytes: short ones, long ones, and some with bytes that repeat."""
    rng = random.Random(seed)
    for _ in range(count):
        length = int(2 ** rng.uniform(3, 12))
        data = bytearray(rng.randbytes(length))
        if rng.random() < 0.5:
            few = rng.randbytes(rng.randint(2, 12))
            for at in range(length):
                if rng.random() < 0.5:
                    data[at] = rng.choice(few)
        yield bytes(data)


def kept(program: Path, inputs: Sequence[Path], folder: Path) -> list[Path]:
    """Let the writer write the captures of some inputs; return their folders, in this order.

    Raises AssertionError with what it says where a sanitizer ends it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    ran = subprocess.run(
        [program, *map(str, inputs)],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=600,
        env=environment(P3S_FUZZ_KEEP=str(folder)),
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    return [folder / str(number) for number in range(len(inputs))]


# ---- what was written, and what is read ---------------------------------------------------------
@dataclass
class Written:
    """What the writer was told to write, by the letter of its record; ``end`` is how it ended.

    ``stopped``: it said that it could not go on.
    """

    rows: dict[str, list[list[int]]] = field(default_factory=dict)
    end: str = ""
    stopped: bool = False
    limited: bool = False

    def of(self, letter: str) -> list[list[int]]:
        """Return the rows of a record."""
        return self.rows.get(letter, [])


def written(path: Path) -> Written:
    """Read what tests/fuzz/writer.c says that it wrote."""
    found = Written()
    for line in path.read_text().splitlines():
        letter, *words = line.split()
        numbers = [int(word) for word in words]
        if letter in "KF":
            found.end, found.stopped, found.limited = letter, bool(numbers[0]), bool(numbers[1])
        else:
            found.rows.setdefault(letter, []).append(numbers)
    return found


def difference(folder: Path) -> str:
    """Return where the capture in a folder is not what was written into it, empty if it is."""
    said = written(folder / "written.txt")
    if not said.end:
        return ""  # there was no place for the file
    capture = read_capture(folder / "rank-000003.p3t")
    if said.end == "F" and not said.stopped and capture.problem:
        return f"a whole capture {capture.problem}"
    if said.end == "K" and capture.damages:
        return f"a killed one {capture.problem}"
    if said.stopped and not capture.problem:
        return "it stopped early and says nothing"
    if said.limited != capture.header.limited:
        return "the limit"
    for name, expected, found in _tables(said, capture):
        if expected != found:
            return f"{name}: {_first(expected, found)}"
    return ""


def _first(expected: list[list[int]], found: list[list[int]]) -> str:
    for number, (one, other) in enumerate(zip(expected, found, strict=False)):
        if one != other:
            return f"{number}: {one} was read as {other}"
    return f"{len(expected)} were written, {len(found)} read"


def _tables(
    said: Written, capture: Capture
) -> Iterator[tuple[str, list[list[int]], list[list[int]]]]:
    events, calls = capture.events, [list(row) for row in capture.calls.tolist()]
    yield (
        "events",
        said.of("E"),
        [
            [*calls[call], start, elapsed, work, *counters]
            for call, start, elapsed, work, counters in zip(
                events.call.tolist(),
                events.start_ns.tolist(),
                events.elapsed_ns.tolist(),
                events.work.tolist(),
                events.counters.tolist(),
                strict=True,
            )
        ],
    )
    yield "counts", _sums(said.of("C")), _counted(capture, calls)
    done = capture.done.tolist()
    flags = capture.cancelled.tolist()
    yield "completions", said.of("D"), [[*row, flag] for row, flag in zip(done, flags, strict=True)]
    yield "resolved receives", said.of("R"), capture.resolved.tolist()
    accesses = capture.accesses
    yield "accesses", said.of("A"), [] if accesses is None else accesses.tolist()
    yield "threads", said.of("T"), _threads(capture)
    yield "sites", said.of("S"), _sites(capture)
    yield "communicators", said.of("O"), _comms(said, capture)
    yield "windows", said.of("W"), [[w.id, w.comm, w.kind] for w in capture.defs.windows]
    numbers = capture.defs.numbers.items()
    yield "numbers", said.of("N"), [[number, *values] for number, values in numbers]


def _sums(rows: list[list[int]]) -> list[list[int]]:
    """Return the events that were only counted as sums by call, in the order of the calls."""
    sums: dict[tuple[int, ...], list[int]] = collections.defaultdict(lambda: [0, 0, 0])
    for row in rows:
        found = sums[tuple(row[:_NUMBERS])]
        for place, value in enumerate((1, row[_NUMBERS + 1], row[_NUMBERS + 2])):
            found[place] += value
    return sorted([*call, *amounts] for call, amounts in sums.items())


def _counted(capture: Capture, calls: list[list[int]]) -> list[list[int]]:
    sums: dict[tuple[int, ...], list[int]] = collections.defaultdict(lambda: [0, 0, 0])
    for call, amounts in capture.counted.items():
        found = sums[tuple(calls[call])]
        for place, value in enumerate(amounts):
            found[place] += value
    return sorted([*call, *amounts] for call, amounts in sums.items())


def _threads(capture: Capture) -> list[list[int]]:
    threads = capture.threads
    if threads is None:
        return []
    columns = [threads["event"], *(threads[name] for name in COLUMNS)]
    return [list(row) for row in zip(*(column.tolist() for column in columns), strict=True)]


def _sites(capture: Capture) -> list[list[int]]:
    return [
        [site.key, len(site.frames), sum(len(frame) + 1 for frame in site.frames)]
        for site in capture.defs.sites
        if site is not None
    ]


def _comms(said: Written, capture: Capture) -> list[list[int]]:
    """Return the communicators as they are told; own coordinates are not read."""
    found = []
    for row, comm in zip(said.of("O"), capture.defs.comms, strict=False):
        dims = comm.dims or ()
        own = row[5 + len(comm.members) + 2 * len(dims) :]
        periods = row[5 + len(comm.members) + len(dims) : len(row) - len(own)]
        same = tuple(map(bool, periods)) == (comm.periods or ())
        found.append(
            [comm.id, comm.parent, int(comm.inter), len(comm.members), len(dims)]
            + [*comm.members, *dims, *(periods if same else ()), *own]
        )
    return found if len(said.of("O")) == len(capture.defs.comms) else [[len(capture.defs.comms)]]
