"""A profile as flame graphs for speedscope (https://www.speedscope.app): JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from p3s.base.artefacts import write_bytes
from p3s.base.text import processes, quote_word
from p3s.base.version import __version__
from p3s.formats.exported import ExportResult
from p3s.formats.profile import Node, Profile, profile_of
from p3s.formats.run import Run

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def to_speedscope(run: Run, result: ExportResult) -> None:
    """Write the profile of a run as flame graphs."""
    profile, options, ranks = profile_of(run, result), result.options, run.trace.np
    name = f"{processes(ranks)}, {'simulated' if run.simulated else 'traced'}"
    busiest = int(profile.time_s.sum(axis=0).argmax())
    whole = {"mean of the ranks": profile.time_s.sum(axis=1) / ranks}
    ranks_shown = options.ranks if options.ranks is not None else tuple(dict.fromkeys((0, busiest)))
    whole |= {f"rank {rank}": profile.time_s[:, rank] for rank in ranks_shown}
    content = {
        "$schema": _SCHEMA,
        "name": name,
        "exporter": f"p3s@{__version__}",
        "activeProfileIndex": 0,
        "shared": {"frames": [_frame(node) for node in profile.nodes]},
        "profiles": [
            _profile(f"{name}: {title}", profile, time_s) for title, time_s in whole.items()
        ],
    }
    write_bytes(result.path, json.dumps(content, allow_nan=False).encode())
    result.notes.append("flame graphs are of the mean of the ranks and of some ranks: --ranks")
    command = f"npx speedscope {quote_word(result.path)}"
    result.command = f"open {result.path} in https://www.speedscope.app, or: {command}"


def _frame(node: Node) -> dict[str, Any]:
    frame: dict[str, Any] = {"name": node.name}
    if node.file:
        frame["file"] = node.file
    if node.line:
        frame["line"] = node.line
    return frame


def _profile(name: str, profile: Profile, time_s: NDArray[np.float64]) -> dict[str, Any]:
    """Return one flame graph: a sample for each call path that takes time."""
    paths = [_path(profile.nodes, number) for number in range(len(profile.nodes))]
    nodes_with_time = [number for number, seconds in enumerate(time_s.tolist()) if seconds > 0]
    nodes_with_time.sort(key=lambda number: paths[number])
    return {
        "type": "sampled",
        "name": name,
        "unit": "seconds",
        "startValue": 0,
        "endValue": float(time_s.sum()),
        "samples": [paths[number] for number in nodes_with_time],
        "weights": [float(time_s[number]) for number in nodes_with_time],
    }


def _path(nodes: Sequence[Node], number: int) -> list[int]:
    path = [number]
    while nodes[path[0]].parent >= 0:
        path.insert(0, nodes[path[0]].parent)
    return path
