"""``p3s baseline analytic``: equations 3.1 to 3.7 of a master and workers, from counters."""

from __future__ import annotations

from pathlib import Path

from p3s.base.text import percent, seconds, table
from p3s.cli.common import emit_json, header, out, say
from p3s.cli.declared import argument, option
from p3s.cli.options import JSON_OPTION
from p3s.methods.baseline.commands.options import by_rule

EXAMPLE = """\b
Example:
  p3s baseline analytic study -n 9,17 --threads 1,2,4
Next:
  p3s predict study -n 9,17"""
#: Largest error of the median run, and distance from the nearest workload (section 6.1).
_TRUSTED = 0.15


def analytic(
    source: Path = argument("SOURCE", "A study traced with --counters, or a table of iterations."),
    counts: str = option("", "-n --counts LIST", "Process counts to predict."),
    threads: str = option("", "--threads LIST", "Threads of a worker [default: as the runs]."),
    given: float = option(None, "--workload W", "Workload to predict [default: the largest]."),
    machine: Path = option(None, "--machine FILE", "The machine [default: SOURCE/machine.json]."),
    cpi: float = option(None, "--cpi X", "CPI_ideal [default: where workers have least work]."),
    json_: bool = JSON_OPTION,
) -> int:
    """Print the terms of an iteration of a master and workers (equations 3.1 to 3.7).

    Of the runs and of other counts. Exit code 3 over 15 % off the runs, or their workloads.
    """
    import numpy as np

    from p3s.base.serialise import to_data
    from p3s.machine.machinefile import Machine
    from p3s.methods.baseline.analytic import Node, fit_model, held_out, read_table
    from p3s.methods.baseline.trees.features import derive_features

    runs = read_table(source)
    node = Node(Machine.load(machine or source / "machine.json"))
    model, loads = fit_model(runs, node, cpi), runs.columns["workload"]
    workload = float(loads.max()) if given is None else given
    t = by_rule(threads, "--threads") if threads else sorted({*runs.columns["threads"]})
    k = [n - 1 for n in by_rule(counts) if n > 1] if counts else []
    pairs = np.array([(x, y) for x in k for y in t], dtype=float).reshape(-1, 2).T
    grid = derive_features(np.full(pairs.shape[1], workload), *pairs)
    at = {name: np.append(runs.columns[name], grid[name]) for name in grid}
    columns = {name: at[name] for name in ("workload", "workers", "threads")} | model.terms(
        node, at
    )
    columns["measured"] = np.append(runs.y, np.full(pairs.shape[1], np.nan))
    rows = np.stack([*columns.values()], axis=1).tolist()
    if json_:
        named = [
            dict(zip(columns, [None if x != x else x for x in row], strict=True)) for row in rows
        ]
        emit_json({**header("analytic"), **to_data(model), "rows": named})
    else:
        out(f"CPI_ideal {model.cpi:.4g}")
        for name, law in model.laws.items():
            out(f"{name}: {law.text}, off by {percent(law.error)}")
        for name, factor in model.overlaps.items():
            sure = f"{factor.value:.3g} ± {factor.half_width:.2g} {factor.doubt}"
            out(f"overlap of {name}: {sure}".rstrip())
        out(held_out(runs, node, model.cpi))
        out("\n" + table([_cells(row) for row in rows], [*columns, "error"], left=0))
    if "dtlb-misses" not in model.laws:
        say("note: no dtlb-misses were counted, so eq. 3.3 lacks their term; trace with --counters")
    missed = float(np.median(np.abs(columns["iteration"][: len(runs)] / runs.y - 1)))
    away = float(np.min(np.abs(loads - workload) / loads))
    doubts = {"the median run is missed by": missed, "all workloads of runs are off by": away}
    for text, off in doubts.items():
        if off > _TRUSTED:
            say(f"low confidence: {text} {percent(off)} (limit 15 %)")
    return 3 if max(doubts.values()) > _TRUSTED else 0


def _cells(row: list[float]) -> list[str]:
    """Return the cells of a configuration, its times and the error of the last but one."""
    *values, measured = row
    cells = [*(f"{x:g}" for x in values[:3]), *map(seconds, values[3:])]
    error = f"{100 * (values[-1] / measured - 1):+.1f} %"
    return [*cells, seconds(measured), error] if measured == measured else [*cells, "", ""]
