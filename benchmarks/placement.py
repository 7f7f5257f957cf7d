"""Is the placement that P3S chooses from small runs as good as others, in simulated runs?

    python benchmarks/placement.py [--program NAME]... [--ranks 64,128] [--ppn 1,4] [--dir DIR]
                                   [--out raw.json] [--runs 24] [--join FILE...]

Programs are traced at small counts in SimGrid's simulator, each rank on a node of its own. From
these traces and a measurement between nodes P3S ranks placements on a fat tree (8 nodes of 4 cores
a leaf, 4 links up). The best ones, block, cyclic and some others then run in the simulator: that is
the truth. docs/accuracy.md, "Placements", has the results. Nothing here passes or fails.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[0:1] = [str(HERE.parent), str(HERE)]

from accuracy import cluster, machine, options  # noqa: E402
from accuracy.build import Build, Builder  # noqa: E402
from accuracy.predicting import ROOT, study_of  # noqa: E402
from accuracy.programs import HELD_OUT, PROGRAMS, Program  # noqa: E402

#: Nodes of the fat tree, of a leaf, links up from a leaf, cores of a node.
NODES, LEAF, UP, CORES = 64, 8, 4, 4
SPEED, LATENCY = "1Gbps", "2us"
#: Another program of messages alone: 26 neighbours.
BOX = Program(
    "box26",
    ROOT / "tests" / "programs",
    ("62", "58", "60", "20"),
    build="mpicc -I. patterns/box26.c -o box26 -lm",
    executable="box26",
)
USUAL = ("halo3d", "wavefront", "cg", "pencils", "box26")
#: Of placements beyond the best ones, every so many-th runs.
_PREDICT_TIMEOUT_S = 1800.0


@dataclass(frozen=True)
class Tree(cluster.Cluster):
    """The fat tree; ``node_of``: node of each rank."""

    node_of: tuple[int, ...] = ()

    @property
    def platform(self) -> Path:
        """The description that the simulator reads."""
        return self.directory / "placement.xml"

    @property
    def hosts(self) -> Path:
        """The node of each rank, one a line."""
        return self.directory / "placement.hosts"

    def write(self) -> None:
        """Write both files."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.platform.write_text(
            '<?xml version="1.0"?>\n'
            '<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">\n'
            '<platform version="4.1">\n'
            f'  <cluster id="cluster" prefix="n-" suffix="" radical="0-{NODES - 1}"'
            f' speed="{cluster.SPEED}" core="{CORES}" bw="{SPEED}" lat="{LATENCY}"'
            f' topology="FAT_TREE" topo_parameters="2;{LEAF},{NODES // LEAF};1,{UP};1,1"'
            f' loopback_bw="{cluster.LOOPBACK[0]}" loopback_lat="{cluster.LOOPBACK[1]}"/>\n'
            "</platform>\n"
        )
        self.hosts.write_text("".join(f"n-{node}\n" for node in self.node_of))


def say(text: str) -> None:
    """Tell how far it is, with the time of day."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def tree(builder: Builder, node_of: Sequence[int]) -> Tree:
    """Return the fat tree with ranks on these nodes, written."""
    found = Tree(builder.directory / "tree", NODES, "fat-tree", node_of=tuple(node_of))
    found.write()
    return found


def measured(builder: Builder, path: Path) -> Path:
    """Measure inside a node, in a leaf and between leaves; return the file of the network."""
    near, inside, far = (_pair(builder, path.parent, *ends) for ends in _PAIRS)
    machine.save(path, near, inside)
    sizes = near["sizes"]["bytes"]
    beyond = np.interp(sizes, far["sizes"]["bytes"], far["sizes"]["one_way_ns"])
    # Two more switches are passed between leaves.
    further = np.maximum((beyond - near["sizes"]["one_way_ns"]) / 2, 0.0).tolist()
    told = {
        "kind": "fat-tree",
        "down": [LEAF, NODES // LEAF],
        "up": [UP],
        "speed": "1Gbit/s",
        "latency": {"bytes": sizes, "ns": further},
        "hosts": f"n-[0-{NODES - 1}]",
    }
    topology = path.with_name("topology.json")
    topology.write_text(json.dumps(told))
    return topology


#: Two nodes of a leaf, one node, two of different leaves.
_PAIRS = ((0, 1), (0, 0), (0, LEAF))


def _pair(builder: Builder, directory: Path, one: int, other: int) -> dict[str, Any]:
    """Return what messages between two nodes cost; what was measured before is kept."""
    from p3s.machine import programs

    kept = directory / f"pair-{one}-{other}.txt"
    if not kept.exists():
        kept.write_text(machine.between(builder, tree(builder, (one, other))))
    return programs.parse_network(kept.read_text())


def traced(program: Program, builder: Builder, build: Build, directory: Path) -> Path:
    """Make the study of a program's small runs, each rank on a node of its own."""
    study = directory / "study"
    captures = [directory / f"np{n:04d}" for n in program.traced]
    if study.exists():
        return study
    for n, capture in zip(program.traced, captures, strict=True):
        capture.mkdir(parents=True, exist_ok=True)
        cluster.simulate(
            tree(builder, range(n)),
            builder.clock,
            build.traced,
            program.arguments_at(n),
            n,
            {"P3S_TRACE_DIR": str(capture), "P3S_WORK": "wall"},
            (build.directories or (None, None))[1],
            build.preloaded,
        )
    return study_of(program, str(build.traced), captures, study)


