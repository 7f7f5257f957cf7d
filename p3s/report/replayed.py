"""What a replay has found, as text for the terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from p3s.base.text import percent, processes, seconds
from p3s.report.show import Columns, PartTable, show, table_of

#: What is read from the file of a replay.
Content = Mapping[str, Any]
#: Message classes shown; the others are in the JSON file.
_MOST = 12
#: Parts of the communication of a phase by their field.
_PARTS = {
    "time": "time_ns",
    "communication": "comm_ns_mean",
    "waiting": "waiting_ns_mean",
    "transfer": "transfer_ns_mean",
    "software": "software_ns_mean",
    "sum of calls": "thesis_ns_mean",
    "whole iterations": "whole_ns_mean",
}


def replays_text(results: Mapping[int, Content]) -> str:
    """Return what the replays of some counts have found: a table of all, then each."""
    columns: Columns[int] = {
        "processes": str,
        "iterations": lambda n: results[n].get("iterations", "-"),
        "classes": lambda n: len(results[n].get("messages", [])),
        "measured": lambda n: _format_share(results[n].get("measured_share")),
        "representative": lambda n: "yes" if results[n].get("representative") else "no",
    }
    each = (f"{processes(n)}\n{result_text(result)}" for n, result in results.items())
    return "\n\n".join([show(table_of("Replays", columns, results, left=())), *each])


def _format_share(share: object) -> str:
    return f"{100 * share:.1f} %" if isinstance(share, (int, float)) else "-"


def result_text(content: Content) -> str:
    """Return tables of the phases and of the message classes, and a line on the link."""
    tables = [_phases(content), *([_messages(content)] if content.get("messages") else [])]
    return "\n\n".join(filter(None, [*map(show, tables), link_line(content)]))


def _phases(content: Content) -> PartTable:
    """Return the communication per phase, mean over the ranks."""

    def time(key: str) -> Callable[[Content], str]:
        return lambda phase: seconds(None if (ns := phase.get(key)) is None else ns * 1e-9)

    whole = any("whole_ns_mean" in phase for phase in content["phases"])
    keys = {name: key for name, key in _PARTS.items() if whole or key != "whole_ns_mean"}
    columns: Columns[Content] = {
        "phase": lambda phase: phase["phase"],
        **{name: time(key) for name, key in keys.items()},
    }
    return table_of("Phases", columns, content["phases"])


def _messages(content: Content) -> PartTable:
    """Return the most frequent message classes."""
    columns: Columns[Content] = {
        "bytes": lambda entry: f"{entry['bytes']:,}",
        "distance": lambda entry: entry["distance"],
        "load": lambda entry: entry["load"],
        "messages": lambda entry: f"{entry['events']:,.0f}",
        "cost": lambda entry: seconds(entry["cost_ns"] * 1e-9),
        "alone": lambda entry: seconds(entry["idle_ns"] * 1e-9),
        "interval": lambda entry: "±" + percent(_half_width(entry)),
        "origin": lambda entry: entry["how"],
    }
    often = sorted(content["messages"], key=lambda entry: -entry["events"])[:_MOST]
    return table_of("Message classes", columns, often)


def _half_width(entry: Content) -> float | None:
    """Return the wider half of the interval of a cost over the cost."""
    cost = entry["cost_ns"]
    wide = max(entry["ci_high_ns"] - cost, cost - entry["ci_low_ns"])
    return float(wide / cost) if cost else None


def link_line(content: Content) -> str:
    """Return one line on the link of a node."""
    network = content.get("network") or {}
    if not network:
        return ""
    rate = network.get("link_bytes_per_ns")
    if rate is None:
        return f"link of a node: {network.get('link_from') or 'no limit found'}"
    return (
        f"link of a node: {rate * 1e3:,.1f} MB/s, burst "
        f"{network['link_burst_bytes'] / 1024:,.0f} KiB ({network['link_from']}, "
        f"residual {100 * network['link_residual']:.1f} %)"
    )
