"""``p3s doctor``: what this machine has, what is missing, what to do about it."""

from __future__ import annotations

from p3s.cli.common import JSON_OPTION, emit_json, header, one_line, out, say

EPILOG = """\b
Example:
  p3s doctor
Next:
  p3s characterize -n 2,4,8,16 -o study -- mpiexec -n {np} ./program input"""


def doctor(json_: bool = JSON_OPTION) -> int:
    """Say what this machine has for tracing and replay, what is missing, what to do about it."""
    from signature_runner.doctor import checks

    found = list(checks())
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
