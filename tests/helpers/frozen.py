"""One table of what the commands say of many studies, to be compared after each change.

    make frozen                     the table anew: tests/data/frozen/rows.jsonl
    make frozen-check [PARTS=grid]  each difference: study, count, column, before, after
    make frozen-trace               traces examples and patterns anew; then the table is another

A row is a study (count 0: model and prediction as a whole) or one of its counts, traced or larger.
Studies are captures, kept or made of the corpus' event lists, so that no MPI and no clock is
involved. All is asked of the commands and of p3s.open: where a module lies plays no part.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from zlib import crc32

import corpus
import made_captures
import pattern_table
from commands import cli
from corpus.cases import listed
from old_studies import nobody
from paths import EXAMPLES, PROGRAMS, ROOT

import p3s
from p3s.base.study import write_json

FOLDER = ROOT / "tests" / "data" / "frozen"
ROWS = FOLDER / "rows.jsonl"
PROCESSES = 2
#: Numbers are the same up to this share: another processor sums in another order.
SHARE = 1e-6
#: Seconds below are none: waiting of 1e-21 s is what rounding leaves.
NOTHING = 1e-15
#: What a run's record says of the machine that traced it.
_PRIVATE = {"argv", "program", "directory", "signed", "digest", "timeout_s"}

#: Of the examples whose own arguments are too large to keep.
EXAMPLE_ARGS = {"jacobi2d": "--nx 401 --ny 353 --iterations 20 --newton 8"}

Row = dict[str, Any]


def _archive(name: str) -> Path:
    return FOLDER / f"{name.replace('/', '-')}.tar.xz"


@dataclass(frozen=True)
class Entry:
    """A study: the counts that were traced and larger ones; program: None where it is kept."""

    name: str
    counts: tuple[int, ...]
    targets: tuple[int, ...]
    program: corpus.Program | None = None

    def put(self, folder: Path) -> Path:
        """Write the study into a folder; return where it is."""
        if self.program is not None:
            return made_captures.write_study(folder / "study", self.program, self.counts)
        with tarfile.open(_archive(self.name)) as packed:
            packed.extractall(folder)  # our own archive; Python 3.11.2 knows no filter
        return folder / "study"


def _examples() -> Iterator[Entry]:
    for name in ("jacobi2d", "ring", "halo3d", "cg", "wavefront"):
        counts = (4, 8, 12, 16) if name == "halo3d" else (2, 4, 8, 16)
        yield Entry(f"example/{name}", counts, (32, 64))


def _patterns() -> Iterator[Entry]:
    for each in pattern_table.TABLE:
        yield Entry(f"pattern/{each.id}", each.counts, each.targets)


def _listed(part: str) -> Iterator[Entry]:
    for name, program, counts, targets in listed()[part]:
        yield Entry(f"{part}/{name}", counts, targets[:2], program)


PARTS: dict[str, Callable[[], Iterator[Entry]]] = {
    "example": _examples,
    "pattern": _patterns,
    **{part: partial(_listed, part) for part in listed()},
}
#: Continuous integration compares each so-manieth study of a part; `make frozen-check` all.
EVERY = 12


def digest(rows: Iterable[Any]) -> str:
    """Return eight hexadecimal digits of rows in their order."""
    total = 0
    for row in rows:
        total = crc32(repr(row).encode(), total)
    return f"{total:08x}"


def rows_of(entry: Entry) -> list[Row]:
    """Return the rows of a study."""
    with tempfile.TemporaryDirectory() as folder:
        root = entry.put(Path(folder))
        shown = cli("model", root, "--json", code=None)
        whole: Row = {"study": entry.name, "n": 0, "model": shown.code}
        model = shown.data if shown.out else {}
        if "items" in model:
            verdicts = Counter(f"{i['kind']} {i['verdict']}" for i in model["items"])
            whole |= {"rule": model["grid"]["text"], "verdicts": dict(sorted(verdicts.items()))}
        counts = [*entry.counts, *entry.targets]
        scaled = {n: cli("scale", root, "-n", n, "--json", code=None).code for n in counts}
        # the table of what changes save takes half of the time, and nothing here is of it
        words = f"predict -n {','.join(map(str, counts))} --no-replay --json --what-if none"
        shown = cli(words, root, code=None)
        whole["predict"] = shown.code
        predicted = shown.data if shown.out else {}
        whole["reasons"] = sorted(reason["code"] for reason in predicted.get("reasons", ()))
        at = {count["n"]: count for count in predicted.get("counts", ())}
        return [whole, *(_at(entry, root, n, scaled[n], at.get(n, {})) for n in counts)]


def _at(entry: Entry, root: Path, n: int, scaled: int, predicted: dict[str, Any]) -> Row:
    """Return the row of one count; scaled: the exit code of `p3s scale`."""
    row: Row = {"study": entry.name, "n": n, "scale": scaled}
    if row["scale"] in (0, 3):  # 3: written, and open there
        row |= _calls(entry, root, n)
    target = root.parent / f"order{n}"
    row["export"] = cli(f"export --to simgrid -n {n} --turns 2", root, "-o", target, code=None).code
    if not row["export"]:
        row["order"] = digest(_order(target))
    row |= {key: predicted.get(key) for key in ("model_s", "model_low_s", "model_high_s")}
    row |= {key: predicted.get(key) for key in ("compute_s", "waiting_s", "estimator")}
    row["trusted"] = predicted.get("model_representative")
    return row


def _calls(entry: Entry, root: Path, n: int) -> Row:
    """Return what the trace of ``n`` processes holds: who sends what, collectives, iterations."""
    trace = p3s.open(root).scale(n)
    frame = trace.to_frame()
    sends = frame[frame.kind == "send"]
    messages: Counter[tuple[int, int, int]] = Counter()
    for rank, peer, size, times in sends[["rank", "peer", "bytes", "repeat"]].values.tolist():
        messages[rank, peer, size] += times
    teams = frame[frame.kind == "collective"]
    columns = ["rank", "op", "bytes", "root", "repeat"]
    iterations = frame[["rank", "op", "repeat"]].values.tolist()
    events = frame.groupby("verdict")["repeat"].sum()
    row = {
        "grid": list(trace.grid),
        "messages": digest(sorted(messages.items())),
        "tags": digest(sorted(sends[["rank", "peer", "tag", "repeat"]].values.tolist())),
        "collectives": digest(sorted(teams[columns].values.tolist())),
        "iterations": digest(sorted(iterations)),
        "events": {name: int(count) for name, count in sorted(events.items())},
        "work": float((frame["work"] * frame["repeat"]).sum()),
    }
    if entry.program is not None:
        row["right"] = _right(messages, corpus.run(entry.program, n))
    return row


def _right(messages: Counter[tuple[int, int, int]], run: Any) -> str:
    """Return how many messages are those of the program itself."""
    true: Counter[tuple[int, int, int]] = Counter()
    for rank in run.ranks:
        for number, times in Counter(rank.call.tolist()).items():
            call = run.calls[number]
            if call.op in ("MPI_Send", "MPI_Isend", "MPI_Sendrecv") and call.peer >= 0:
                true[rank.rank, call.peer, call.bytes] += times
    return f"{(true & messages).total()} of {true.total()}, {messages.total()} predicted"


def _order(target: Path) -> Iterator[str]:
    """Yield the lines of exported traces, without what takes time."""
    for path in sorted(target.rglob("rank-*.txt")):
        yield path.name
        yield from (line for line in path.read_text().splitlines() if " compute " not in line)


def entries(parts: Iterable[str] = (), every: int = 1) -> list[Entry]:
    """Return the studies of some parts (all), or each so-manieth of a part."""
    return [entry for part in parts or PARTS for entry in list(PARTS[part]())[::every]]


def computed(wanted: list[Entry], processes: int = PROCESSES) -> Iterator[list[Row]]:
    """Yield the rows of studies, several at a time."""
    if processes == 1:
        yield from map(rows_of, wanted)
        return
    names = [entry.name for entry in wanted]
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, fresh) as pool:
        yield from pool.map(_named, names)


def _named(name: str) -> list[Row]:
    (entry,) = [each for each in entries([name.split("/")[0]]) if each.name == name]
    return rows_of(entry)


def kept() -> dict[tuple[str, int], Row]:
    """Return the rows of the table by study and count, none where there is no table."""
    lines = ROWS.read_text().splitlines() if ROWS.exists() else []
    rows = map(json.loads, lines)
    return {(row["study"], row["n"]): row for row in rows}


def differences(before: dict[tuple[str, int], Row], after: Iterable[Row]) -> Iterator[str]:
    """Yield a line per value that differs: study, count, column, before, after."""
    for row in after:
        old = before.get((row["study"], row["n"]), {})
        for column in dict.fromkeys([*old, *row]):
            pair = old.get(column), row.get(column)
            if not _same(*pair):
                yield f"{row['study']} n={row['n']} {column}: {pair[0]} -> {pair[1]}"


def _same(before: Any, after: Any) -> bool:
    if isinstance(before, float) and isinstance(after, float):
        return math.isclose(before, after, rel_tol=SHARE, abs_tol=NOTHING)
    return bool(before == after)


def trace(entry: Entry, folder: Path) -> None:
    """Trace an example or a pattern in a folder and keep its runs."""
    from patterns import build  # needs an MPI, as nothing else here

    part, _, name = entry.name.partition("/")
    if part == "example":
        args, source = EXAMPLE_ARGS.get(name, ""), EXAMPLES / f"{name}.c"
        flags: tuple[str, ...] = ("-O2", "-D_XOPEN_SOURCE=700")
    else:
        (each,) = [each for each in pattern_table.TABLE if each.id == name]
        args, source, flags = each.args, PROGRAMS / "patterns" / each.source, each.flags
    shutil.copy(source, folder)
    built = build(source, folder / source.stem, *flags)
    words = [f"./{source.stem}"] if len(built) == 1 else ["python", source.name]
    counts = ",".join(map(str, entry.counts))
    command = ["p3s", "characterize", "-n", counts, "-o", "study", "--timeout", "300", "--"]
    command += ["mpiexec", "-n", "{np}", *words, *args.split()]
    subprocess.run(command, cwd=folder, check=True, timeout=1800, capture_output=True)
    pack(entry.name, folder / "study")


def pack(name: str, study: Path) -> None:
    """Keep the runs of a traced study, without what they say of the machine."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for record in study.glob("runs/*/run.json"):
        content = json.loads(record.read_text())
        write_json(record, {k: v for k, v in content.items() if k not in _PRIVATE})
    with tarfile.open(_archive(name), "w:xz", preset=9) as packed:
        for path in (study / "study.json", *sorted(study.glob("runs/*/*"))):
            if path.suffix != ".txt":
                packed.add(path, f"study/{path.relative_to(study)}", filter=nobody)


