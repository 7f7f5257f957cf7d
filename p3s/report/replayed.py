"""What a replay has found, as text for the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from p3s.base.text import percent, seconds, table

#: Message classes shown; the others are in the JSON file.
_MOST = 12


def result_text(content: Mapping[str, Any]) -> str:
    """Return tables of the phases and of the message classes, and lines on the links."""
    head, rows = phase_table(content)
    parts = [table(rows, head)]
    if content.get("messages"):
        head, rows = message_table(content)
        parts.append(table(rows, head))
    parts.append("\n".join([link_line(content), *trunk_lines(content)]).strip())
    return "\n\n".join(part for part in parts if part)


def phase_table(content: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return head and rows: communication per phase, mean over the ranks."""
    whole = any("whole_ns_mean" in phase for phase in content["phases"])
    head = ["phase", "time", "communication", "waiting", "transfer", "software", "sum of calls"]
    rows = []
    for phase in content["phases"]:
        row = [str(phase["phase"])]
        row += [
            seconds(phase[key] * 1e-9)
            for key in (
                "time_ns",
                "comm_ns_mean",
                "waiting_ns_mean",
                "transfer_ns_mean",
                "software_ns_mean",
                "thesis_ns_mean",
            )
        ]
        if whole:
            ns = phase.get("whole_ns_mean")
            row.append(seconds(None if ns is None else ns * 1e-9))
        rows.append(row)
    return head + (["whole iterations"] if whole else []), rows


def message_table(content: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return head and rows: the most frequent message classes."""
    head = ["bytes", "distance", "load", "messages", "cost", "alone", "interval", "origin"]
    often = sorted(content["messages"], key=lambda entry: -entry["events"])[:_MOST]
    rows = []
    for entry in often:
        cost = entry["cost_ns"]
        wide = max(entry["ci_high_ns"] - cost, cost - entry["ci_low_ns"]) / cost if cost else None
        rows.append(
            [
                f"{entry['bytes']:,}",
                str(entry["distance"]),
                str(entry["load"]),
                f"{entry['events']:,.0f}",
                seconds(cost * 1e-9),
                seconds(entry["idle_ns"] * 1e-9),
                "±" + percent(wide),
                entry["how"],
            ]
        )
    return head, rows


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


def trunk_lines(content: Mapping[str, Any]) -> list[str]:
    """Return a line on each sort of links between switches."""
    lines = []
    for entry in (content.get("network") or {}).get("trunks") or []:
        more = f" and {entry['links'] - 1} alike" if entry["links"] > 1 else ""
        rate, least = entry["bytes_per_ns"], entry["at_least_bytes_per_ns"]
        carries = (
            f"at least {least * 1e3:,.1f} MB/s"
            if rate is None
            else (f"{rate * 1e3:,.1f} MB/s, burst {entry['burst_bytes'] / 1024:,.0f} KiB")
        )
        lines.append(f"link between switches {entry['first']}{more}: {carries} ({entry['from']})")
    return lines
