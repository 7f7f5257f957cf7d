"""Ctrl-C at any time: one line, the exit code of an interrupt, no traceback."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib

import pytest
from paths import ROOT

#: Runs the command line; the process gets SIGINT when a module is about to be imported.
PROGRAM = """
import os, signal, sys

class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupts())
sys.argv = ["p3s", "doctor", "--json"]
from p3s.__main__ import main
main()
"""


@pytest.mark.parametrize("module", ["p3s.cli.main", "typer", "p3s.cli.doctor", "p3s.base.text"])
def test_an_interrupt_while_modules_are_imported(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(module=module)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 130, done.stderr
    assert done.stderr == "p3s: interrupted; what was finished before is kept\n"


def test_an_interrupt_that_the_caller_ignores_stays_ignored() -> None:
    script = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    program = PROGRAM.format(module="typer")
    done = subprocess.run(
        [sys.executable, "-c", script + program.replace('"doctor", "--json"', '"--version"')],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("p3s ")


def test_the_command_starts_where_interrupts_are_heeded() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts["p3s"] == "p3s.__main__:main"
