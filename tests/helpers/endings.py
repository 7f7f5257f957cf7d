"""How a command may end whose program ran on shared, busy cores."""

from __future__ import annotations


def only_work(code: int, err: str) -> bool:
    """Tell whether nothing speaks against a result but the work, which such cores may disturb.

    ``code``: of the command, ``err``: what it wrote to stderr.
    """
    said = [line for line in err.splitlines() if "do not rely on this" in line]
    return code == (3 if said else 0) and all("-work): " in line for line in said)
