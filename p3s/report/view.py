"""The view model of a report: what is shown, in which words, independent of how."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Any

from p3s import __version__
from p3s.characterize.unmodelled import sentences
from p3s.errors import P3SError
from p3s.predict.outside import NOTED, ratio_text
from p3s.report.equations import listed, missed_rules
from p3s.report.sections import (
    Account,
    Equations,
    account_of,
    computation_of,
    equations_of,
    instructions_of,
)
from p3s.report.text import factor, interval, percent, seconds, visible
from p3s.study import Study, read_json
from p3s.words import left_out

#: Phases listed one by one; the rest is summed up and said so.
MAX_PHASES = 200


@dataclass(frozen=True)
class Point:
    """One process count on the curve; speedups relative to the smallest count, None if unknown."""

    n: int
    speedup: float
    low: float | None
    high: float | None
    ideal: float
    measured: bool
    model: float | None


@dataclass(frozen=True)
class PhaseCost:
    """One phase at the largest count: its share of the time and what the time is spent on.

    sure: interval of the computation, and how far it is outside of what was measured.
    """

    name: str
    weight: str
    time: str
    share: str
    compute: str
    comm: str
    sure: str


@dataclass(frozen=True)
class View:
    """Everything a report shows, as text and points."""

    title: str
    verdict: str
    doubts: list[str]
    not_representative: list[str]
    baseline_n: int
    largest_n: int
    points: list[Point]
    counts_head: list[str]
    counts: list[list[str]]
    phases: list[PhaseCost]
    phases_cut: str
    account: Account | None
    equations: Equations
    instructions: str
    computation: str
    shares_head: list[str]
    shares: list[list[str]]
    holdout: list[str]
    gaps: list[str]
    facts: list[tuple[str, str]]
    commands: list[str]


def _checked_rows(prediction: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the counts of a prediction; raises P3SError when they do not make sense."""
    found = prediction.get("counts")
    rows: list[dict[str, Any]] = found if isinstance(found, list) else []
    good = bool(rows)
    for row in rows:
        good = good and isinstance(row, dict) and isinstance(row.get("n"), int) and row["n"] > 0
        good = good and all(
            isinstance(row.get(key), (int, float)) and row[key] >= 0
            for key in ("time_s", "speedup", "efficiency", "compute_s", "comm_s")
        )
        good = good and isinstance(row.get("phases"), list)
    if not good:
        raise P3SError("prediction.json: damaged: counts do not make sense; run p3s predict again")
    return rows


def points_of(prediction: dict[str, Any]) -> list[Point]:
    """Return the points of the speedup curve."""
    rows = _checked_rows(prediction)
    base = rows[0]
    points = []
    for row in rows:
        model_s = row.get("model_s")
        points.append(
            Point(
                row["n"],
                row["speedup"],
                row.get("speedup_low"),
                row.get("speedup_high"),
                row["n"] / base["n"],
                row.get("time_from") == "measured",
                base["time_s"] / model_s if model_s else None,
            )
        )
    return points


COUNTS_HEAD = [
    "processes",
    "time",
    "interval",
    "speedup",
    "efficiency",
    "compute",
    "communication",
    "measured",
]


def row_is_doubtful(row: dict[str, Any]) -> bool:
    """Tell whether a time rests on a replay that is not representative."""
    return row.get("time_from") != "measured" and not row.get("model_representative", True)


def count_rows(prediction: dict[str, Any]) -> list[list[str]]:
    """Return the table of counts.

    A measured time that is not representative is in brackets, a predicted one has an asterisk.
    """
    table = []
    for row in _checked_rows(prediction):
        shown = seconds(row.get("measured_s"))
        if row.get("measured") and not row.get("representative"):
            shown = f"({shown})"
        time = seconds(row["time_s"])
        time += "*" if row_is_doubtful(row) else " "
        table.append(
            [
                str(row["n"]),
                time,
                interval(row.get("low_s"), row.get("high_s")),
                factor(row["speedup"]),
                percent(row["efficiency"]),
                seconds(row["compute_s"]),
                seconds(row["comm_s"]),
                shown,
            ]
        )
    return table


def verdict_of(prediction: dict[str, Any]) -> str:
    """Return the result in a sentence or two; no knee is named in times that are doubtful."""
    rows = _checked_rows(prediction)
    doubtful = any(map(row_is_doubtful, rows))
    first, last = rows[0], rows[-1]
    if first is last:
        text = f"At {last['n']} processes the program takes {seconds(last['time_s'])}."
    else:
        change = f"{factor(last['speedup'])} as fast" if last["speedup"] >= 1 else "slower"
        text = (
            f"From {first['n']} to {last['n']} processes the program becomes {change} "
            f"({seconds(first['time_s'])} to {seconds(last['time_s'])}), an efficiency of "
            f"{percent(last['efficiency'])}."
        )
        text += "" if doubtful else _knee_text(prediction, rows)
    phases = sorted(last["phases"], key=_phase_time, reverse=True)
    whole = sum(map(_phase_time, phases))
    if phases and whole > 0:
        top = phases[0]
        kind = "communication" if top["comm_s"] > top["compute_s"] else "computation"
        text += (
            f" Phase {visible(str(top['name']))} takes most of the time at {last['n']} "
            f"({percent(_phase_time(top) / whole)}, mostly {kind})."
        )
    return f"Not representative: {text[0].lower()}{text[1:]}" if doubtful else text


