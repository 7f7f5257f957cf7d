"""The footer of a Parquet file, read without pyarrow."""

from __future__ import annotations

import io
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from p3s.base.tables import values_of

TABLE = pa.table(
    {
        "list": [[1, 2], [], None, [3, 4, 5]],
        "text": ["x", "y", None, "z"],
        "bool": [True, False, True, None],
    }
)


def written(table: pa.Table = TABLE, **how: object) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **how)
    return sink.getvalue()


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"compression": "zstd", "write_page_checksum": True},
        {"row_group_size": 2},
        {"store_schema": False},
        {"write_statistics": False, "use_dictionary": False},
    ],
)
def test_values_are_those_that_pyarrow_reads(how: dict[str, object]) -> None:
    data = written(**how)
    metadata = pq.ParquetFile(io.BytesIO(data)).metadata
    groups = [metadata.row_group(k) for k in range(metadata.num_row_groups)]
    there = sum(group.column(c).num_values for group in groups for c in range(group.num_columns))
    assert values_of(data) == there == 15


def test_columns_of_many() -> None:
    wide = pa.table({f"c{k}": np.arange(7) for k in range(40)})
    assert values_of(written(wide)) == 280


def test_damaged_footers_are_refused_or_read() -> None:
    """Whatever a byte says, there is a number or a ValueError."""
    data, rng, refused = written(), np.random.default_rng(7), 0
    for _ in range(4000):
        changed = bytearray(data)
        for at in rng.integers(len(data) // 2, len(data), rng.integers(1, 4)):
            changed[at] = rng.integers(256)
        try:
            assert values_of(bytes(changed)) >= 0
        except ValueError:
            refused += 1
    assert refused > 500
    for size in range(len(data)):
        with pytest.raises(ValueError, match="Parquet|footer"):
            values_of(data[:size])


def test_a_damaged_footer_does_not_end_the_process() -> None:
    """pyarrow's own way to the number of values does, with SIGABRT, where a histogram of levels is
    too long."""
    code = (
        "import io, sys, tempfile, pathlib\n"
        "import numpy as np, pyarrow as pa, pyarrow.parquet as pq\n"
        "from p3s.base.tables import open_table\n"
        "sink = io.BytesIO()\n"
        "pq.write_table(pa.table({'list': [[1, 2], [], [3]]}), sink)\n"
        "data, rng = sink.getvalue(), np.random.default_rng(3)\n"
        "path = pathlib.Path(tempfile.mkdtemp()) / 't.parquet'\n"
        "for k in range(3000):\n"
        "    changed = bytearray(data)\n"
        "    changed[int(rng.integers(len(data) - 900, len(data)))] = int(rng.integers(256))\n"
        "    path.write_bytes(bytes(changed))\n"
        "    try:\n"
        "        open_table(path, None)\n"
        "    except (ValueError, OSError, pa.ArrowException):\n"
        "        pass\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-500:]
