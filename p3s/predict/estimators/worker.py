"""One process of several that estimate.

    python -m p3s.predict.estimators.worker ORDER.json

It is told in a file what to estimate, prints what it has to say, and writes arrays to files.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from p3s.errors import P3SError
from p3s.predict.estimators.one import estimate
from p3s.predict.estimators.settings import Setting
from p3s.predict.estimators.several import FAILED, to_bytes
from p3s.study import Study


def _setting(data: Mapping[str, Any]) -> Setting:
    ranks = data["rank_file"]
    file = None if ranks is None else Path(ranks)
    return Setting(**{**data, "rank_file": file, "hosts": tuple(data["hosts"])})


def main() -> None:
    """Make the estimates of some counts and write each to a file of its own."""
    order = json.loads(Path(sys.argv[1]).read_text())
    machine = None if order["machine"] is None else Path(order["machine"])
    try:
        for n in order["counts"]:
            made = estimate(
                order["name"],
                Study.open(Path(order["study"])),
                n,
                machine=machine,
                say=print,
                setting=_setting(order["setting"]),
            )
            (Path(order["into"]) / f"{n}.npz").write_bytes(to_bytes(made))
    except P3SError as err:
        print(f"error: {' '.join(str(err).split())}", file=sys.stderr)
        raise SystemExit(FAILED) from err


if __name__ == "__main__":
    main()
