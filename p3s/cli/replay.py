"""``p3s replay``: measure the communication of a scaled trace on a few nodes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

from p3s.base.errors import P3SError, UsageError
from p3s.base.text import plural, processes, table
from p3s.cli.common import JSON_OPTION, STUDY, emit, out, parse_counts, progress, quoted, say
from p3s.cli.helptext import option
from p3s.replay.settings import BUDGET_S, MAPPINGS, NOISES, PAGES, STALL_S, ReplaySettings

EPILOG = """\b
Example:
  p3s replay study -n 256,512 --hosts n0,n1,n2,n3
  p3s replay study -n 512 --hosts n0,n1,n2,n3 --plan
  p3s replay study -n 512 --hosts n0,n1,n2,n3 --budget 10m --timed
Next:
  p3s predict study -n 256,512"""

HOSTS = option(
    "",
    "--hosts HOSTS",
    "Nodes: two measured, two black holes [default: those of the Slurm job, or this one].",
)
CORES = option(
    0, "--cores-per-node K", "Ranks of the full run on one node [default: cores as found].", min=0
)
BUDGET = option(f"{BUDGET_S:.0f}s", "--budget TIME", "Time to measure in, per count: 30s, 10m, 1h.")
LAUNCHER = option("", "--launcher COMMAND", "Launcher of the replay [default: as found].")
PLAN = option(False, "--plan", "Print what would be run, and run nothing.")
EXHAUSTIVE = option(
    False, "--exhaustive", "Load all pairs of nodes, not only until every class is measured."
)
TIMED = option(
    False, "--timed", "Check with whole iterations: black holes act when the absent ranks would."
)
MAPPING = option(MAPPINGS[0], "--mapping HOW", "Ranks of the full run on nodes: block, cyclic.")
RANK_FILE = option(
    None, "--rank-file FILE", "Node of every rank of the full run, or an Open MPI rankfile."
)
TOPOLOGY = option(
    None,
    "--topology FILE",
    "How far nodes are apart: Slurm's topology.conf, netloc [default: all alike].",
)
COLLECTIVES = option(
    "", "--collectives WHAT", "Algorithms instead of the library's: allreduce=ring,..., or a file."
)
PAGES_OF_BUFFERS = option(PAGES[0], "--pages KIND", "Pages of the buffers: small, huge.")
NOISE = option(
    NOISES[0],
    "--noise WHEN",
    "Traffic of absent ranks: auto (on links shared by switches), on, off.",
)
STALL = option(
    f"{STALL_S:.0f}s",
    "--stall TIME",
    "End the job when nothing moves for so long, and say what is waited for.",
)
TIMEOUT = option(
    "",
    "--timeout TIME",
    "End it after so long in any case, per count [default: 3 x budget + 30 s].",
)
AGAIN = option(False, "--again", "Measure what is measured already once more.")

_TIME = re.compile(r"(\d+(?:\.\d*)?)\s*(s|m|min|h)?", re.ASCII)
_SECONDS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_LONGEST_S = 30 * 86400.0


def seconds_of(text: str, option: str) -> float:
    """Return a time like 30s, 10m or 1h in seconds."""
    found = _TIME.fullmatch(text.strip())
    value = float(found[1]) * _SECONDS[found[2] or "s"] if found else 0.0
    if not 0.0 < value <= _LONGEST_S:
        raise UsageError(f"{option} {text}: give a time, for example 30s, 10m or 1h")
    return value


def hosts_of(text: str) -> tuple[str, ...]:
    """Return host names from a list with commas; n[0-3] stands for n0,n1,n2,n3."""
    from p3s.base.host.hosts import expand_hosts

    try:
        return tuple(expand_hosts(text)) if text.strip() else ()
    except P3SError as err:
        raise UsageError(f"--hosts: {err}") from err


def settings_of(hosts: str, cores: int, budget: str, launcher: str, **more: Any) -> ReplaySettings:
    """Return ReplaySettings from the options of a command."""
    try:
        words = tuple(shlex.split(launcher))
    except ValueError as err:
        raise UsageError(f"--launcher {launcher}: {err}") from err
    for name, value, known in (
        ("--mapping", more.get("mapping"), MAPPINGS),
        ("--pages", more.get("pages"), PAGES),
        ("--noise", more.get("noise"), NOISES),
    ):
        if value is not None and value not in known:
            raise UsageError(f"{name} {value}: there are {', '.join(known[:-1])} and {known[-1]}")
    return ReplaySettings(
        hosts=hosts_of(hosts),
        cores_per_node=cores or None,
        budget_s=seconds_of(budget, "--budget"),
        launcher=words,
        **more,
    )


def replay(
    study_dir: Path = STUDY,
    counts: str = option(..., "-n --counts COUNTS", "Process counts, for example 256,512."),
    hosts: str = HOSTS,
    cores_per_node: int = CORES,
    budget: str = BUDGET,
    plan: bool = PLAN,
    timed: bool = TIMED,
    exhaustive: bool = EXHAUSTIVE,
    mapping: str = MAPPING,
    rank_file: Path | None = RANK_FILE,
    topology: Path | None = TOPOLOGY,
    collectives: str = COLLECTIVES,
    pages: str = PAGES_OF_BUFFERS,
    noise: str = NOISE,
    again: bool = AGAIN,
    stall: str = STALL,
    timeout: str = TIMEOUT,
    launcher: str = LAUNCHER,
    json_: bool = JSON_OPTION,
) -> int:
    """Measure the communication of the scaled traces with measured and black-hole processes."""
    from p3s.base.study import Study
    from p3s.pipeline.stages import ensure_compute, ensure_model, ensure_scaled, run_replay

    wanted = parse_counts(counts)
    settings = settings_of(
        hosts,
        cores_per_node,
        budget,
        launcher,
        timed=timed,
        exhaustive=exhaustive,
        mapping=mapping,
        rank_file=rank_file,
        topology=topology,
        collectives=collectives,
        pages=pages,
        noise=noise,
        again=again,
        stall_s=seconds_of(stall, "--stall"),
        timeout_s=seconds_of(timeout, "--timeout") if timeout else None,
    )
    study = Study.open(study_dir)
    done: list[tuple[int, dict[str, Any]]] = []
    with progress(len(wanted) * 2) as bar:
        ensure_model(study, bar)
        ensure_compute(study, bar)
        for n in wanted:
            ensure_scaled(study, n, bar)
            if plan:
                done.append((n, planned(study, n, settings)))
            else:
                done.append((n, run_replay(study, n, settings, bar)))
    if plan:
        return _show_plans(done, json_)
    if json_:
        emit("replays", counts=[result for _, result in done])
    else:
        head = ["processes", "iterations", "classes", "measured", "representative"]
        out(table([_row(n, result) for n, result in done], head, left=0))
        for n, result in done:
            _show_estimates(n, result)
    for n, result in done:
        if not result.get("representative", False):
            say(f"n={n}: not representative: {result.get('why_not_representative') or 'unknown'}")
        missing = result.get("unmeasured") or []
        if missing:
            classes = plural(len(missing), "class", "classes")
            say(f"n={n}: {classes} of events could not be measured")
    say(f"next: p3s predict {quoted(study.root)} -n {','.join(map(str, wanted))}")
    return 3 if any(result.get("unmeasured") for _, result in done) else 0


def planned(study: Any, n: int, settings: ReplaySettings) -> Any:
    """Return the plan of a count; nothing is launched."""
    from p3s.replay.driver import prepare

    return prepare(study.scaled_dir(n), settings, machine=study.root / "machine.json").plan


def _show_plans(plans: list[tuple[int, Any]], json_: bool) -> int:
    """Print plans, as text or JSON."""
    from p3s.replay.plan.show import plan_json, plan_text

    if json_:
        emit("replay_plans", counts=[plan_json(plan) for _, plan in plans])
    else:
        out("\n\n".join(plan_text(plan) for _, plan in plans))
    return 0


def _row(n: int, result: dict[str, Any]) -> list[str]:
    share = result.get("measured_share")
    return [
        str(n),
        str(result.get("iterations", "-")),
        str(len(result.get("messages", []))),
        f"{100 * share:.1f} %" if isinstance(share, (int, float)) else "-",
        "yes" if result.get("representative") else "no",
    ]


def _show_estimates(n: int, result: dict[str, Any]) -> None:
    """Print what the phases take at a count."""
    from p3s.report.replayed import result_text

    out(f"\n{processes(n)}")
    out(result_text(result))