def placements(study: Path, topology: Path, n: int, ppn: int, *words: object) -> dict[str, Any]:
    """Return what p3s place says. Errors: RuntimeError."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "p3s", "place", str(study), "-n", str(n), "--json"),
            *("--nodes", str(-(-n // ppn)), "--ppn", str(ppn), "--topology", str(topology)),
            *(*cluster.collectives(cluster.SET), *map(str, words)),
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        timeout=_PREDICT_TIMEOUT_S,
    )
    if done.returncode not in (0, 3):
        raise RuntimeError((done.stderr.splitlines() or ["no message"])[-1])
    return {**json.loads(done.stdout), "exit_code": done.returncode}


def to_run(ranked: Sequence[Mapping[str, Any]], number: int) -> list[int]:
    """Return which placements run: half of them the best, block, cyclic, the rest spread evenly."""
    best = list(range(min(number // 2, len(ranked))))
    usual = [k for k, one in enumerate(ranked) if one["name"] in ("block", "cyclic")]
    rest = len(ranked) - len(best)
    spread = [len(best) + k * rest // (number // 2) for k in range(number // 2)]
    return sorted({k for k in (*best, *usual, *spread) if k < len(ranked)})


def one(
    program: Program, builder: Builder, build: Build, study: Path, topology: Path,
    n: int, ppn: int, number: int, every: bool,
) -> dict[str, Any]:  # fmt: skip
    """Return predicted and true times of placements of a program.

    ``number`` of those that p3s place simulates run, with ``every`` of all that it proposes.
    """
    begin = time.monotonic()
    found = placements(study, topology, n, ppn)
    took = time.monotonic() - begin
    choice = found["ranked"][0]
    if every:
        found = placements(study, topology, n, ppn, "--simulate", 1000)
    ranked = [each for each in found["ranked"] if each.get("time_s") is not None]
    known = [each["name"] for each in ranked]
    if choice["name"] not in known:
        ranked.append(choice)
    chosen = [each["name"] for each in ranked].index(choice["name"])
    rows = []
    for k in sorted({chosen, *to_run(ranked, number)}):
        each = ranked[k]
        seconds, _ = cluster.simulate(
            tree(builder, each["node_of"]),
            builder.clock,
            build.plain,
            program.arguments_at(n),
            n,
            directory=(build.directories or (None, None))[0],
            preloaded=build.preloaded,
        )
        row = {key: each[key] for key in ("name", "time_s", "low_s", "high_s", "cost_s")}
        rows.append({**row, "truth_s": seconds, "chosen": k == chosen})
    row = {
        "program": program.name, "n": n, "ppn": ppn, "seconds": took,
        "candidates": len(found["ranked"]), "exit_code": found["exit_code"], "runs": rows,
    }  # fmt: skip
    say(line(row))
    return row


def figures(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return regret of the choice, and predicted and true gains over block and cyclic."""
    runs = row["runs"]
    choice = next(run for run in runs if run["chosen"])
    best = min(runs, key=lambda run: run["truth_s"])
    found: dict[str, Any] = {
        "choice": choice["name"],
        "best": best["name"],
        "regret": choice["truth_s"] / best["truth_s"] - 1.0,
        "off": choice["time_s"] / choice["truth_s"] - 1.0,
    }
    for usual in ("block", "cyclic"):
        other = next((run for run in runs if run["name"] == usual), None)
        if other is not None and not other["chosen"]:
            found[usual] = {
                "predicted": 1.0 - choice["time_s"] / other["time_s"],
                "true": 1.0 - choice["truth_s"] / other["truth_s"],
                "regret": other["truth_s"] / best["truth_s"] - 1.0,
            }
    return found


