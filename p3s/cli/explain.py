"""``p3s explain``: what the equations of one phase rest on."""

from __future__ import annotations

from pathlib import Path

from p3s.cli.common import emit, out, quote_word, say
from p3s.cli.progress import progress


def explain(
    study_dir: Path,
    phase: int,
    call: int | None,
    everything: bool,
    modules: list[Path],
    json_: bool,
) -> int:
    """Show one phase: the values behind each rule, its rivals, and why it has its verdict."""
    from p3s.base.serialise import to_data
    from p3s.pipeline.records import load_study, model_record
    from p3s.pipeline.stages import ensure_model
    from p3s.report.explain import choose_calls, render

    study = load_study(study_dir)
    with progress(2) as bar:
        ensure_model(study, bar)
    record = model_record(study, modules)
    model, places, notes = record.model, record.places, record.notes
    if json_:
        calls = choose_calls(model, phase, call, True)
        emit(
            "explain",
            phase=to_data(model.phases[phase]),
            grid=to_data(model.grid),
            calls=[
                {
                    "call": i,
                    **to_data(model.items[i]),
                    "place": [
                        str(places[f])
                        for f in model.sites.get(model.items[i].site, [])
                        if f in places
                    ],
                }
                for i in sorted(calls)
            ],
        )
    else:
        out(render(model, places, phase, call, everything))
    for note in notes:
        say(f"note: {note}")
    say(f"next: p3s next {quote_word(study.root)}")
    return 0
