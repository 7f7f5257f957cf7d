"""Every kind of rule in a model's file is known to whoever reads it, whatever was imported."""

from __future__ import annotations

import subprocess
import sys


def test_reading_a_model_knows_all_kinds_of_grids() -> None:
    code = (
        "import p3s.model.stage, p3s.model.check\n"
        "from p3s.model.grid.grid_rule import GridRule\n"
        "known = set(GridRule.kinds)\n"
        "import p3s.model.fit\n"
        "assert known == set(GridRule.kinds), set(GridRule.kinds) - known\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
