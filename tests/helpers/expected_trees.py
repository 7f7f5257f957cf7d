"""Trees as the sources of the corpus programs state them, by hand, and how they are compared.

A tree is written as nested calls of :func:`loop`; a leaf is the operation without "MPI_",
followed by what is said about its turns: "Gather every 10". Where two descriptions are the same
sequence of events, the normal form of the signature is written:

- a perfect nest is one loop with all turns;
- "every k-th turn" is a nest where the inner trips are constant, else a guard;
- what only the first turn does before, or the last behind all others is outside the loop;
- s (r s) (r s) r is three turns of s r, not four of which the first and last lack something.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Turns = int | Mapping[int, int] | None
Ranks = Mapping[tuple[str, str], set[tuple[int, int]]]


@dataclass(frozen=True)
class Loop:
    """A loop that is expected; turns: weight, most over the ranks; least: fewest; None: any."""

    turns: Turns
    least: Turns
    body: tuple[Loop | str, ...]
    walk: str | None


def loop(turns: Turns, *body: Loop | str, least: Turns = 0, walk: str | None = None) -> Loop:
    """Return a loop; without ``least`` all ranks that take part make the same turns."""
    return Loop(turns, turns if least == 0 else least, body, walk)


def at(turns: Turns, n: int) -> int | None:
    """Return the turns at one count."""
    return turns if turns is None or isinstance(turns, int) else turns[n]


def differences(
    want: Sequence[Loop | str],
    got: Sequence[Mapping[str, Any]],
    counts: Sequence[int],
    ranks: Ranks,
    where: str = "main",
) -> list[str]:
    """Return what differs between an expected body and one of phases.json, in words.

    ranks: node -> members that have it. Parts that no rank has both of may come in any order.
    """
    got = _arranged(want, list(got), ranks)
    names, found = [_name(w) for w in want], [_found(g) for g in got]
    if names != found:
        return [f"{where}: expected {names}", f"{where}: found    {found}"]
    out = []
    for k, (w, g) in enumerate(zip(want, got, strict=True)):
        if isinstance(w, str):
            continue
        here = f"{where}/{k}"
        for n in counts:
            trips = g["trips"].get(str(n), {"turns": 0, "turns_min": 0})
            for turns, key in ((w.turns, "turns"), (w.least, "turns_min")):
                wanted = at(turns, n)
                if wanted is not None and wanted != trips[key]:
                    out.append(f"{here} at {n}: {key} {trips[key]}, expected {wanted}")
        out += differences(w.body, g["body"], counts, ranks, here)
    return out


def _arranged(
    want: Sequence[Loop | str], got: list[Mapping[str, Any]], ranks: Ranks
) -> list[Mapping[str, Any]]:
    """Return the found parts as near to the expected order as their ranks allow."""
    who = [
        set().union(*(ranks[c["site"].partition("#")[0], c["op"]] for c in leaves([g])))
        for g in got
    ]

    def place(k: int, left: list[int]) -> list[int] | None:
        if not left:
            return []
        for i in left:
            free = not any(who[i] & who[j] for j in left if j < i)
            if k < len(want) and free and _alike(want[k], got[i]):
                rest = place(k + 1, [j for j in left if j != i])
                if rest is not None:
                    return [i, *rest]
        return None

    order = place(0, list(range(len(got)))) if len(want) == len(got) else None
    return got if order is None else [got[i] for i in order]


def _alike(w: Loop | str, g: Mapping[str, Any]) -> bool:
    """Tell whether a found part is an expected one: a loop by the calls that it has."""
    if isinstance(w, str) or "call" in g:
        return _name(w) == _found(g)
    mine = sorted(c.split()[0] for c in w.body if isinstance(c, str))
    return mine == sorted(c["op"].removeprefix("MPI_") for c in g["body"] if "call" in c)


def _name(w: Loop | str) -> str:
    return w if isinstance(w, str) else f"loop {w.walk or ''}".strip()


def _found(g: Mapping[str, Any]) -> str:
    if "call" not in g:
        return f"loop {g['walk'] or ''}".strip()
    return g["op"].removeprefix("MPI_") + ("" if g["when"] == "always" else f" {g['when']}")


def phase_turns(body: Sequence[Mapping[str, Any]], n: int) -> dict[int, int]:
    """Return loop number -> turns of all loops of phases.json that are no walks."""
    out: dict[int, int] = {}
    for g in body:
        if "call" not in g:
            if g["walk"] is None:
                out[g["loop"]] = g["trips"].get(str(n), {"turns": 0})["turns"]
            out.update(phase_turns(g["body"], n))
    return out


def leaves(body: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return all calls of a body of phases.json."""
    return [leaf for g in body for leaf in ([g] if "call" in g else leaves(g["body"]))]
