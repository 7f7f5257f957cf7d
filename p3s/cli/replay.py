"""``p3s replay``: measure the communication of a scaled trace on a few nodes."""

from __future__ import annotations

from pathlib import Path

from p3s.base.text import plural
from p3s.cli import costs
from p3s.cli.common import emit, out, quoted, say
from p3s.cli.helptext import option
from p3s.cli.options import JSON_OPTION, STUDY
from p3s.cli.progress import progress
from p3s.cli.values import parse_counts, seconds_of
from p3s.replay.settings import MAPPINGS, NOISES, PAGES, STALL_S

EPILOG = """\b
Example:
  p3s replay study -n 256,512 --hosts n0,n1,n2,n3
  p3s replay study -n 512 --hosts n0,n1,n2,n3 --plan
  p3s replay study -n 512 --hosts n0,n1,n2,n3 --budget 10m --timed
Next:
  p3s predict study -n 256,512"""


def replay(
    study_dir: Path = STUDY,
    counts: str = option(..., "-n --counts COUNTS", "Process counts, for example 256,512."),
    hosts: str = costs.HOSTS,
    cores_per_node: int = costs.CORES,
    budget: str = costs.BUDGET,
    plan: bool = option(False, "--plan", "Print what would be run, and run nothing."),
    timed: bool = option(
        False,
        "--timed",
        "Check with whole iterations: black holes act when the absent ranks would.",
    ),
    exhaustive: bool = option(
        False, "--exhaustive", "Load all pairs of nodes, not only until every class is measured."
    ),
    mapping: str = option(
        MAPPINGS[0], "--mapping HOW", "Ranks of the full run on nodes: block, cyclic."
    ),
    rank_file: Path | None = option(
        None, "--rank-file FILE", "Node of every rank of the full run, or an Open MPI rankfile."
    ),
    topology: Path | None = option(
        None,
        "--topology FILE",
        "How far nodes are apart: Slurm's topology.conf, netloc [default: all alike].",
    ),
    collectives: str = costs.COLLECTIVES,
    pages: str = option(PAGES[0], "--pages KIND", "Pages of the buffers: small, huge."),
    noise: str = option(
        NOISES[0],
        "--noise WHEN",
        "Traffic of absent ranks: auto (on links shared by switches), on, off.",
    ),
    again: bool = option(False, "--again", "Measure what is measured already once more."),
    stall: str = option(
        f"{STALL_S:.0f}s",
        "--stall TIME",
        "End the job when nothing moves for so long, and say what is waited for.",
    ),
    timeout: str = option(
        "",
        "--timeout TIME",
        "End it after so long in any case, per count [default: 3 x budget + 30 s].",
    ),
    launcher: str = costs.LAUNCHER,
    json_: bool = JSON_OPTION,
) -> int:
    """Measure the communication of the scaled traces with measured and black-hole processes."""
    from p3s.base.study import Study
    from p3s.pipeline.stages import ensure_compute, ensure_model, ensure_scaled, run_replay
    from p3s.replay.driver import prepare
    from p3s.replay.plan.show import plan_json, plan_text
    from p3s.report.replayed import replays_text

    wanted = parse_counts(counts)
    settings = costs.settings_of(
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
    plans, done = [], {}
    with progress(len(wanted) * 2) as bar:
        ensure_model(study, bar)
        ensure_compute(study, bar)
        for n in wanted:
            ensure_scaled(study, n, bar)
            if plan:
                machine = study.root / "machine.json"
                plans.append(prepare(study.scaled_dir(n), settings, machine=machine).plan)
            else:
                done[n] = run_replay(study, n, settings, bar)
    if plan and json_:
        emit("replay_plans", counts=list(map(plan_json, plans)))
    elif plan:
        out("\n\n".join(map(plan_text, plans)))
    elif json_:
        emit("replays", counts=list(done.values()))
    else:
        out(replays_text(done))
    for n, result in done.items():
        if not result.get("representative", False):
            say(f"n={n}: not representative: {result.get('why_not_representative') or 'unknown'}")
        if missing := result.get("unmeasured"):
            classes = plural(len(missing), "class", "classes")
            say(f"n={n}: {classes} of events could not be measured")
    if not plan:
        say(f"next: p3s predict {quoted(study.root)} -n {','.join(map(str, wanted))}")
    return 3 if any(result.get("unmeasured") for result in done.values()) else 0
