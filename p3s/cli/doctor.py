"""``p3s doctor``: what this machine has, what is missing, what to do about it."""

from __future__ import annotations

import typer

from p3s.cli.common import JSON_OPTION, WithLauncher, emit_json, header, launcher_words, out, say
from p3s.text import one_line

__all__ = ["EPILOG", "WithLauncher", "doctor"]

EPILOG = """Words after -- are a launcher command: then only its program is checked.

\b
Example:
  p3s doctor
  p3s doctor -- mpiexec -n {np} ./program input
Next:
  p3s characterize -n 2,4,8,16 -o study -- mpiexec -n {np} ./program input"""


def doctor(ctx: typer.Context, json_: bool = JSON_OPTION) -> int:
    """Say what this machine has for tracing and replay, what is missing, what to do about it.

    Traces small programs at 2 ranks and counts their events. With a launcher command, it starts
    that program at 2 ranks for some seconds instead.
    """
    from p3s.signature_runner.doctor import checks

    found = list(checks(launcher_words(ctx)))
    failed = [check for check in found if check.status == "fail"]
    if json_:
        emit_json(
            {
                **header("doctor"),
                "ok": not failed,
                "checks": [
                    {
                        "name": check.name,
                        "status": check.status,
                        "detail": check.detail,
                        "fix": check.fix,
                    }
                    for check in found
                ],
            }
        )
    else:
        width = max((len(check.name) for check in found), default=0)
        for check in found:
            out(f"{check.status.upper():4}  {check.name:{width}}  {one_line(check.detail)}")
            if check.status != "ok" and check.fix:
                out(f"{'':4}  {'':{width}}  -> {one_line(check.fix)}")
    if failed:
        say(f"{len(failed)} of {len(found)} checks failed: {failed[0].name}")
        return 1
    return 0