def line(row: Mapping[str, Any]) -> str:
    """Return a row of the table."""
    found = figures(row)

    def gain(usual: str) -> str:
        each = found.get(usual)
        if each is None:
            return "-"
        return f"{100 * each['predicted']:+.1f} / {100 * each['true']:+.1f} %"

    cells = [
        row["program"],
        str(row["n"]),
        str(row["ppn"]),
        found["choice"],
        f"{100 * found['regret']:.1f} %",
        gain("block"),
        gain("cyclic"),
        f"{100 * found['off']:+.1f} %",
        f"{len(row['runs'])} of {row['candidates']}",
    ]
    return f"| {' | '.join(cells)} |"


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return all rows as a table, with what they come to."""
    head = [
        "program", "n", "per node", "choice", "regret", "gain over block, predicted / true",
        "over cyclic", "time off", "run",
    ]  # fmt: skip
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *map(line, rows)]
    found = [figures(row) for row in rows]
    good = sum(each["regret"] <= 0.05 for each in found)
    gains = [each[usual] for each in found for usual in ("block", "cyclic") if usual in each]
    near = sum(abs(each["predicted"] - each["true"]) <= 0.05 for each in gains)
    lines += [
        "",
        f"Regret at most 5 % in {good} of {len(found)}; gain within 5 points in {near} of "
        f"{len(gains)}.",
    ]
    return "\n".join(lines)


def known() -> dict[str, Program]:
    """Return the programs by name."""
    return {**PROGRAMS, **HELD_OUT, BOX.name: BOX}


def wanted(args: argparse.Namespace) -> list[Program]:
    """Return the programs that the command line means."""
    if args.source is not None:
        return options.asked(args)
    return [
        replace(known()[name], traced=args.traced or known()[name].traced)
        for name in args.program or USUAL
    ]


def seen(args: argparse.Namespace, directory: Path) -> list[dict[str, Any]]:
    """Run everything that the command line asks for; write what is there after each case."""
    builder = Builder(directory / "build")
    path = directory / "machine.json"
    topology = path.with_name("topology.json")
    if not topology.exists():
        topology = measured(builder, path)
    rows = []
    for program in wanted(args):
        build = (
            builder.outside(program.name, program.source, program.build, program.executable)
            if program.build
            else builder.program(program.source, program.name)
        )
        study = traced(program, builder, build, directory / program.name)
        (study / "machine.json").write_bytes(path.read_bytes())
        for n in args.ranks:
            for ppn in args.ppn:
                if -(-n // ppn) > NODES:
                    continue
                rows.append(
                    one(program, builder, build, study, topology, n, ppn, args.runs, args.every)
                )
                if args.out:
                    args.out.write_text(json.dumps(rows, indent=1) + "\n")
    return rows


def main() -> int:
    """Run the benchmark; print the table."""
    parser = options.parser()
    add = parser.add_argument_group("placements").add_argument
    add("--ranks", type=options.counts_of, default=(64,), help="process counts (default: 64)")
    add("--ppn", type=options.counts_of, default=(1, 4), help="ranks of a node (default: 1,4)")
    add("--runs", type=int, default=24, help="placements that run (default: 24)")
    add("--every", action="store_true", help="run some of all candidates, not of those simulated")
    args = parser.parse_args()
    if args.join:
        print(table([row for path in args.join for row in json.loads(path.read_text())]))
        return 0
    if why := cluster.missing():
        print(f"placement.py: {why}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="p3s-placement-") as temporary:
        print(table(seen(args, (args.dir or Path(temporary)).resolve())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
