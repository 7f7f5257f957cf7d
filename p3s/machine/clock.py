"""The clock of cores that work, as the system tells it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from p3s.machine.facts import CPUS, text_of

_INFO = Path("/proc/cpuinfo")
#: In kHz: measured over the last tick where the processor counts cycles, else what was asked for.
_FILES = ("cpuinfo_avg_freq", "scaling_cur_freq", "cpuinfo_cur_freq")


def source(root: Path = CPUS, info: Path = _INFO) -> str:
    """Return where clocks can be read: "cpufreq", "cpuinfo", or "" where they cannot.

    In a virtual machine cpuinfo has the clock that the guest was promised, whatever it runs at.
    """
    if any((root / f"cpu{n}" / "cpufreq" / _FILES[1]).exists() for n in range(1024)):
        return "cpufreq"
    text = text_of(info)
    return "cpuinfo" if "cpu MHz" in text and " hypervisor" not in text else ""


def why_unknown(root: Path = CPUS, info: Path = _INFO) -> str:
    """Return why clocks cannot be read here."""
    if source(root, info):
        return "the system told the clock of some teams only"
    if " hypervisor" in text_of(info):
        return "a virtual machine: the system tells no clock, or one that does not change"
    return "the system tells no clock (cpufreq, /proc/cpuinfo)"


def told_hz(cpus: Sequence[int], root: Path = CPUS, info: Path = _INFO) -> float | None:
    """Return the mean clock of some hardware threads now, in Hz; of all where none are named.

    None where the system tells none.
    """
    found = source(root, info)
    if not found:
        return None
    told = _of_cpufreq(root) if found == "cpufreq" else _of_cpuinfo(info)
    known = [told[cpu] for cpu in cpus or told if cpu in told]
    return sum(known) / len(known) if known else None


def _of_cpufreq(root: Path) -> dict[int, float]:
    found = {}
    for folder in root.glob("cpu[0-9]*/cpufreq"):
        text = next((t for name in _FILES if (t := text_of(folder / name)).isdigit()), "")
        if text:
            found[int(folder.parent.name[3:])] = 1e3 * int(text)
    return found


def _of_cpuinfo(info: Path) -> dict[int, float]:
    found, number = {}, -1
    for line in text_of(info).splitlines():
        key, _, value = (part.strip() for part in line.partition(":"))
        if key == "processor" and value.isdigit():
            number = int(value)
        elif key == "cpu MHz":
            found[number] = 1e6 * float(value)
    return found
