"""What a prediction leaves out or approximates, in lines for people."""

from __future__ import annotations

from typing import Any

from p3s.base.serialise import to_data
from p3s.base.text import percent, processes, visible
from p3s.pipeline.content import StudyContent
from p3s.report.provenance import plain
from p3s.report.verdict import lines
from p3s.signature.unmodelled import sentences


def gaps_of(content: StudyContent) -> list[str]:
    """Return what was not modelled, not measured or approximated, none twice."""
    prediction, replays = content.prediction, content.replays
    gaps = lines(prediction.notes) + lines(prediction.not_modelled)
    if prediction.unknown_share:
        gaps.append(f"no rule is known for {percent(prediction.unknown_share)} of the program")
    largest = prediction.last.n
    gaps += _named("no rule", content.unknown)
    gaps += [visible(line, 400) for line in sentences(to_data(content.model.not_modelled))]
    for n, replayed in replays.items():
        gaps += _named(f"not measured at {processes(n)}", replayed.get("unmeasured"))
    if largest in replays:
        gaps += _named(f"taken to cost nothing at {largest}", replays[largest].get("left_out"))
        shares = replays[largest].get("shares") or {}
        parts = [f"{visible(how)} {percent(share)}" for how, share in shares.items() if share]
        if parts:
            gaps.append(f"events by origin of their cost at {largest}: {', '.join(parts)}")
    return list(dict.fromkeys(gaps))


def _named(what: str, entries: Any, limit: int = 5) -> list[str]:
    """Return a list of entries as one line, the first few in full."""
    if not isinstance(entries, list) or not entries:
        return []
    shown = "; ".join(visible(plain(entry)) for entry in entries[:limit])
    more = f" and {len(entries) - limit} more" if len(entries) > limit else ""
    return [f"{what}: {shown}{more}"]
