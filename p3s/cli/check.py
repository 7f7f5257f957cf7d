"""``p3s check``: what captures hold and what is wrong with them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from p3s.cli.common import emit, out, quoted, say


def check(path: Path, json_: bool) -> int:
    """Say for every run and rank whether its capture is complete, and what is wrong if not.

    Exit code 0 when all is complete, 3 when something is partial or damaged, 1 when nothing can
    be used.
    """
    from p3s.capture.check import COMPLETE, PARTIAL
    from p3s.capture.check import check as check_place
    from p3s.capture.recover import places_at
    from p3s.report.captured import check_text

    found = []
    for place in places_at(path, others=True):
        run = check_place(place)
        found.append(run)
        if not json_:
            out(check_text(run))
    usable = [run for run in found if run.usable]
    whole = all(run.status == COMPLETE for run in found)
    if json_:
        emit("check", ok=whole, runs=[asdict(run) for run in found])
    if not usable:
        say(f"p3s: {path} holds nothing that can be used; trace the program again")
        return 1
    if not whole:
        bad = [run for run in usable if run.status not in (COMPLETE, PARTIAL) and run.path.is_dir()]
        if bad:
            there = bad[0].path
            say(
                f"next: p3s recover {quoted(there)} -o {quoted(Path(f'{there.name}-saved'))} "
                "(saves what is intact)"
            )
        return 3
    return 0
