"""``p3s check`` and ``p3s recover``: what captures hold, and saving what is intact."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from p3s.base.text import one_line, plural
from p3s.cli.common import emit, out, quote_word, say


def check(path: Path, json_: bool) -> int:
    """Say for every run and rank whether its capture is complete, and what is wrong if not.

    Exit code 0 when all is complete, 3 when something is partial or damaged, 1 when nothing can
    be used.
    """
    from p3s.capture.check import COMPLETE, PARTIAL
    from p3s.capture.check import check as check_place
    from p3s.capture.recover import places_at
    from p3s.report.captured import check_text

    runs = []
    for place in places_at(path, others=True):
        run = check_place(place)
        runs.append(run)
        if not json_:
            out(check_text(run))
    usable = [run for run in runs if run.usable]
    whole = all(run.status == COMPLETE for run in runs)
    if json_:
        emit("check", ok=whole, runs=[asdict(run) for run in runs])
    if not usable:
        say(f"p3s: {path} holds nothing that can be used; trace the program again")
        return 1
    if not whole:
        bad = [run for run in usable if run.status not in (COMPLETE, PARTIAL) and run.path.is_dir()]
        if bad:
            damaged = bad[0].path
            saved = quote_word(Path(f"{damaged.name}-saved"))
            say(f"next: p3s recover {quote_word(damaged)} -o {saved} (saves what is intact)")
        return 3
    return 0


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
    say(f"next: p3s dump {quote_word(target)} --summary")
    return 3 if any(one.problem for one in saved) else 0
