"""Rank the ways to tell communication times as the sources do, by commands alone.

    python benchmarks/ways.py [--work DIR] [--phases N] [--patterns halo2d,halo3d,rows]

A simulated fat tree of 64 nodes (SimGrid) is measured once by ``p3s machine learn``; each way is
then learned from the same phases (--data), and the card says how it does on allocations that it has
not seen. Beside them are the aggregates of Vilje (Papadopoulou 2017, table 4.9): within 25 %, R2,
pairs in order. H1 of SC13 orders 0.96 of the pairs at 4 MB (section 5.4); the counters of H3 to H6
are simulated. DIR/ways.json has all.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

PLATFORM = """<?xml version="1.0"?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
  <cluster id="cluster" prefix="n" suffix="" radical="0-63" speed="1Gf" bw="10Gbps" lat="1us"
           topology="FAT_TREE" topo_parameters="2;8,8;1,4;1,1"/>
</platform>
"""
#: Codes, and what the source has for them on Vilje.
WAYS = {
    "alpha-beta": (0.0, 0.030, 0.825),
    "SV": (0.3884, 0.635, 0.927),
    "MV": (0.3884, 0.721, 0.928),
    "A": (0.3154, 0.667, 0.937),
    "B": (0.5455, 0.926, 0.942),
    "C": (0.6185, 0.922, 0.942),
    "corrected": None,
    "H1": None,
    "H2": None,
    "H3": None,
    "H4": None,
    "H5": None,
    "H6": None,
}


def learned(work: Path, way: str, phases: int, patterns: str) -> dict[str, dict[str, float]]:
    """Return the scores on the card of a model of this way."""
    words = [sys.executable, "-m", "p3s", "machine", "learn", "--simgrid", str(work / "tree.xml")]
    words += ["--topology", "fat-tree:8,4,8@10Gbit/s", "--ppn", "2", "--ranks", "64"]
    words += ["--phases", str(phases), "--way", way, "--data", str(work / "phases"), "--json"]
    words += ["--patterns", patterns] if patterns else []
    done = subprocess.run(
        [*words, "-o", str(work / f"{way}.json")], stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode not in (0, 3):
        raise SystemExit(f"--way {way}: exit code {done.returncode}")
    return json.loads(done.stdout)["card"]["compared"]


def main() -> None:
    """Measure once, learn each way, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, default=Path("ways"))
    parser.add_argument("--phases", type=int, default=600)
    parser.add_argument("--patterns", default="halo2d,halo3d,rows")
    asked = parser.parse_args()
    asked.work.mkdir(parents=True, exist_ok=True)
    (asked.work / "tree.xml").write_text(PLATFORM)
    scores: dict[str, dict[str, float]] = {}
    for way in ("SV", "MV", "H1", "H2", "H3", "H4", "H5", "H6"):
        print(f"{time.strftime('%H:%M:%S')} {way}", file=sys.stderr, flush=True)
        scores |= learned(asked.work, way, asked.phases, asked.patterns)
    (asked.work / "ways.json").write_text(json.dumps(scores, indent=1))
    print(f"{'way':12} {'MMRE':>7} {'<25 %':>7} {'R2':>7} {'order':>7}   source: <25 %, R2, order")
    for way in sorted(WAYS, key=lambda each: -scores[each]["rcc"]):
        one, source = scores[way], WAYS[way]
        told = "" if source is None else "   {:.3f} {:.3f} {:.3f}".format(*source)
        print(
            f"{way:12} {one['mmre']:7.3f} {one['within']:7.3f} {one['r2']:7.3f} {one['rcc']:7.3f}"
            + told
        )


if __name__ == "__main__":
    main()
