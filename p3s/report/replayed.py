"""What a replay has found, as text for the terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from p3s.base.text import percent, processes, seconds, table
from p3s.report.counts import rows_of

#: Message classes shown; the others are in the JSON file.
_MOST = 12


def replays_text(results: Mapping[int, Mapping[str, Any]]) -> str:
    """Return what the replays of some counts have found: a table of all, then each."""
    rows = []
    for n, result in results.items():
        share = result.get("measured_share")
        rows.append(
            [
                str(n),
                str(result.get("iterations", "-")),
                str(len(result.get("messages", []))),
                f"{100 * share:.1f} %" if isinstance(share, (int, float)) else "-",
                "yes" if result.get("representative") else "no",
            ]
        )
    head = ["processes", "iterations", "classes", "measured", "representative"]
    each = (f"{processes(n)}\n{result_text(result)}" for n, result in results.items())
    return "\n\n".join([table(rows, head, left=0), *each])


def result_text(content: Mapping[str, Any]) -> str:
    """Return tables of the phases and of the message classes, and a line on the link."""
    parts = [_laid_out(phase_table(content))]
    if content.get("messages"):
        parts.append(_laid_out(message_table(content)))
    parts.append(link_line(content))
    return "\n\n".join(part for part in parts if part)


def _laid_out(lines: list[list[str]]) -> str:
    head, *rows = lines
    return table(rows, head)


def phase_table(content: Mapping[str, Any]) -> list[list[str]]:
    """Return head and rows: communication per phase, mean over the ranks."""
    keys = {
        "time": "time_ns",
        "communication": "comm_ns_mean",
        "waiting": "waiting_ns_mean",
        "transfer": "transfer_ns_mean",
        "software": "software_ns_mean",
        "sum of calls": "thesis_ns_mean",
    }
    if any("whole_ns_mean" in phase for phase in content["phases"]):
        keys["whole iterations"] = "whole_ns_mean"

    def time(key: str) -> Callable[[Mapping[str, Any]], str]:
        return lambda phase: seconds(None if (ns := phase.get(key)) is None else ns * 1e-9)

    columns = {name: time(key) for name, key in keys.items()}
    return rows_of({"phase": lambda phase: str(phase["phase"]), **columns}, content["phases"])


def message_table(content: Mapping[str, Any]) -> list[list[str]]:
    """Return head and rows: the most frequent message classes."""
    columns: dict[str, Callable[[Mapping[str, Any]], str]] = {
        "bytes": lambda entry: f"{entry['bytes']:,}",
        "distance": lambda entry: str(entry["distance"]),
        "load": lambda entry: str(entry["load"]),
        "messages": lambda entry: f"{entry['events']:,.0f}",
        "cost": lambda entry: seconds(entry["cost_ns"] * 1e-9),
        "alone": lambda entry: seconds(entry["idle_ns"] * 1e-9),
        "interval": lambda entry: "±" + percent(_half_width(entry)),
        "origin": lambda entry: entry["how"],
    }
    often = sorted(content["messages"], key=lambda entry: -entry["events"])[:_MOST]
    return rows_of(columns, often)


def _half_width(entry: Mapping[str, Any]) -> float | None:
    """Return the wider half of the interval of a cost over the cost."""
    cost = entry["cost_ns"]
    wide = max(entry["ci_high_ns"] - cost, cost - entry["ci_low_ns"])
    return float(wide / cost) if cost else None


def link_line(content: Mapping[str, Any]) -> str:
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
