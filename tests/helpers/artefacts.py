"""What is left in a study's files: numbers that are none."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def no_numbers(root: Path) -> list[str]:
    """Return where the JSON and Parquet files below ``root`` hold NaN or infinity."""
    out = []
    for path in sorted(root.rglob("*.json")):
        out += [f"{path.relative_to(root)}{at}" for at in _in_json(json.loads(path.read_text()))]
    for path in sorted(root.rglob("*.parquet")):
        out += [f"{path.relative_to(root)}:{name}" for name in _in_table(pq.read_table(path))]
    return out


def _in_json(value: Any, at: str = "") -> Iterator[str]:
    if isinstance(value, float) and not math.isfinite(value):
        yield at
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _in_json(inner, f"{at}.{key}")
    elif isinstance(value, list):
        for k, inner in enumerate(value):
            yield from _in_json(inner, f"{at}[{k}]")


def _in_table(table: pa.Table) -> Iterator[str]:
    for name in table.column_names:
        if pa.types.is_floating(table.schema.field(name).type):
            there = table.column(name).drop_null().to_numpy()
            if not np.isfinite(there).all():
                yield name
