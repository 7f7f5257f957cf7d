"""``p3s replay``: measure the communication of a scaled trace on a few nodes."""

from __future__ import annotations

from pathlib import Path

from p3s.base.text import plural
from p3s.cli.common import emit, out, quote_word, say
from p3s.cli.progress import progress
from p3s.cli.values import parse_counts, seconds_of, settings_of


def replay(
    study_dir: Path,
    counts: str,
    hosts: str,
    cores_per_node: int,
    budget: str,
    plan: bool,
    timed: bool,
    exhaustive: bool,
    mapping: str,
    rank_file: Path | None,
    topology: Path | None,
    collectives: str,
    pages: str,
    noise: str,
    again: bool,
    stall: str,
    timeout: str,
    launcher: str,
    json_: bool,
) -> int:
    """Measure the communication of the scaled traces with measured and black-hole processes."""
    from p3s.pipeline.records import load_study
    from p3s.pipeline.stages import ensure_compute, ensure_model, ensure_scaled, run_replay
    from p3s.replay.driver import prepare
    from p3s.replay.plan.show import plan_json, plan_text
    from p3s.report.replayed import replays_text

    counts_asked = parse_counts(counts)
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
    study = load_study(study_dir)
    plans, results = [], {}
    with progress(len(counts_asked) * 2) as bar:
        ensure_model(study, bar)
        ensure_compute(study, bar)
        for n in counts_asked:
            ensure_scaled(study, n, bar)
            if plan:
                machine = study.root / "machine.json"
                plans.append(prepare(study.scaled_dir(n), settings, machine=machine).plan)
            else:
                results[n] = run_replay(study, n, settings, bar)
    if plan and json_:
        emit("replay_plans", counts=list(map(plan_json, plans)))
    elif plan:
        out("\n\n".join(map(plan_text, plans)))
    elif json_:
        emit("replays", counts=list(results.values()))
    else:
        out(replays_text(results))
    for n, result in results.items():
        if not result.get("representative", False):
            say(f"n={n}: not representative: {result.get('why_not_representative') or 'unknown'}")
        if missing := result.get("unmeasured"):
            classes = plural(len(missing), "class", "classes")
            say(f"n={n}: {classes} of events could not be measured")
    if not plan:
        say(f"next: p3s predict {quote_word(study.root)} -n {','.join(map(str, counts_asked))}")
    return 3 if any(result.get("unmeasured") for result in results.values()) else 0
