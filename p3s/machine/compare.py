"""Two machines side by side: how many times as long everything takes on the second."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from p3s.base.text import ends, size_text, table, visible
from p3s.machine.machinefile import Cost, Curve, Machine
from p3s.machine.show import by_working_set, rows_of
from p3s.machine.teams import OpenMP


def compare(first: Machine, second: Machine) -> dict[str, Any]:
    """Return the cost on ``second`` over that on ``first`` per kernel and working set.

    Every ratio comes with ``low`` and ``high``, which the spreads of both measurements allow.
    Curves are compared where both were measured, at the working sets of either.
    """
    core = {
        name: _ratio(first.core[name], second.core[name])
        for name in first.core
        if name in second.core
    }
    return {
        "schema": "p3s.machine_comparison",
        "schema_version": 1,
        "first": first.name,
        "second": second.name,
        "core": core,
        "curves": _curves(first.curves, second.curves),
        "loaded": _curves(first.loaded.curves, second.loaded.curves),
        "network": _network(first, second),
        "openmp": compare_openmp(first.openmp, second.openmp)
        if first.openmp and second.openmp
        else None,
        "notes": differences(first, second),
    }


def differences(first: Machine, second: Machine) -> list[str]:
    """Return what makes the two measurements no like-for-like comparison, as sentences."""
    notes = []
    one, other = (str(machine.facts.architecture) for machine in (first, second))
    if one != other:
        notes.append(
            f"{first.name} is {one}, {second.name} is {other}: other instruction sets, so "
            "counts of instructions do not carry over"
        )
    for key, what in (("compiler_version", "compilers"), ("flags", "compiler flags")):
        one, other = (str(machine.settings.get(key)) for machine in (first, second))
        if one != other:
            notes.append(f"the kernels were compiled with other {what} ({one}; {other})")
    one, other = (str(machine.facts.huge_pages) for machine in (first, second))
    if one != other:
        notes.append(f"huge pages are {one} on {first.name} and {other} on {second.name}")
    for machine in dict.fromkeys((first.name, second.name)):
        texts = [text for one in (first, second) if one.name == machine for text in one.disturbed]
        if texts:
            notes.append(f"measuring {machine} was disturbed: {'; '.join(dict.fromkeys(texts))}")
    return notes


def _ratio(first: Cost, second: Cost) -> dict[str, float]:
    ratio = second.ns / first.ns
    return {"ratio": ratio, "low": ratio / (1 + first.spread), "high": ratio * (1 + second.spread)}


def _curves(first: Mapping[str, Curve], second: Mapping[str, Curve]) -> dict[str, Any]:
    found = {}
    for name in first:
        if name not in second:
            continue
        one, other = first[name], second[name]
        low = max(one.working_set[0], other.working_set[0])
        high = min(one.working_set[-1], other.working_set[-1])
        sizes = [s for s in sorted({*one.working_set, *other.working_set}) if low <= s <= high]
        ratios = [
            _ratio(
                Cost(one.at(size), one.spread_at(size), 1),
                Cost(other.at(size), other.spread_at(size), 1),
            )
            for size in sizes
        ]
        found[name] = {
            "working_set": sizes,
            **{key: [ratio[key] for ratio in ratios] for key in ("ratio", "low", "high")},
        }
    return found


def _network(first: Machine, second: Machine) -> dict[str, Any] | None:
    if first.network is None or second.network is None:
        return None
    one, other = first.network["sizes"], second.network["sizes"]
    common = [size for size in one["bytes"] if size in other["bytes"]]
    return {
        "bytes": common,
        "ratio": [
            other["one_way_ns"][other["bytes"].index(size)]
            / max(one["one_way_ns"][one["bytes"].index(size)], 1e-3)
            for size in common
        ],
    }


def _figure(value: float) -> str:
    return f"{value:.3g}"


def render(result: dict[str, Any]) -> str:
    """Return a comparison as text."""
    parts = [f"{visible(result['second'])} over {visible(result['first'])}: above 1 is slower", ""]
    rows = [
        [name, _figure(r["ratio"]), ends(_figure(r["low"]), _figure(r["high"]))]
        for name, r in result["core"].items()
    ]
    parts += [table(rows, ["kernel", "ratio", "interval"]), ""]
    columns = {
        **result["curves"],
        **{f"{name}, all cores": curve for name, curve in result["loaded"].items()},
    }
    ratios = {name: (each["working_set"], each["ratio"]) for name, each in columns.items()}
    parts.append(by_working_set(ratios, _figure))
    if result["network"]:
        net = result["network"]
        rows = [
            [size_text(s), _figure(r)]
            for s, r in zip(net["bytes"], net["ratio"], strict=True)
            if s == 0 or (s.bit_length() - 1) % 3 == 0
        ]
        parts += ["", table(rows, ["message, one way", "ratio"])]
    if result["openmp"]:
        parts += ["", *render_comparison(result["openmp"])]
    parts += [f"note: {visible(note, 400)}" for note in result["notes"]]
    return "\n".join(parts)


def compare_openmp(first: OpenMP, second: OpenMP) -> dict[str, dict[str, list[float]]]:
    """Return how many times as long each construct, a triad and a read take on ``second``.

    By construct: ``threads`` measured on both and ``ratio``; absent where a time is 0.
    """
    both = [float(t) for t in first.threads if t in second.threads]
    found = {}
    for label, name, at in rows_of(first):
        pairs = [(t, first.overhead(name, t, at), second.overhead(name, t, at)) for t in both]
        kept = [(t, other / one) for t, one, other in pairs if one > 0]
        found[label] = {"threads": [t for t, _ in kept], "ratio": [r for _, r in kept]}
    found["triad"] = {
        "threads": both,
        "ratio": [first.bandwidth(t) / second.bandwidth(t) for t in both],
    }
    reads = ((first.memory_s, second.memory_s), (first.tlb_s, second.tlb_s))
    for label, (one, other) in zip(("read", "read, page looked up"), reads, strict=True):
        found[label] = {"threads": [1.0], "ratio": [other / one]}
    return found


def render_comparison(found: dict[str, dict[str, list[float]]]) -> list[str]:
    """Return ratios as a table, a column per number of threads."""
    threads = sorted({t for row in found.values() for t in row["threads"]})
    rows = []
    for label, row in found.items():
        ratios = dict(zip(row["threads"], row["ratio"], strict=True))
        rows.append([label, *[f"{ratios[t]:.3g}" if t in ratios else "" for t in threads]])
    return [table(rows, ["threads", *[f"{t:g}" for t in threads]])]
