"""Machine files on a terminal: tables, curves, messages; and two of them side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from p3s.base.text import ends, join_words, percent, plural, seconds, size_text, table, visible
from p3s.machine.cluster import Cluster, Messages
from p3s.machine.filesystem import FileSystem
from p3s.machine.machinefile import (
    CONSTRUCTS,
    CORE_KERNELS,
    CURVE_KERNELS,
    LOOPS,
    Cost,
    Curve,
    Machine,
    OpenMP,
    differences,
)

WIDTH, HEIGHT = 60, 14
#: Marks of the curves in the plot, later ones over earlier ones.
_MARKS = {"chase": "c", "strided": "s", "gather": "g", "triad": "t", "read": "r"}


def render(machine: Machine) -> str:
    """Return a machine file as text."""
    parts = [*_head(machine), "", _core(machine), "", _curves(machine), "", plot(machine.curves)]
    parts += ["", *_network(machine)]
    if machine.openmp:
        parts += ["", *render_openmp(machine.openmp)]
    if machine.files:
        parts += ["", *render_files(machine.files)]
    parts += [f"disturbed: {visible(text, 400)}" for text in machine.disturbed]
    return "\n".join(parts)


def render_files(files: FileSystem) -> list[str]:
    """Return what files cost: a row for each thing, a column for each number of processes."""
    at = sorted({rate.processes for rate in files.rates})
    rows: dict[tuple[str, str, str, str], dict[int, str]] = {}
    for rate in files.rates:
        key = rate.way, rate.sharing, rate.pattern, rate.what
        text = seconds(rate.call_s) if rate.call_s or not rate.byte_s else ""
        speed = f"{size_text(1 / rate.byte_s)}/s" if rate.byte_s else ""
        rows.setdefault(key, {})[rate.processes] = " + ".join(filter(None, [text, speed]))
    where = f" in {visible(files.directory)}" if files.directory else ""
    limits = [f"all together at most {size_text(v)}/s ({k})" for k, v in files.limits.items()]
    head = ["way", "files", "pattern", "what", *[f"{n} process{'es' * (n > 1)}" for n in at]]
    return [
        f"files: {visible(files.kind)}{where}; time of a call + rate of one process",
        table([[*key, *(cells.get(n, "") for n in at)] for key, cells in rows.items()], head),
        *limits,
        *(visible(line, 300) for line in files.source),
    ]


def _head(machine: Machine) -> list[str]:
    facts, settings = machine.facts, machine.settings
    seconds_ = settings.get("seconds")
    took = f" in {seconds_:.0f} s" if isinstance(seconds_, (int, float)) else ""
    text = [
        f"{visible(machine.name)}: {visible(str(facts.processor))}",
        f"{facts.cores} cores, {size_text(float(facts.memory_bytes or 0))} memory, "
        f"{visible(str(facts.architecture))}, {visible(str(facts.kernel))}, "
        f"huge pages {visible(str(facts.huge_pages))}",
        f"measured {visible(machine.created)}{took} with p3s {visible(machine.p3s_version)}, "
        f"{visible(str(settings.get('compiler_version')))}, {visible(str(settings.get('flags')))}"
        + (" (quick)" if settings.get("quick") else ""),
    ]
    caches = [
        f"L{c.level} {size_text(c.bytes)}{f' (of {c.cores} cores)' if c.cores > 1 else ''}"
        for c in facts.caches
    ]
    return [*text, f"caches: {', '.join(caches) or 'unknown'}"]


def _ns(value: float) -> str:
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def _core(machine: Machine) -> str:
    rows = [
        [name, _ns(cost.ns), percent(cost.spread), str(cost.repeats), CORE_KERNELS.get(name, "")]
        for name, cost in machine.core.items()
    ]
    head = ["kernel", "ns", "spread", "repeats", "operation"]
    return table(rows, head, words_last=True)


def _curves(machine: Machine) -> str:
    """Return costs by working set: one column per kernel, those of all cores after them."""
    loaded = machine.loaded
    columns = {f"{name}, ns": curve for name, curve in machine.curves.items()}
    columns |= {f"{name} x{loaded.processes}, ns": curve for name, curve in loaded.curves.items()}
    return by_working_set({k: (c.working_set, c.ns) for k, c in columns.items()}, _ns)


def by_working_set(
    columns: Mapping[str, tuple[Sequence[int], Sequence[float]]], figure: Callable[[float], str]
) -> str:
    """Return a table of columns (working sets in bytes, a value for each), by their names."""
    sizes = sorted({size for at, _ in columns.values() for size in at})
    # Powers of two are enough to read; the file has all.
    sizes = [size for size in sizes if size & (size - 1) == 0] or sizes
    values = [dict(zip(*column, strict=True)) for column in columns.values()]
    rows = [
        [size_text(size), *(figure(each[size]) if size in each else "" for each in values)]
        for size in sizes
    ]
    return table(rows, ["working set", *columns])


def plot(curves: Mapping[str, Curve], width: int = WIDTH, height: int = HEIGHT) -> str:
    """Draw ns per access over the working set, both logarithmic."""
    every = [ns for curve in curves.values() for ns in curve.ns]
    sizes = [size for curve in curves.values() for size in curve.working_set]
    low, high = math.log(min(every)), math.log(max(every))
    first, last = math.log(min(sizes)), math.log(max(sizes))
    cells = [[" "] * width for _ in range(height)]

    def column(size: float) -> int:
        return round((math.log(size) - first) / max(last - first, 1e-9) * (width - 1))

    def line(ns: float) -> int:
        share = (math.log(ns) - low) / max(high - low, 1e-9)
        return height - 1 - round(share * (height - 1))

    for name in sorted(curves, key=lambda name: list(_MARKS).index(name) if name in _MARKS else -1):
        curve = curves[name]
        for x in range(width):
            size = math.exp(first + (last - first) * x / max(width - 1, 1))
            if curve.working_set[0] <= size * 1.001 and size <= curve.working_set[-1] * 1.001:
                cells[line(curve.at(size))][x] = _MARKS.get(name, name[:1])
    labels: dict[int, str] = {}
    for power in range(math.floor(math.log10(min(every))), math.ceil(math.log10(max(every))) + 1):
        for step in (1, 3):
            value = step * 10.0**power
            if min(every) <= value <= max(every):
                labels.setdefault(line(value), f"{value:g}")
    text = [f"{labels.get(y, ''):>8} |{''.join(row)}".rstrip() for y, row in enumerate(cells)]
    text.append(" " * 9 + "+" + "-" * width)
    foot = [" "] * (width + 14)
    free = 0
    size = min(sizes)
    while size <= max(sizes):
        name = size_text(size)
        at = 10 + column(size)
        if at >= free and at + len(name) <= len(foot):
            foot[at : at + len(name)] = name
            free = at + len(name) + 2
        size *= 4
    text.append("".join(foot).rstrip())
    names = ", ".join(f"{_MARKS[name]} {name}" for name in CURVE_KERNELS if name in curves)
    text.append(f"  ns per access over working set: {names}")
    return "\n".join(text)


def _network(machine: Machine) -> list[str]:
    net = machine.network
    if net is None:
        return [f"network: not measured: {visible(machine.network_missing or 'unknown', 300)}"]
    inside = net.get("inside")
    return [*_messages(net), *(["", *_messages(inside)] if inside else [])]


def _messages(net: Mapping[str, Any]) -> list[str]:
    """Return a measurement between two ranks as text."""
    hosts = [str(host) for host in net["hosts"]]
    where = f"on {hosts[0]}" if hosts[0] == hosts[1] else f"from {hosts[0]} to {hosts[1]}"
    text = [f"messages between two ranks {visible(where)}, {visible(str(net.get('mpi')))}"]
    rows = []
    for part in net["ranges"]:
        rows.append(
            [
                f"{part.get('kind')} {size_text(part['from_bytes'])} to "
                f"{size_text(part['to_bytes'])}",
                *[
                    seconds(part[key] * 1e-9)
                    for key in ("L_ns", "o_send_ns", "o_receive_ns", "g_ns")
                ],
                _ns(part["G_ns_per_byte"]),
                percent(part.get("misfit")),
            ]
        )
    text.append(table(rows, ["range", "L", "o send", "o receive", "g", "G, ns/B", "misfit"]))
    sizes = net["sizes"]
    picked = [
        i
        for i, size in enumerate(sizes["bytes"])
        if size in (0, 8, 64, 1 << 10, 8 << 10, 64 << 10, 512 << 10, 4 << 20)
    ]
    rows = [
        [
            size_text(sizes["bytes"][i]),
            *[
                seconds(sizes[key][i] * 1e-9) if sizes[key][i] is not None else ""
                for key in ("one_way_ns", "one_way_median_ns", "send_ns", "receive_ns", "gap_ns")
            ],
        ]
        for i in picked
    ]
    text.append(table(rows, ["message", "one way", "median", "MPI_Isend", "MPI_Recv", "gap"]))
    return [*text, *render_packing(net.get("pack") or {})]


def render_packing(pack: Mapping[str, Any]) -> list[str]:
    """Return medians of packing and unpacking by the bytes in a row; none if not measured."""
    if not pack:
        return []
    rows = [
        [f"{size_text(near[0])} in a row", *(_ns(row[k]) for row in (near, far) for k in (2, 4))]
        for near, far in zip(pack["near"], pack["far"], strict=True)
    ]
    for whole in pack["whole"]:
        rows.append(["contiguous", _ns(whole[2]), _ns(whole[4]), "", ""])
    head = ["datatype, ns/B", "pack near", "unpack near", "pack far", "unpack far"]
    return [table(rows, head)]


def clusters(networks: Sequence[Cluster], usual: str) -> str:
    """Return typical networks as a table; ``usual``: the one that is taken where none is named."""
    rows = [
        [
            each.name + (" *" if each.name == usual else ""),
            str(each.cores_per_node),
            _range(each.between, 8),
            _range(each.between, 1 << 20),
            f"{8 / each.link['typical']:.0f} Gbit/s",
            each.label,
        ]
        for each in networks
    ]
    head = ["network", "cores a node", "8 B", "1 MiB", "link", "what it is"]
    return "\n".join(
        [
            table(rows, head, words_last=True),
            "times one way between two nodes, lowest to highest of the published figures",
            "* taken where p3s predict finds no measured network and --network names none",
        ]
    )


def render_cluster(cluster: Cluster) -> str:
    """Return a typical network as text: costs by bytes, groups of nodes, sources."""
    text = [f"{visible(cluster.name)}: {visible(cluster.text)}", ""]
    sizes = (0, 64, 1 << 10, 8 << 10, 64 << 10, 1 << 20, 4 << 20)
    rows = [
        [size_text(size), *_three(cluster.between, size), *_three(cluster.inside, size)]
        for size in sizes
    ]
    text.append(
        table(
            rows,
            [
                "message",
                "between nodes",
                "fastest",
                "slowest",
                "inside a node",
                "fastest",
                "slowest",
            ],
        )
    )
    text.append(
        f"link of a node: {1 / cluster.link['typical']:.3g} GB/s "
        f"({ends(*(f'{1 / cluster.link[end]:.3g}' for end in ('high', 'low')))})"
    )
    for level in cluster.levels:
        node_range = f"{level.nodes:,} nodes" if level.nodes else "all nodes"
        more = level.extra["typical"]
        text.append(
            f"{node_range}: at most {level.switches} switch{'es' * (level.switches > 1)} apart"
            + (f", {seconds(more * 1e-9)} more" if more else "")
        )
    text.append("")
    for source in cluster.data["sources"]:
        text.append(
            f"{source['how']}: {visible(', '.join(source['figures']))}: "
            f"{visible(source['what'], 600)}"
        )
        text += [f"  {visible(source['url'], 300)}"] if source["url"] else []
    return "\n".join(text)


def _interpolate_time(messages: Messages, size: float, end: str) -> float:
    """Return the time of a message one way, in s."""
    import numpy as np

    return float(np.interp(size, messages.nbytes, messages.one_way[end])) * 1e-9


def _three(messages: Messages, size: float) -> list[str]:
    return [seconds(_interpolate_time(messages, size, end)) for end in ("typical", "low", "high")]


def _range(messages: Messages, size: float) -> str:
    return ends(*(seconds(_interpolate_time(messages, size, end)) for end in ("low", "high")))


#: Iterations per thread at which loops are shown and compared.
SHOWN = (1, 64)


def rows_of(omp: OpenMP) -> list[tuple[str, str, float]]:
    """Return constructs with the iterations that they are shown at."""
    return [
        (name if name not in LOOPS else f"{name}, {at} a thread", name, float(at))
        for name in CONSTRUCTS
        for at in (SHOWN if name in LOOPS else (1,))
    ]


def render_openmp(omp: OpenMP) -> list[str]:
    """Return what was measured of threads as lines and tables."""
    waiting = "".join(f", {k}={v}" for k, v in sorted(omp.environment.items()))
    shared = [t for t in omp.threads if omp.oversubscribed(t)]
    head = [f"{t} *" if t in shared else str(t) for t in omp.threads]
    rows = [
        [label, *[seconds(omp.overhead(name, t, at)) for t in omp.threads]]
        for label, name, at in rows_of(omp)
    ]
    rows.append(["triad, GB/s", *[f"{omp.close.at(t) / 1e9:.3g}" for t in omp.threads]])
    if omp.far:
        apart = {t: f"{omp.far.at(t) / 1e9:.3g}" for t in omp.far.threads}
        rows.append(["triad, threads far, GB/s", *[apart.get(t, "") for t in omp.threads]])
    if omp.clock.hz:
        rows.append(["clock, GHz", *[f"{hz / 1e9:.3g}" for hz in omp.clock.hz]])
    rows.append(["additions in a row, 1/ns", *[f"{a / 1e9:.3g}" for a in omp.clock.additions]])
    return [
        f"OpenMP threads: {visible(omp.runtime)}, {visible(omp.compiler_version)}"
        f"{visible(waiting)}; {plural(omp.cores, 'core')}, "
        f"{plural(omp.hardware_threads, 'hardware thread')}",
        table(rows, ["time beyond the bodies", *head]),
        f"a read from memory: {seconds(omp.memory_s)}, {seconds(omp.tlb_s)} where its page has "
        f"to be looked up, {seconds(omp.line.ns[0] * 1e-9)} in {size_text(omp.line.bytes[0])}",
        *([f"clock not known: {visible(omp.clock.why)}"] if not omp.clock.hz else []),
        *([f"* {join_words(shared)} threads share hardware threads"] if shared else []),
    ]


def compare_machines(first: Machine, second: Machine) -> dict[str, Any]:
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
        "curves": _ratio_curves(first.curves, second.curves),
        "loaded": _ratio_curves(first.loaded.curves, second.loaded.curves),
        "network": _ratio_network(first, second),
        "openmp": _compare_openmp(first.openmp, second.openmp)
        if first.openmp and second.openmp
        else None,
        "notes": differences(first, second),
    }


def _ratio(first: Cost, second: Cost) -> dict[str, float]:
    ratio = second.ns / first.ns
    return {"ratio": ratio, "low": ratio / (1 + first.spread), "high": ratio * (1 + second.spread)}


def _ratio_curves(first: Mapping[str, Curve], second: Mapping[str, Curve]) -> dict[str, Any]:
    ratios_of = {}
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
        ratios_of[name] = {
            "working_set": sizes,
            **{key: [ratio[key] for ratio in ratios] for key in ("ratio", "low", "high")},
        }
    return ratios_of


def _ratio_network(first: Machine, second: Machine) -> dict[str, Any] | None:
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


def render_ratios(result: dict[str, Any]) -> str:
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
        parts += ["", *_openmp_ratios(result["openmp"])]
    parts += [f"note: {visible(note, 400)}" for note in result["notes"]]
    return "\n".join(parts)


def _compare_openmp(first: OpenMP, second: OpenMP) -> dict[str, dict[str, list[float]]]:
    """Return how many times as long each construct, a triad and a read take on ``second``.

    By construct: ``threads`` measured on both and ``ratio``; absent where a time is 0.
    """
    both = [float(t) for t in first.threads if t in second.threads]
    ratios_of = {}
    for label, name, at in rows_of(first):
        pairs = [(t, first.overhead(name, t, at), second.overhead(name, t, at)) for t in both]
        ratios = [(t, other / one) for t, one, other in pairs if one > 0]
        ratios_of[label] = {"threads": [t for t, _ in ratios], "ratio": [r for _, r in ratios]}
    ratios_of["triad"] = {
        "threads": both,
        "ratio": [first.bandwidth(t) / second.bandwidth(t) for t in both],
    }
    reads = ((first.memory_s, second.memory_s), (first.tlb_s, second.tlb_s))
    for label, (one, other) in zip(("read", "read, page looked up"), reads, strict=True):
        ratios_of[label] = {"threads": [1.0], "ratio": [other / one]}
    return ratios_of


def _openmp_ratios(ratios_of: dict[str, dict[str, list[float]]]) -> list[str]:
    """Return ratios as a table, a column per number of threads."""
    threads = sorted({t for row in ratios_of.values() for t in row["threads"]})
    rows = []
    for label, row in ratios_of.items():
        ratios = dict(zip(row["threads"], row["ratio"], strict=True))
        rows.append([label, *[f"{ratios[t]:.3g}" if t in ratios else "" for t in threads]])
    return [table(rows, ["threads", *[f"{t:g}" for t in threads]])]
