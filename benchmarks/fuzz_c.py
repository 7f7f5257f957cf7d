"""Fuzzes P3S's own C: the tracer's writer of captures, and the replay's inner loop.

    python benchmarks/fuzz_c.py --seconds 600           so long, half of it for each
    python benchmarks/fuzz_c.py --inputs 200            so many inputs of random bytes, no libFuzzer

Needs clang with libFuzzer (Debian: clang libclang-rt-14-dev); without it inputs of random bytes are
tried, with the sanitizers of the C compiler. What the writer has written of the inputs that reach
most code, and of random ones, is read back and compared. Prints a table; exit code 1 where an input
crashed, hung or was read back differently. Inputs that did are kept in the folder that is named.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))

import fuzz_c

#: An input that takes longer has hung.
HUNG_S = 20
_LONGEST_BYTES = 4096
_AT_ONCE = 200


@dataclass
class Found:
    """Of one target: inputs tried, those that crashed and hung, and the code that was reached.

    ``read``: captures that were read back; ``different``: not as they were written.
    """

    target: str
    tried: int = 0
    crashed: int = 0
    hung: int = 0
    edges: int = 0
    read: int = 0
    different: int = 0


def main() -> int:
    """Fuzz both; return the exit code."""
    given = options()
    kept = Path(tempfile.mkdtemp(prefix="p3s-fuzz-c-"))
    rows = [Found(target) for target in given.target or fuzz_c.TARGETS]
    for row in rows:
        share_s = given.seconds / len(rows) if given.seconds else 0.0
        end = time.monotonic() + share_s
        program = fuzz_c.build(row.target, kept, coverage=bool(share_s))
        if share_s and program is not None:
            guided(
                program, row, kept, share_s * (0.8 if row.target == "writer" else 1.0), given.seed
            )
        elif share_s:
            print("no clang with libFuzzer here: inputs of random bytes only")
        plain = fuzz_c.build(row.target, kept, coverage=False)
        if plain is None:
            print("no C compiler with AddressSanitizer here")
            return 0
        if row.target == "writer" and program is not None and share_s:
            read_back(plain, row, kept, sorted((kept / "writer-corpus").iterdir()))
        if not share_s or program is None or row.target == "writer":
            at_random(plain, row, kept, given, end)
    print(f"\n| {'':<11} |   tried | crashed | hung | edges | read back | different |")
    for row in rows:
        print(
            f"| {row.target:<11} | {row.tried:>7} | {row.crashed:>7} | {row.hung:>4} |"
            f" {row.edges:>5} | {row.read:>9} | {row.different:>9} |"
        )
    bad = any(row.crashed + row.hung + row.different for row in rows)
    if bad:
        print(f"inputs: {kept}")
    return int(bad)


def guided(program: Path, row: Found, kept: Path, seconds: float, seed: int) -> None:
    """Let libFuzzer look for inputs that reach more code; go on after those that end it."""
    corpus = kept / f"{row.target}-corpus"
    corpus.mkdir(exist_ok=True)
    for number, data in enumerate(fuzz_c.corpus(row.target)):
        (corpus / f"kept-{number}").write_bytes(data)
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 1:
        said = subprocess.run(
            [
                program,
                f"-max_total_time={int(left)}",
                f"-seed={seed + row.crashed + row.hung}",
                f"-max_len={_LONGEST_BYTES}",
                f"-timeout={HUNG_S}",
                "-rss_limit_mb=4096",
                "-detect_leaks=0",
                f"-artifact_prefix={kept}/{row.target}-",
                "-print_final_stats=1",
                str(corpus),
            ],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=left + 120,
            env=fuzz_c.environment(),
        )
        row.tried += _last_number(r"stat::number_of_executed_units: (\d+)", said.stderr)
        row.edges = max(row.edges, _last_number(r"cov: (\d+)", said.stderr))
        if said.returncode == 0:
            return
        hung = "timeout" in said.stderr
        row.hung += hung
        row.crashed += not hung
        print(f"{row.target}: {why(said.stderr)}", flush=True)
        if row.crashed + row.hung >= 20:
            return


def _last_number(pattern: str, text: str) -> int:
    return int((re.findall(pattern, text) or ["0"])[-1])


def why(text: str) -> str:
    """Return the line of a sanitizer that says what is wrong, and where."""
    lines = text.splitlines()
    said = [line for line in lines if "runtime error" in line or "ERROR: " in line]
    where = [line.strip() for line in lines if re.match(r"\s+#\d+ .*/(tracer|engine)/", line)]
    return " | ".join([*said[:1], *where[:1]])[:300] or "ended"


def read_back(program: Path, row: Found, kept: Path, inputs: Sequence[Path]) -> None:
    """Let the writer write the captures of some inputs; read and compare them."""
    for first in range(0, len(inputs), _AT_ONCE):
        with tempfile.TemporaryDirectory(dir=kept) as folder:
            some = inputs[first : first + _AT_ONCE]
            for path, capture in zip(some, fuzz_c.kept(program, some, Path(folder)), strict=True):
                row.read += 1
                if differs := fuzz_c.difference(capture):
                    row.different += 1
                    print(f"{path}: {differs}", flush=True)
                    path.rename(kept / f"different-{path.name}")


def at_random(program: Path, row: Found, kept: Path, given: argparse.Namespace, end: float) -> None:
    """Try inputs of random bytes until there are enough or the time is over."""
    tried = 0
    while tried < given.inputs and (not given.seconds or time.monotonic() < end):
        with tempfile.TemporaryDirectory(dir=kept) as folder:
            paths = []
            count = min(_AT_ONCE, given.inputs - tried)
            for number, data in enumerate(fuzz_c.random_inputs(given.seed + tried, count)):
                paths.append(Path(folder, f"{given.seed + tried}-{number}"))
                paths[-1].write_bytes(data)
            tried += count
            row.tried += count
            try:
                if row.target == "writer":
                    read_back(program, row, kept, paths)
                else:
                    fuzz_c.kept(program, paths, Path(folder, "none"))
            except AssertionError as error:
                row.crashed += 1
                print(f"{row.target}: {why(str(error))}", flush=True)
            except subprocess.TimeoutExpired:
                row.hung += 1


def options() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("--inputs", type=int, default=None, help="of random bytes, of each target")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", action="append", choices=fuzz_c.TARGETS)
    given = parser.parse_args()
    if given.inputs is None:
        given.inputs = 1 << 40 if given.seconds else 1000
    return given


if __name__ == "__main__":
    sys.exit(main())
