"""Freed memory goes back to the system."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

_PROGRAM = """
import numpy as np
from p3s.base.host.processes import give_back

def resident():
    text = open("/proc/self/status").read()
    return int(text.split("VmRSS:")[1].split()[0])

before = resident()
columns = [np.ones(12_000) for _ in range(1000)]  # 96 kB each: the C library keeps what is freed
last = np.ones(1_000)  # lies above them
full = resident()
del columns
give_back()
print(before, full, resident())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="malloc_trim is glibc's")
def test_freed_columns_go_back_to_the_system() -> None:
    told = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=120, check=True
    )
    before, full, after = map(int, told.stdout.split())
    assert full - before > 80_000
    assert after - before < (full - before) / 4
