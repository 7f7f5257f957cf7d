"""What exports are made of, read from a study: a run, a scaled trace, points of all counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from p3s.base.errors import P3SError
from p3s.base.extensions import Writer, load
from p3s.base.records import Traces, phases_path, scaled_dir
from p3s.base.text import processes, quote_word
from p3s.formats.exported import ExportResult, Options, Say
from p3s.formats.run import Run
from p3s.formats.scaled import ScaledSource
from p3s.machine.machinefile import NAME as MACHINE
from p3s.simulate.network import Network, rough_network

if TYPE_CHECKING:
    from p3s.predict.types import Prediction
    from p3s.signature.phase_file import Phases


#: Units of work that are times.
TIMES = frozenset({"cpu_ns", "wall_ns"})


class RunTimePoint(NamedTuple):
    """The run time of a run in seconds; whether ranks shared cores, or waited for one."""

    n: int
    wall_s: float
    shared: bool


@dataclass(frozen=True)
class Points:
    """What a study knows of all counts; None: there is no such file. ``root``: the study."""

    root: Path
    runs: Sequence[RunTimePoint]
    phases: Phases | None
    predicted: Prediction | None


def export(
    traces: Traces, writer: Writer, n: int, target: Path, options: Options, say: Say
) -> ExportResult:
    """Write what a study knows at ``n`` processes (0: at all counts) in a format; say what."""
    write = load(writer.function)
    n = max(traces.ran, default=0) if writer.content == "points" else n
    result = ExportResult(writer.name, n, target, options)
    if writer.content == "points":
        write(points_of(traces, result), result)
    elif writer.content == "scaled":
        write(scaled_of(traces, n, options, say), result)
    else:
        write(run_of(traces, result, say, writer.content == "simulated"), result)
    return result


def run_of(traces: Traces, result: ExportResult, say: Say, only_simulated: bool = False) -> Run:
    """Return the first complete run at a count, else the simulated one.

    Takes down what the latter lacks. Errors: P3SError where there is neither.
    """
    from p3s.capture import read_run
    from p3s.capture.chunks import read_header
    from p3s.capture.layout import NAME
    from p3s.capture.sites import resolve_sites

    n = result.n
    traced = next(iter(traces.complete(n)), None)
    if traced is None or result.options.simulated or only_simulated:
        from p3s.formats.simulated import simulate_sections
        from p3s.model.stage import load as load_model

        run = simulate_sections(
            scaled_of(traces, n, result.options, say), load_model(traces.root), result, say
        )
    else:
        say(f"{processes(n)}: {traced.path}")
        trace = read_run(traced.path)
        hosts = [read_header(traced.path / NAME.format(rank)).host for rank in range(trace.np)]
        run = Run(trace, {}, hosts, _program(traced.info))
    sites = {site.key: site.frames for site in run.trace.sites}
    return replace(run, places=resolve_sites(traces, sites)[0])


def _program(info: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the program of a run and its arguments, empty where they are not known."""
    program = info.get("program")
    if not isinstance(program, str) or not program:
        return ()
    for key in ("command", "argv"):
        words = [str(word) for word in info.get(key) or ()]
        for at, word in enumerate(words):
            if Path(word).name == Path(program).name:
                return (program, *words[at + 1 :])
    return (program,)


def scaled_of(traces: Traces, n: int, options: Options, say: Say) -> ScaledSource:
    """Return the scaled trace of ``n`` processes; collectives as the library's of the runs."""
    from p3s.predict.estimators.messages import library_for
    from p3s.predict.estimators.settings import Setting
    from p3s.program.scaled import read_order, read_scaled

    where = scaled_dir(traces.root, n)
    library = library_for(traces, None, Setting(collectives=options.collectives))
    order = read_order(where) if (where / "order.json").exists() else None

    def network() -> tuple[Network, list[str]]:
        return _network(traces.root / MACHINE, options.machine)

    return ScaledSource(where, read_scaled(where), order, library, network, say)


def _network(usual: Path, named: Path | None) -> tuple[Network, list[str]]:
    """Return the costs of messages: those of a machine file, else usual ones and a note."""
    from p3s.machine.machinefile import Machine
    from p3s.predict.estimators.messages import networks

    path = named or usual
    if named is None and not path.exists():
        return rough_network(), [
            "costs of messages are usual ones (2 us, 12.5 GB/s), not "
            f"measured; measure them: p3s machine measure -o {quote_word(path)}"
        ]
    machine = Machine.load(path)
    if machine.network:
        return networks(machine)[0], []
    if named is None:
        return rough_network(), [f"{path} has no costs of messages; usual ones are taken"]
    raise P3SError(
        f"{path} has no costs of messages; run p3s machine measure -o {quote_word(path)}"
    )


def points_of(traces: Traces, result: ExportResult) -> Points:
    """Return all that was measured and predicted of a study; takes down what is missing."""
    from p3s.pipeline.saved import read_prediction
    from p3s.signature.phase_file import load as load_phases

    phases_file, prediction_file = phases_path(traces.root), traces.root / "prediction.json"
    phases = load_phases(phases_file) if phases_file.exists() else None
    predicted = read_prediction(prediction_file) if prediction_file.exists() else None
    if phases is None:
        result.notes.append(f"no points of phases: {phases_file} is not there; run p3s phases")
    if predicted is None:
        result.notes.append("no predicted points: there is no prediction; run p3s predict")
    return Points(traces.root, list(_yield_run_times(traces)), phases, predicted)


def _yield_run_times(traces: Traces) -> Iterator[RunTimePoint]:
    """Yield the run time of every run, and whether its ranks had cores of their own."""
    from p3s.capture import read_run
    from p3s.predict.residual import OFF_CORE_LIMIT, run_times

    for n in traces.ran:
        native = [run for run in traces.timed if run.np == n and run.status == "complete"]
        for record in native or traces.complete(n):
            run = read_run(record.path)
            if run.work_unit in TIMES:
                times = run_times(run)
                shared = record.info.get("oversubscribed", True)
                yield RunTimePoint(n, times.wall_s, shared or times.off_core > OFF_CORE_LIMIT)
