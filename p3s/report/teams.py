"""What threads change, as text: messages that do not, computation that does."""

from __future__ import annotations

from collections.abc import Sequence

from p3s.predict.reasons import Reason
from p3s.serialise import to_data
from p3s.text import NOT_KNOWN, joined, percent, plural, processes, table
from p3s.threads.checks import ThreadCheck
from p3s.threads.stage import ThreadFile
from p3s.threads.types import Part

#: Parts of a law that make up less are not shown.
_SHOWN = 0.01


def of_checks(checks: Sequence[ThreadCheck], base: int) -> list[str]:
    """Return whether messages are the same with all numbers of threads."""
    if not checks:
        return ["messages were traced with one number of threads only"]
    missed = [check for check in checks if not check.equal]
    threads = joined(sorted({check.threads for check in checks}))
    if not missed:
        return [
            f"messages do not depend on threads: {plural(len(checks), 'run')} with {threads} "
            f"threads have those of the equations with {base}"
        ]
    return [_missed(check) for check in missed]


def _missed(check: ThreadCheck) -> str:
    row = check.summary
    messages, collectives = row.p2p_triples, row.collectives
    return (
        f"{check.name} at {processes(check.n)}: {messages.equal:,} of {messages.true:,} messages "
        f"and {collectives.equal:,} of {collectives.true:,} collectives are as with the fewest "
        f"threads, {row.weights.exact} of {row.weights.phases} weights: threads communicate, or "
        "change what is sent"
    )


def doubts(checks: Sequence[ThreadCheck]) -> list[Reason]:
    """Return why a study's messages at other numbers of threads are not to be trusted."""
    return [Reason("threads-differ", _missed(check)) for check in checks if not check.equal]


def render(file: ThreadFile) -> str:
    """Return what threads change: whether messages do, and the laws of computation by phase."""
    lines = [f"threads of a process: {joined(file.threads)}", *of_checks(file.checks, file.base)]
    if not file.laws:
        return "\n".join([*lines, "no law of threads: no times were taken"])
    rows = []
    for law in file.laws:
        seen = law.envelope
        parts = sorted(law.parts, key=lambda part: -part.share)
        rows.append(
            [
                str(law.phase),
                f"{seen.threads.low:.0f} to {seen.threads.high:.0f}",
                percent(law.fit),
                ", ".join(_part(part) for part in parts if part.share >= _SHOWN) or NOT_KNOWN,
            ]
        )
    head = ["phase", "threads", "off by", "made of, with most threads (~ not shown by the runs)"]
    return "\n".join([*lines, "", table(rows, head, left=3)])


def _part(part: Part) -> str:
    return f"{'' if part.seen else '~'}{part.name} {percent(part.share)}"


def as_data(file: ThreadFile) -> dict[str, object]:
    """Return what threads change as plain data."""
    return {
        "base": file.base,
        "threads": list(file.threads),
        "checks": to_data(file.checks),
        "laws": [
            {
                "phase": law.phase,
                "fit": law.fit,
                "envelope": to_data(law.envelope),
                "parts": to_data(law.parts),
            }
            for law in file.laws
        ],
    }