def _knee_text(prediction: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    threshold = prediction.get("knee_efficiency", 0.5)
    limit = percent(threshold)
    knee = prediction.get("knee")
    if knee == rows[-1]["n"]:
        return f" Efficiency is below {limit} at {knee} processes."
    if knee:
        return f" Efficiency is below {limit} from {knee} processes on."
    below = [str(row["n"]) for row in rows if row["efficiency"] < threshold]
    if below:
        return f" Efficiency is below {limit} at {', '.join(below)} processes, above it later."
    return f" Efficiency stays above {limit} up to there."


def _phase_time(phase: dict[str, Any]) -> float:
    return float(phase["compute_s"]) + float(phase["comm_s"])


def _phase_costs(prediction: dict[str, Any]) -> tuple[list[PhaseCost], str]:
    phases = sorted(_checked_rows(prediction)[-1]["phases"], key=_phase_time, reverse=True)
    whole = sum(map(_phase_time, phases))
    costs = [
        PhaseCost(
            visible(str(phase["name"])),
            f"{phase['weight']:g}",
            seconds(_phase_time(phase)),
            percent(_phase_time(phase) / whole if whole else 0.0),
            seconds(phase["compute_s"]),
            seconds(phase["comm_s"]),
            _sure(phase),
        )
        for phase in phases[:MAX_PHASES]
    ]
    rest = phases[MAX_PHASES:]
    cut = ""
    if rest:
        left = percent(sum(map(_phase_time, rest)) / whole if whole else 0.0)
        cut = f"{len(rest)} more phases with {left} of the time are in prediction.json."
    return costs, cut


def _sure(phase: dict[str, Any]) -> str:
    """Return the interval of a phase's computation, and by how much its work is outside."""
    if not phase["compute_s"]:
        return ""
    text = interval(phase.get("compute_low_s"), phase.get("compute_high_s"))
    if float(phase.get("outside") or 1.0) > NOTED:
        text += f"; {ratio_text(phase)} that was measured"
    return text


def _shares(prediction: dict[str, Any]) -> list[list[str]]:
    share = prediction.get("verdict_share") or {}
    return [
        [visible(str(verdict)), *[percent(entry.get(k)) for k in ("events", "bytes", "work")]]
        for verdict, entry in share.items()
    ]


def _holdout(model: dict[str, Any]) -> list[str]:
    """Return how the model did on its held-out count, as lines."""
    held = model.get("holdout")
    if not isinstance(held, dict):
        return ["No count was held out: nothing was checked."]
    if not held.get("possible", True):
        return [f"Not possible: {visible(_plain(held.get('why', 'no reason given')))}"]
    lines = [f"Fitted without {visible(left_out(held))} and compared there."]
    for key, name in (("p2p_triples", "messages"), ("collectives", "collectives")):
        pair = held.get(key)
        if isinstance(pair, dict):
            lines.append(
                f"{name}: {_plain(pair.get('equal'))} of {_plain(pair.get('true'))} equal, "
                f"{_plain(pair.get('predicted'))} predicted"
            )
    weights, work = held.get("weights"), held.get("work")
    missed = missed_rules(model)
    if missed is not None:
        met = f"{len(model['items']) - len(missed)} of {len(model['items'])}"
        lines.append(f"calls by an exact rule that it met: {met}"
                     + (f"; not {listed(missed)}" if missed else ""))
    if isinstance(weights, dict):
        lines.append(f"weights: {_plain(weights.get('exact'))} of {_plain(weights.get('phases'))}")
    if isinstance(work, dict):
        lines.append(
            f"work: mean error {percent(work.get('mean_abs_error'))}, "
            f"largest {percent(work.get('max_abs_error'))}"
        )
    return [visible(line) for line in lines]


def _plain(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_plain(entry)}" for key, entry in value.items())
    if isinstance(value, list):
        return "; ".join(_plain(entry) for entry in value) or "none"
    return str(value)


def _gaps(
    study: Study,
    model: dict[str, Any],
    prediction: dict[str, Any],
    replays: dict[int, dict[str, Any]],
) -> list[str]:
    """Return what was not modelled, not measured or approximated."""
    gaps = [visible(str(note), 400) for note in prediction.get("notes", [])]
    unknown = prediction.get("unknown_share")
    if isinstance(unknown, (int, float)) and unknown > 0:
        gaps.append(f"no rule is known for {percent(unknown)} of the program")
    largest = _checked_rows(prediction)[-1]["n"]
    if study.scaled_path(largest).exists():
        head = read_json(study.scaled_path(largest), "p3s.scaled")
        gaps += _named("no rule", head.get("unknown"))
    lines = [visible(line, 400) for line in sentences(model)]
    gaps += [line for line in lines if line not in gaps]
    for n, replayed in replays.items():
        gaps += _named(f"not measured at {n} processes", replayed.get("unmeasured"))
    if largest in replays:
        gaps += _named(f"taken to cost nothing at {largest}", replays[largest].get("left_out"))
        shares = replays[largest].get("shares")
        if isinstance(shares, dict) and shares:
            parts = [f"{visible(str(how))} {percent(share)}" for how, share in shares.items()]
            gaps.append(f"events by origin of their cost at {largest}: {', '.join(parts)}")
    return gaps


def _named(what: str, entries: Any, limit: int = 5) -> list[str]:
    """Return a list of entries as one line, the first few in full."""
    if not isinstance(entries, list) or not entries:
        return []
    shown = "; ".join(visible(_plain(entry)) for entry in entries[:limit])
    more = f" and {len(entries) - limit} more" if len(entries) > limit else ""
    return [f"{what}: {shown}{more}"]


def _shown_command(words: list[str], limit: int) -> str:
    """Return a launcher command as it is typed; {np} needs no quotes."""
    return visible(shlex.join(words).replace("'{np}'", "{np}"), limit)


def _facts(
    study: Study, manifest: dict[str, Any], replays: dict[int, dict[str, Any]]
) -> list[tuple[str, str]]:
    facts = [
        ("program", _shown_command(study.command(), 400)),
        ("p3s", __version__),
        ("study made", visible(str(manifest.get("created", "?")))),
    ]
    for run in study.runs():
        detail = [run.status, f"launcher ran for {seconds(run.info.get('wall_s'))}"]
        if run.info.get("oversubscribed"):
            detail.append(f"ranks shared {run.info.get('cores', '?')} cores")
        if run.info.get("mpi"):
            detail.append(visible(_plain(run.info["mpi"])))
        facts.append((f"traced at {run.np} (run {run.rep})", ", ".join(detail)))
    for n, replayed in replays.items():
        nodes = visible(", ".join(dict.fromkeys(str(k) for k in replayed.get("nodes", []) if k)))
        detail = [
            f"on {nodes or '?'}",
            f"{visible(str(replayed.get('iterations', '?')))} iterations",
        ]
        if isinstance(replayed.get("measured_share"), (int, float)):
            detail.append(f"{percent(replayed['measured_share'])} of the events measured")
        facts.append((f"replayed at {n}", ", ".join(detail)))
    return facts


def _commands(study: Study, prediction: dict[str, Any]) -> list[str]:
    name = shlex.quote(visible(study.root.resolve().name) or "study")
    command = _shown_command(study.command(), 2000)
    traced = ",".join(map(str, study.counts()))
    asked = [row["n"] for row in _checked_rows(prediction) if row["n"] not in study.counts()]
    counts = ",".join(map(str, asked or [row["n"] for row in _checked_rows(prediction)]))
    return [
        f"p3s characterize -n {traced} -o {name} -- {command}",
        f"p3s model {name}",
        f"p3s predict {name} -n {counts}",
        f"p3s report {name}",
    ]


def build_view(study: Study) -> View:
    """Read a study that has a prediction and return what its report shows."""
    if not study.prediction_path.exists():
        raise P3SError(
            f"{study.root}: no prediction yet; make one first: p3s predict {study.root} -n COUNTS"
        )
    prediction = read_json(study.prediction_path, "p3s.prediction")
    model = read_json(study.model_path, "p3s.model")
    rows = _checked_rows(prediction)
    replays = {
        row["n"]: study.replay(row["n"])
        for row in rows
        if study.replay_path(row["n"]).exists()
    }
    costs, cut = _phase_costs(prediction)
    return View(
        title=f"P3S: {visible(study.root.resolve().name)}",
        verdict=verdict_of(prediction),
        doubts=[visible(str(doubt)) for doubt in prediction.get("low_confidence", [])],
        not_representative=[
            visible(str(text), 400) for text in prediction.get("not_representative", [])
        ],
        baseline_n=rows[0]["n"],
        largest_n=rows[-1]["n"],
        points=points_of(prediction),
        counts_head=COUNTS_HEAD,
        counts=count_rows(prediction),
        phases=costs,
        phases_cut=cut,
        account=account_of(study),
        equations=equations_of(study, model),
        instructions=instructions_of(model),
        computation=computation_of(study, model, [row["n"] for row in rows]),
        shares_head=["verdict", "events", "bytes", "work"],
        shares=_shares(prediction),
        holdout=_holdout(model),
        gaps=_gaps(study, model, prediction, replays),
        facts=_facts(study, study.manifest(), replays),
        commands=_commands(study, prediction),
    )
