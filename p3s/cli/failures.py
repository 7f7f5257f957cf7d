"""What a failed run says about itself."""

from __future__ import annotations

import re
from pathlib import Path

#: Lines of launchers and MPI libraries that say only that something failed.
_NOISE = re.compile(
    r"""^\s*$
    | ^[\s=\-*|+]+$
    | Primary\ job | mpi(exec|run)\ (noticed|detected|has\ exited) | prterun\ (noticed|detected|has)
    | Per\ user-direction | was\ aborted | BAD\ TERMINATION | CLEANING\ UP | YOU\ CAN\ IGNORE
    | YOUR\ APPLICATION\ TERMINATED | EXIT\ CODE: | PID\ \d+\ RUNNING | KILLED\ BY\ SIGNAL
    | Process\ name: | Exit\ code: | exit\ code\ \d | non-zero\ (exit|status)
    | MPI_A(bort|BORT)\ was\ (invoked|called) | application\ called\ MPI_Abort
    | ^\s*with\ errorcode | NOTE:\ invoking\ MPI_ABORT | You\ may\ or\ may\ not
    | exactly\ when\ Open\ MPI | while\ attempting\ to\ abort | This\ typically\ | internal_Abort
    | ^\[[^]]*\]\ \d+\ more\ process(es)?\ ha(s|ve)\ sent\ help | orte_base_help_aggregate
    | the\ job\ to\ be\ terminated | ^\s*(and|in)\ (the|causing)\ | first\ process\ to\ do\ so
    | ^srun:\ | ^slurmstepd:
    """,
    re.VERBOSE,
)

_TAIL_BYTES = 16384


def _tail(path: Path) -> list[str]:
    try:
        with path.open("rb") as text:
            text.seek(0, 2)
            text.seek(max(0, text.tell() - _TAIL_BYTES))
            return text.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return []


def last_words(run_dir: Path) -> str:
    """Return the last line of a run's stderr (else stdout) that is not the launcher's own.

    Empty when the run printed nothing.
    """
    for name in ("stderr.txt", "stdout.txt"):
        said = [line.strip() for line in _tail(run_dir / name) if not _NOISE.search(line)]
        if said:
            return said[-1][:200]
    return ""
