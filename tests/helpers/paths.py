"""Where the repository and its programs are."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
#: C, Fortran and Python programs that tests compile and run.
PROGRAMS = ROOT / "tests" / "programs"
