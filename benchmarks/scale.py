"""What scaling out costs: CPU time and peak memory of `p3s scale` at large counts.

    python benchmarks/all.py --only scale

The program is jacobi2d as event lists (tests/helpers/corpus), modelled at small counts.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import corpus
from figures import P3S, Figure, Found, Point, whole

from p3s.base.study import Study, write_json
from p3s.pipeline.stages import fit_model
from p3s.signature.store import SIGNATURE, signature_of, write_tables


def make_study(root: Path) -> None:
    """Model jacobi2d."""
    study = Study.create(root, ["mpiexec", "-n", "{np}", "./jacobi2d"])
    for n in (4, 8, 9, 16):
        table = corpus.table(corpus.jacobi2d(), n)
        study.signature_path(n).parent.mkdir(exist_ok=True)
        write_tables(table, study.signature_path(n))
        write_json(study.signature_path(n), SIGNATURE.data(signature_of(table)))
    fit_model(study)


def figures(quick: bool) -> Found:
    """Return what scaled traces cost, in a whole process that writes all ranks."""
    points, last = [], None
    counts = (1024, 4096) if quick else (1024, 8192, 1 << 16, 1 << 20)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "jacobi2d"
        make_study(root)
        for n in counts:
            last = whole([*P3S, "scale", root, "-n", str(n)])
            points.append(Point("ranks", "p3s scale", n, last.cpu_s, last.peak_mib))
    of = f"p3s scale of jacobi2d to {counts[-1]:,} ranks"
    goal = None if quick else 36.0
    time_and_memory = (
        Figure(f"{of}: CPU time", last.cpu_s, "s", goal),
        Figure(f"{of}: peak memory", last.peak_mib, "MiB"),
    )
    return Found(time_and_memory, tuple(points))
