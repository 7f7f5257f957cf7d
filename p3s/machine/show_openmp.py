"""The threads' part of a machine file as tables, and two of them side by side."""

from __future__ import annotations

from p3s.base.text import joined, plural, seconds, size_text, table, visible
from p3s.machine.teams import CONSTRUCTS, LOOPS, OpenMP

#: Iterations per thread at which loops are shown and compared.
SHOWN = (1, 64)


def rows_of(found: OpenMP) -> list[tuple[str, str, float]]:
    """Return constructs with the iterations that they are shown at."""
    return [
        (name if name not in LOOPS else f"{name}, {at} a thread", name, float(at))
        for name in CONSTRUCTS
        for at in (SHOWN if name in LOOPS else (1,))
    ]


def render(found: OpenMP) -> list[str]:
    """Return what was measured of threads as lines and tables."""
    waiting = "".join(f", {k}={v}" for k, v in sorted(found.environment.items()))
    head = [_count(found, threads) for threads in found.threads]
    rows = [
        [label, *[seconds(found.overhead(name, t, at)) for t in found.threads]]
        for label, name, at in rows_of(found)
    ]
    rows.append(["triad, GB/s", *[f"{found.close.at(t) / 1e9:.3g}" for t in found.threads]])
    if found.far:
        apart = {t: f"{found.far.at(t) / 1e9:.3g}" for t in found.far.threads}
        rows.append(["triad, threads far, GB/s", *[apart.get(t, "") for t in found.threads]])
    if found.clock.hz:
        rows.append(["clock, GHz", *[f"{hz / 1e9:.3g}" for hz in found.clock.hz]])
    rows.append(["additions in a row, 1/ns", *[f"{a / 1e9:.3g}" for a in found.clock.additions]])
    return [
        f"OpenMP threads: {visible(found.runtime)}, {visible(found.compiler_version)}"
        f"{visible(waiting)}; {plural(found.cores, 'core')}, "
        f"{plural(found.hardware_threads, 'hardware thread')}",
        table(rows, ["time beyond the bodies", *head]),
        f"a read from memory: {seconds(found.memory_s)}, {seconds(found.tlb_s)} where its page has "
        f"to be looked up, {seconds(found.line.ns[0] * 1e-9)} in {size_text(found.line.bytes[0])}",
        *([f"clock not known: {visible(found.clock.why)}"] if not found.clock.hz else []),
        *_shared(found),
    ]


def _count(found: OpenMP, threads: int) -> str:
    return f"{threads}{' *' if found.oversubscribed(threads) else ''}"


def _shared(found: OpenMP) -> list[str]:
    many = [t for t in found.threads if found.oversubscribed(t)]
    return [f"* {joined(many)} threads share hardware threads"] if many else []


def compare(first: OpenMP, second: OpenMP) -> dict[str, dict[str, list[float]]]:
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
