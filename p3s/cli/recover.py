"""``p3s recover``: clean captures of what is intact in damaged ones."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from p3s.base.text import one_line, plural
from p3s.cli.common import emit, out, quoted, say


def recover(run_dir: Path, target: Path, force: bool, json_: bool) -> int:
    """Write clean captures with every intact chunk of a run, and say what was lost.

    Exit code 0 when nothing was wrong, 3 when something is lost, 1 when nothing can be saved.
    """
    from p3s.capture.recover import recover as recover_run

    saved = recover_run(run_dir, target, force)
    if json_:
        emit("recover", target=str(target), ranks=[asdict(one) for one in saved])
    else:
        for one in saved:
            rebuilt = ", its header was made again" if one.header_rebuilt and one.chunks else ""
            wrong = f"; it {one.problem}" if one.problem else ""
            out(
                f"rank {one.rank}: kept {plural(one.events, 'event')} in "
                f"{plural(one.chunks, 'chunk')}{rebuilt}{one_line(wrong)}"
            )
    say(f"next: p3s dump {quoted(target)} --summary")
    return 3 if any(one.problem for one in saved) else 0
