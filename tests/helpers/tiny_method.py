"""A method from outside of P3S: a command, a part of reports, and what Python offers."""

from __future__ import annotations

from pathlib import Path

import typer

from p3s.base.extensions import Command, Extension
from p3s.base.progress import Progress
from p3s.base.study import Study
from p3s.cli.common import out
from p3s.pipeline.content import StudyContent
from p3s.report.show import Curve, Part, PartTable

EPILOG = "Example: p3s tiny study"


def tiny(study_dir: Path = typer.Argument(..., metavar="STUDY", help="Study directory.")) -> int:
    """Print the longest path there is: <none>."""
    out(f"tiny: {Study.open(study_dir).root.name}")
    return 3


def phases(study_dir: Path, fast: bool = typer.Option(False, "--fast")) -> int | None:
    """Print the name of the study instead of its phases."""
    return tiny(study_dir) if fast else None


def section(content: StudyContent) -> Part:
    """Return a curve half as high, a table and a line of the terminal."""
    counts = [row.n for row in content.prediction.counts]
    half = [0.5 * row.model_s for row in content.prediction.counts]
    return Part(
        "tiny",
        "What is tiny",
        lead="Half of it & more.",
        tables=[PartTable("Tiny things", ("n", "half"), [[str(n), "<b>"] for n in counts])],
        notes=["made by hand"],
        curve=Curve("half the time", counts, half, half, half, ["Half is enough."]),
        lines=["tiny: half is enough"],
    )


def small(root: Path, _progress: Progress, factor: int, *, more: int = 0) -> str:
    """Return the name of a study so many times."""
    return root.name * factor + "!" * more


EXTENSION = Extension(
    "tiny",
    commands=(
        Command("tiny", "tiny_method:tiny", "Show what is tiny.", "Inspect"),
        Command("tiny", "tiny_method:tiny", "Show a tiny machine.", parent="machine"),
    ),
    sections=("tiny_method:section",),
    studies=("tiny_method:small",),
    alternatives=(("phases", "tiny_method:phases"),),
)
