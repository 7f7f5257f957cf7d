"""``p3s characterize --signature``: run a signature, say what it cost and saved."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from p3s.base.errors import UsageError
from p3s.base.text import one_line, plural, processes, table
from p3s.cli.helptext import option

if TYPE_CHECKING:
    from p3s.capture.recording_plan import Enough

SIGNATURE = option(
    False, "--signature", "Run the signature of a study: each phase only often enough."
)
STOP = option(False, "--stop", "With --signature: end the program once every phase has been seen.")
WIDTH = option("2%", "--width PERCENT", "Half width at which the time of a run is known.")
CONFIDENCE = option("95%", "--confidence PERCENT", "Confidence of that interval.")
TURNS = option("20-1000", "--turns RANGE", "Fewest and most iterations of a phase in full detail.")

_PERCENT = re.compile(r"(\d{1,3}(?:\.\d{1,6})?)\s*(%?)")
_RANGE = re.compile(r"(\d{1,9})-(\d{1,9})")


def enough(width: str, confidence: str, turns: str) -> Enough:
    """Return what the options --width, --confidence and --turns ask for.

    Errors: UsageError that names the option.
    """
    from p3s.capture.recording_plan import Enough

    match = _RANGE.fullmatch(turns.strip())
    if match is None or not 2 <= int(match[1]) <= int(match[2]):
        raise UsageError(
            f"--turns {turns}: not a range of at least 2; give for example --turns 20-1000"
        )
    return Enough(
        _share("--width", width), _share("--confidence", confidence), int(match[1]), int(match[2])
    )


def _share(option: str, text: str) -> float:
    match = _PERCENT.fullmatch(text.strip())
    value = float(match[1]) / (100 if match[2] else 1) if match else 0.0
    if not 0 < value < 1:
        raise UsageError(f"{option} {text}: not between 0 and 100 %; give for example 2%")
    return value


def text(result: Mapping[str, Any]) -> str:
    """Return one result for people."""
    unit = _Unit(result)
    rows = []
    for row in result["phases"]:
        low, high = row["in_detail"]
        rows.append(
            [
                str(row["phase"]),
                one_line(row["name"]),
                f"{row['turns']:,}",
                f"{low:,}" if low == high else f"{low:,}-{high:,}",
                "-" if row["mean"] is None else unit.one(row["mean"]),
                "-" if row["mean"] is None else f"{100 * row['relative_half_width']:.1f} %",
                ", ".join(row["state"]) or "not begun",
                f"{100 * row['share']:.1f} %",
            ]
        )
    head = ["phase", "name", "turns", "in detail", "one iteration", "within", "state", "share"]
    lines = [processes(result["np"]), table(rows, head, 2)]
    events, saved = result["events"], result["saved"]
    of_run = events["run"]
    whole = f" of {plural(of_run, 'event')}" if of_run else ""
    lines.append(
        f"full detail for {100 * events['share_in_detail']:.1f} % of the events"
        f" ({events['recorded']:,}{whole}, {events['counted']:,} counted)"
    )
    half = result["half_width"]
    error = f" ± {unit.one(half)}" if half > 0 else ""
    unknown = "" if half > 0 else "; no spread between iterations is known"
    lines.append(
        f"predicted {unit.what}: {unit.one(result['predicted'])}{error} "
        f"(weights from {result['weights_from']}{unknown})"
    )
    lines.append(f"by the iterations in full detail alone: {unit.one(result['from_detail'])}")
    for key, name in (("of_this_run", "this run, all of it"), ("of_full_run", "the full run")):
        row = result[key]
        if row is not None and row["difference"] is not None:
            lines.append(
                f"{name}: {unit.one(row['time'])}, predicted {100 * row['difference']:+.2f} %,"
                f" by the iterations in full detail alone {100 * row['from_detail']:+.2f} %"
            )
    if saved["full_wall_s"]:
        lines.append(
            f"run time {saved['wall_s']:.2f} s{' (stopped)' if result['stopped'] else ''}, of the"
            f" full run {saved['full_wall_s']:.2f} s; captures {_size(saved['bytes'])}, of the"
            f" full run {_size(saved['full_bytes'])}"
        )
    return "\n".join(lines)


class _Unit:
    """Names and sizes of what a result is in."""

    def __init__(self, result: Mapping[str, Any]) -> None:
        self.instructions = result["work_unit"] == "instructions"
        if self.instructions:
            self.what = "instructions per process"
        elif result["measure"] == "work":
            self.what = "computation per process"
        else:
            self.what = "time"

    def one(self, value: float) -> str:
        if self.instructions:
            return f"{value:,.0f}"
        for size, name in ((1e9, "s"), (1e6, "ms"), (1e3, "us")):
            if value >= size:
                return f"{value / size:.4g} {name}"
        return f"{value:.0f} ns"


def _size(count: int) -> str:
    return f"{count / 2**20:.1f} MiB" if count >= 2**20 else f"{count / 2**10:.0f} KiB"
