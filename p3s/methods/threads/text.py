"""What threads change, as text: messages that do not, computation that does."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from p3s.base.serialise import to_data
from p3s.base.text import NOT_KNOWN, ends, join_words, percent, plural, processes, seconds, table
from p3s.methods.threads.law import SHARE
from p3s.methods.threads.runs import Run
from p3s.methods.threads.settings import ThreadCheck, with_threads
from p3s.methods.threads.stage import ThreadFile
from p3s.methods.threads.types import Part
from p3s.predict.checks import UNSURE
from p3s.predict.types import Reason
from p3s.signature.teams import Teams

#: Parts of a law that make up less are not shown.
_SHOWN = 0.01
_MORE_OFTEN = (
    "how often depends on threads, as where iterations end by a sum that threads add in another "
    "order"
)
#: So small a share of the calls inside of regions is only to be minded.
_FEW_CALLS = 0.01


def of_checks(checks: Sequence[ThreadCheck], base: int, inside: float = 0.0) -> list[str]:
    """Return whether messages are the same with all numbers of threads.

    inside: share of the calls that threads make in parallel regions.
    """
    if not checks:
        return ["messages were traced with one number of threads only"]
    missed = [check for check in checks if not check.equal]
    threads = join_words(sorted({check.threads for check in checks}))
    if not missed:
        return [
            f"messages do not depend on threads: {plural(len(checks), 'run')} with {threads} "
            f"threads have those of the runs with {base}"
        ]
    return [_describe_miss(check, inside) for check in missed]


def _describe_miss(check: ThreadCheck, inside: float) -> str:
    row = check.summary
    (_, messages), *others = row.told
    where = f"{check.name} at {processes(check.n)}: "
    if check.alike:
        calls = [f"{x.true:,} {noun}s instead of {x.predicted:,}" for noun, x in others]
        return (
            f"{where}the same messages, but {messages.true:,} instead of {messages.predicted:,}, "
            f"and {join_words(calls)}: " + ("threads send their own" if inside else _MORE_OFTEN)
        )
    return (
        f"{where}{join_words(f'{x.equal:,} of {x.true:,} {noun}s' for noun, x in row.told)} are as "
        "with the fewest "
        f"threads, {row.weights.exact} of {row.weights.phases} weights: threads communicate, or "
        "change what is sent"
    )


def doubts(file: ThreadFile, *, messages: bool = True) -> list[Reason]:
    """Return why predictions over threads are not to be trusted: their messages, their calls.

    messages: those of some numbers of threads are from runs with others.
    """
    return [*(_differing(file) if messages else []), *_calling(file.inside)]


def _calling(inside: float) -> list[Reason]:
    """Say that threads make MPI calls while others compute: their waiting is in no equation."""
    if not inside:
        return []
    text = (
        f"{percent(inside)} of a run's MPI calls are made inside of parallel regions: what other "
        "threads compute meanwhile, and how they wait for each other, is not modelled"
    )
    return [Reason("threads-call", text, untrustworthy=inside > _FEW_CALLS)]


def _differing(file: ThreadFile) -> list[Reason]:
    """Return why a study's messages at other numbers of threads are not to be trusted.

    One reason for all runs, told of the largest. The same messages in other numbers, within UNSURE,
    are only to be minded.
    """
    missed = [check for check in file.checks if not check.equal]
    bad = [check for check in missed if not check.alike or _differs_much(check)]
    differing = bad or missed
    if not differing:
        return []
    more = f" (and in {plural(len(differing) - 1, 'other run')})" if len(differing) > 1 else ""
    return [
        Reason(
            "threads-differ",
            _describe_miss(differing[-1], file.inside) + more,
            untrustworthy=bool(bad),
        )
    ]


def _differs_much(check: ThreadCheck) -> bool:
    """Tell whether a run has so many more or fewer calls that its time is another one."""
    pairs = [pair for _, pair in check.summary.told]
    return any(abs(row.true - row.predicted) > UNSURE * row.predicted for row in pairs)


def render(file: ThreadFile, runs: Sequence[Run]) -> str:
    """Return what threads change: whether messages do, what was seen, laws of computation."""
    lines = [
        f"threads of a process: {join_words(file.threads)}",
        *of_checks(file.checks, file.base, file.inside),
    ]
    head, rows, below = seen_rows(runs)
    if rows:
        lines += ["", table(rows, head, left=1), below]
    head, rows = law_rows(file)
    if not rows:
        return "\n".join([*lines, "no law of threads: no times were taken"])
    return "\n".join([*lines, "", table(rows, head, left=4)])


def law_rows(file: ThreadFile) -> tuple[list[str], list[list[str]]]:
    """Return a head and a row per phase that has a law."""
    rows = []
    for law in file.laws:
        box = law.envelope
        parts = sorted((p for p in law.parts if p.unit == SHARE), key=lambda part: -part.value)
        rows.append(
            [
                str(law.phase),
                ends(box.threads.low, box.threads.high, ".0f"),
                percent(law.fit),
                ", ".join(_part(part) for part in parts if part.value >= _SHOWN) or NOT_KNOWN,
            ]
        )
    return [
        "phase",
        "threads",
        "off by",
        "made of, with most threads (~ not shown by the runs)",
    ], rows


def seen_rows(runs: Sequence[Run]) -> tuple[list[str], list[list[str]], str]:
    """Return a head, a row per number of threads and count, and what the columns are."""
    rows = [
        [with_threads(run.rest, run.threads), str(run.n), *_format_teams(run.teams, run.shared)]
        for run in runs
        if run.teams is not None
    ]
    head = ["runs", "processes", "regions", "team", "outside", "in regions", "imbalance", "waiting"]
    below = (
        "outside: CPU time outside of parallel regions, of all ranks; in regions: of all threads; "
        "imbalance: longest thread over the mean; waiting: at barriers, of all threads; fork and "
        "join: of one region. Both are not known where threads shared cores"
    )
    return [*head, "fork and join", "other threads"], rows, below


def _format_teams(teams: Teams, shared: bool) -> list[str]:
    regions, uneven = teams.total("regions"), teams.imbalance()
    return [
        f"{regions:,.0f}",
        f"{teams.total('team'):.0f}",
        seconds(teams.total("serial")),
        seconds(teams.total("busy")),
        NOT_KNOWN if np.isnan(uneven) else f"{uneven:.2f}",
        NOT_KNOWN if shared else seconds(teams.total("waiting")),
        NOT_KNOWN if shared or not regions else seconds(teams.total("overhead") / regions),
        seconds(teams.total("other_ns")),
    ]


def _part(part: Part) -> str:
    return f"{'' if part.seen else '~'}{part.name} {percent(part.value)}"


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