def write(table: dict[tuple[str, int], Row]) -> None:
    """Write the rows of all studies that there are, in their order."""
    keys = [(each.name, n) for each in entries() for n in (0, *each.counts, *each.targets)]
    ROWS.write_text("".join(json.dumps(table[key]) + "\n" for key in keys if key in table))


def main() -> int:
    """Run the command line above; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("do", choices=("write", "check", "trace"))
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[])
    parser.add_argument("--every", type=int, default=1, help="each so-manieth study of a part")
    parser.add_argument("--missing", action="store_true", help="what is not in the table yet")
    given = parser.parse_args()
    if given.do == "trace":
        for entry in entries(given.parts or ("example", "pattern")):
            with tempfile.TemporaryDirectory(prefix="frozen") as folder:
                trace(entry, Path(folder))
        return 0
    table, number = kept(), 0
    wanted = entries(given.parts, given.every)
    if given.missing:
        wanted = [entry for entry in wanted if (entry.name, 0) not in table]
    for count, rows in enumerate(computed(wanted), start=1):
        print(f"\r{count} of {len(wanted)} studies", end="", file=sys.stderr, flush=True)
        changes = list(differences(table, rows))
        number += len(changes)
        if given.do == "write":
            table |= {(row["study"], row["n"]): row for row in rows}
            write(table)
        elif changes:
            print("\n".join(changes), flush=True)
    print(f", {number} differences", file=sys.stderr)
    return int(given.do == "check" and number > 0)


if __name__ == "__main__":
    sys.exit(main())
