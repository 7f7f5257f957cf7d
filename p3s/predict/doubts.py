"""Why a prediction is not to be trusted: rules that are missing, or too far from what was traced.

Doubts are sentences of ``low_confidence``, which means exit code 3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from p3s.words import left_out

#: Share of the computation without a law above which a prediction is of low confidence.
UNKNOWN_LIMIT = 0.10
#: How many times the largest traced count may be exceeded with confidence.
EXTRAPOLATION_LIMIT = 32.0
#: Share of the messages and collectives of a held-out count that the model must get right.
HOLDOUT_LIMIT = 0.9
#: How many times as long, or as short, as the model a representative run may be unnoted.
RESIDUAL_LIMIT = 1.5

_UNKNOWN = frozenset({"unknown", "not seen", "not_seen"})


def verdict_share(head: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Return the share of events, bytes and work per verdict, each between 0 and 1."""
    raw = head.get("share")
    if not isinstance(raw, Mapping):
        return {}
    share: dict[str, dict[str, float]] = {str(verdict): {} for verdict in raw}
    for what in ("events", "bytes", "work"):
        values = {
            str(verdict): float(entry.get(what) or 0.0)
            for verdict, entry in raw.items()
            if isinstance(entry, Mapping)
        }
        whole = sum(values.values())
        for verdict, value in values.items():
            share[verdict][what] = value / whole if whole > 0 else 0.0
    return share


def unknown_share(head: Mapping[str, Any]) -> float:
    """Return the share of the program whose rule is unknown, by time, work or events.

    The largest of them counts, of the scaled trace and of the traced run: what has no rule at
    all is not in the scaled trace.
    """
    traced = head.get("traced_share")
    shares = [verdict_share(head), traced if isinstance(traced, Mapping) else {}]
    return max(
        sum(
            float(entry.get(what, 0.0))
            for verdict, entry in share.items()
            if verdict in _UNKNOWN and isinstance(entry, Mapping)
        )
        for share in shares
        for what in ("time", "work", "events")
    )


def doubts(unknown: float, ratio: float) -> list[str]:
    """Say when too much has no rule, or the largest count is too far from the traced ones."""
    found = []
    if unknown > UNKNOWN_LIMIT:
        found.append(
            f"{100 * unknown:.0f} % of the program has no rule (limit {100 * UNKNOWN_LIMIT:.0f} %)"
        )
    if ratio > EXTRAPOLATION_LIMIT:
        found.append(
            f"the largest count is {ratio:.0f} times the largest traced one "
            f"(limit {EXTRAPOLATION_LIMIT:.0f}); trace a larger count"
        )
    return found


def missed(holdout: Any, limit: float = HOLDOUT_LIMIT) -> list[str]:
    """Say when the model, fitted without the largest traced count, missed that count.

    ``limit`` is the share of its messages and of its collectives that must be equal.
    """
    if not isinstance(holdout, Mapping):
        return []
    if not holdout.get("possible", True):
        return [f"the model could not be checked on a held-out count: {holdout.get('why')}"]
    wrong = []
    for key, name in (("p2p_triples", "messages"), ("collectives", "collectives")):
        pair = holdout.get(key)
        if isinstance(pair, Mapping):
            whole = max(pair.get("true", 0), pair.get("predicted", 0))
            if pair.get("equal", 0) < limit * whole:
                wrong.append(f"{whole - pair.get('equal', 0)} of {whole} {name}")
    weights = holdout.get("weights")
    if isinstance(weights, Mapping) and weights.get("exact", 0) < weights.get("phases", 0):
        off = weights["phases"] - weights.get("exact", 0)
        wrong.append(f"{off} of {weights['phases']} phase weights")
    if not wrong:
        return []
    return [f"fitted without {left_out(holdout)} the model misses there {', '.join(wrong)}"]


def unlike(residuals: Sequence[Mapping[str, Any]], base: int | None) -> list[str]:
    """Say where a run that tells took far longer, or far less, than the model says; notes.

    ``base``: the smallest count, if its time is the measured one; others are relative to it.
    """

    def far(entry: Mapping[str, Any]) -> bool:
        return bool(entry["what"] == "run time" and entry["ratio"]
                    and not 1 / RESIDUAL_LIMIT <= entry["ratio"] <= RESIDUAL_LIMIT)  # fmt: skip

    notes = []
    told = [entry for entry in residuals if far(entry) and entry["representative"]]
    if told:
        worst = max(told, key=lambda entry: max(entry["ratio"], 1 / entry["ratio"]))
        notes.append(
            f"at {worst['n']} processes the program took {worst['ratio']:.2g} times as long as the "
            "model says, which makes the interval as wide: something in it is not modelled, or the "
            "machine was busy with something else"
        )
    if any(far(entry) and entry["n"] == base for entry in residuals):
        notes.append(
            f"speedups are relative to the measured time at {base} processes, which is far from "
            "what the model says there: those of predicted counts compare a run with a model"
        )
    return notes
