"""A prediction: what it is asked for, what its messages cost, what is checked before it, and it."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from p3s.base import ops
from p3s.base.artefacts import crc_of, read_json
from p3s.base.errors import P3SError, UsageError
from p3s.base.ops import resolve_function
from p3s.base.records import Traces, scaled_dir
from p3s.base.settings import MIN_COUNTS, traces_of
from p3s.base.study import Study
from p3s.base.text import not_used, quote_word
from p3s.capture.other_calls import OtherCall, other_calls
from p3s.capture.sites import programs_of, traced_ns
from p3s.machine.cluster import DEFAULT, cluster_of, names
from p3s.model.comparison import Comparison, read_comparison
from p3s.model.grid.admissible import admits
from p3s.model.order.kinds import Kinds
from p3s.model.stage import NAME as MODEL
from p3s.model.stage import read
from p3s.model.types import Model
from p3s.pipeline.commands import Commands
from p3s.pipeline.records import existing, load_study, name_study, structure_of
from p3s.pipeline.stages import base_path, check_room, too_few
from p3s.pipeline.tracing.runs import CountRequest
from p3s.pipeline.tracing.study import check_counts
from p3s.predict.case import Facts
from p3s.predict.estimated import ESTIMATORS, FROM_REPLAY, TYPICAL
from p3s.predict.estimates import Estimate, Estimation, choose, estimates
from p3s.predict.estimators.messages import network_of
from p3s.predict.estimators.settings import USUAL, Setting
from p3s.predict.prediction import compose, of_start_and_end, start_and_end
from p3s.predict.residual import read_measurement
from p3s.predict.times import PhaseTimes
from p3s.predict.types import Prediction, Reason
from p3s.replay.settings import ReplaySettings
from p3s.signature_runner.traced_run import check_template, program_of

if TYPE_CHECKING:
    from p3s.program.mapping import RankMap


@dataclass(frozen=True)
class Inputs:
    """What is predicted: the study of each count, whose scaled trace is there.

    commands: those that are proposed. elsewhere: it is for another machine than that of the runs,
    which are not compared. settings: values of the input's parameters by count where it grows with
    the count (weak scaling); traced: the counts that were traced then.
    """

    studies: Mapping[int, Study]
    commands: Commands
    elsewhere: bool = False
    settings: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    traced: Sequence[int] = ()


def predict(inputs: Inputs, how: Estimation) -> Prediction:
    """Predict time, interval, speedup and efficiency at the counts of some inputs.

    Needs what the estimator needs: a replay, or the file of a machine. The model is that of the
    largest count. Traced counts are compared with what was measured. Speedup is relative to the
    smallest count.
    """
    wanted, weak = sorted(inputs.studies), bool(inputs.settings)
    every = {
        at.root: traces_of(at) for at in {at.root: at for at in inputs.studies.values()}.values()
    }
    behind = {n: every[inputs.studies[n].root] for n in wanted}
    mine, structure = behind[wanted[-1]], structure_of(inputs.studies[wanted[-1]])
    model = read(mine.root / MODEL)
    # the model of a value that was not traced rests on the counts of other values
    own = {*mine.ran, *(model.counts if model.derived else ())} or model.counts
    traced = sorted(inputs.traced if weak else own)
    found: dict[int, Mapping[str, Estimate]] = {}
    for root, traces in every.items():
        found |= estimates(traces, [n for n in wanted if behind[n].root == root], how)
    found = dict(structure.in_place(found, how.machine, how.setting))
    choice = choose(found, how.estimator)
    _refuse_no_time(behind, choice.times)
    runs = {
        n: structure.even(run)
        for n, at in behind.items()
        if not inputs.elsewhere
        and n in (at.ran if weak else traced)
        and (run := read_measurement(at, n)) is not None
    }
    held, runs_beside = model.holdout and model.holdout.comparison, _validations(mine.root)
    checked = {"holdout-missed": [held] if held else [], "validate-missed": runs_beside}
    probes = structure.minded([Reason(code, "") for code in checked], checked)
    timing = [code for code, probe in zip(checked, probes, strict=True) if probe.code != code]
    known = model.admissible
    result = compose(
        choice.times,
        runs,
        traced,
        Facts(
            threshold=how.threshold,
            holdout=model.holdout,
            order=model.order,
            kinds=Kinds(model),
            others=found,
            why=choice.why,
            admits=partial(admits, known) if known and known.failed else None,
            settings=inputs.settings,
            validations=runs_beside,
            commands=inputs.commands,
            totals={} if inputs.elsewhere or weak else _totals(mine, traced, wanted),
            network=network_of(mine, choice.name, wanted, how.machine, how.setting),
            other=other_ways(mine, model),
            calls={resolve_function(item.op) for item in model.items},
            allowed={*how.allowed, *timing},  # no rivals in the draws
            requested=how.requested,
            within=how.within,
        ),
    )
    unused = not_used(model.without, inputs.commands.take_back(model.without))
    result = structure.told(result, choice.name, checked)
    around = start_and_end(behind if weak else dict.fromkeys(mine.ran, mine))
    return replace(
        result,
        notes=(*result.notes, *filter(None, [unused])),
        not_modelled=(*of_start_and_end(around, result.counts), *result.not_modelled),
        start_and_end=around,
    )


def _refuse_no_time(behind: Mapping[int, Traces], times: Mapping[int, PhaseTimes]) -> None:
    """Raise P3SError where a scaled trace leads to a run time of 0: no program takes none."""
    for n, made in times.items():
        if not float(made.whole.sum()) > 0.0:
            root = behind[n].root
            raise P3SError(
                f"{scaled_dir(root, n)}: leads to a run time of 0 s, which no program has: "
                "its rows neither compute nor communicate; make it again: "
                f"p3s scale {quote_word(root)} -n {n}"
            )


def _validations(root: Path) -> list[Comparison]:
    """Return the comparisons with runs that were made with the model as it is.

    Raises P3SError for one that is damaged: it may be what speaks against the model.
    """
    found, crc = [], crc_of(root / MODEL)
    for path in sorted((root / "validate").glob("np*.json")):
        of_model, compared = read_comparison(path)
        if of_model == crc:
            found.append(compared)
    return found


def _totals(traces: Traces, traced: Sequence[int], wanted: Sequence[int]) -> dict[int, float]:
    """Return the computation of all ranks together, in s, at traced counts that are not predicted.

    Where it was timed, and a count below all of them is predicted.
    """
    below_all = min(wanted, default=math.inf) < min(traced, default=0)
    runs = {n: read_measurement(traces, n) for n in traced if below_all and n not in wanted}
    return {n: statistics.median(run.totals_s) for n, run in runs.items() if run and run.totals_s}


# ---- calls that could take over ------------------------------------------------------------------
#: Share of the bytes that an operation moves from which another way of it counts.
_LARGE = 0.1
_STARTS = ("MPI_Start", "MPI_Startall")


def other_ways(traces: Traces, model: Model) -> tuple[OtherCall, ...]:
    """Return the calls that could take over from those that move the program's data.

    Nothing where the program is not on this machine, or was built again since.
    """
    stacks = _stacks(model)
    frames = {module for found in stacks.values() for stack in found for module, _ in stack}
    every = [frame for frames in model.sites.values() for frame in _frames(frames)]
    for path in map(Path, programs_of(traces)):
        if path.name in frames and _as_traced(path, traces):
            own = {
                op: [[address for name, address in stack if name == path.name] for stack in found]
                for op, found in stacks.items()
            }
            try:
                return other_calls(path, own, [at for name, at in every if name == path.name])
            except (OSError, ValueError):
                return ()
    return ()


def _as_traced(path: Path, traces: Traces) -> bool:
    traced = traced_ns(traces)
    return path.is_file() and (traced is None or path.stat().st_mtime_ns <= traced)


def _stacks(model: Model) -> dict[str, list[list[tuple[str, int]]]]:
    """Return the call stacks of the operations that move the data: (module, return address).

    Persistent operations move them where they are started: nothing tells whether a call that only
    makes a request was come to.
    """
    moved: dict[str, float] = defaultdict(float)
    for item in model.items:
        moved[ops.place_of(item.op)] += item.share.bytes if item.share is not None else 0.0
    found: dict[str, list[list[tuple[str, int]]]] = defaultdict(list)
    for item in model.items:
        op = ops.place_of(item.op)
        for name in _STARTS if op in _STARTS else (op,):
            if moved[op] >= _LARGE:
                found[name].append(_frames(model.sites.get(item.site, ())))
    return found


def _frames(frames: Sequence[str]) -> list[tuple[str, int]]:
    parts = (frame.rpartition("+0x") for frame in frames)
    return [
        (module, int(address, 16))
        for module, _, address in parts
        if module and all(digit in "0123456789abcdef" for digit in address)
    ]


#: Any estimator: the one that says most.
AUTO = "auto"
#: Those that know nodes and what is between them.
_PLACED = (AUTO, "machine", TYPICAL)


@dataclass(frozen=True)
class Request:
    """What the options ask for: ``estimator``, ``network`` ("": none named), how to replay.

    ``cluster``: of the full run, as far as options other than those of a replay say it.
    """

    estimator: str
    network: str
    no_replay: bool
    settings: ReplaySettings
    cluster: Setting = USUAL

    def setting(self, network: str = "") -> Setting:
        """Return the cluster and the library of the full run; ``network``: a typical cluster's."""
        return replace(
            self.cluster,
            collectives=self.settings.collectives,
            ranks_per_node=self.settings.cores_per_node,
            mapping=self.settings.mapping,
            rank_file=self.cluster.rank_file or self.settings.rank_file,
            network=network,
        )


def with_placement(request: Request, path: Path, counts: Sequence[int]) -> Request:
    """Return a request for ranks where a file puts them; hosts to measure on are then the job's.

    Errors: UsageError with several counts, or an estimator that rests on a replay; P3SError where
    the file cannot be read, has a rank twice or not at all, or names hosts that there are not.
    """
    from p3s.program.mapping import read_rank_file

    if len(counts) != 1:
        raise UsageError("--placement says where the ranks of one count are: give -n one count")
    if request.estimator not in _PLACED:
        raise UsageError(
            f"--estimator {request.estimator} does not take --placement: leave one of them out"
        )
    placed = read_rank_file(path, counts[0])
    _check_placement(request, path, placed)
    # Other counts fill as many cores of a node as this one.
    each = request.settings.cores_per_node or int(placed.sizes.max())
    settings, hosts = request.settings, request.settings.hosts
    cluster = replace(request.cluster, rank_file=path, rank_file_n=counts[0], hosts=hosts)
    settings = replace(settings, hosts=(), cores_per_node=each)
    return replace(request, no_replay=True, settings=settings, cluster=cluster)


def _check_placement(request: Request, path: Path, placed: RankMap) -> None:
    """Raise P3SError for hosts that there are not, and more ranks on one than it has room for."""
    from p3s.machine.topology.read import name_nodes, read_fabric

    hosts = request.settings.hosts
    unknown = [name for name in placed.names if hosts and name not in hosts]
    if unknown and not unknown[0].startswith("+n"):
        raise P3SError(f"{path}: {unknown[0]} is none of the {len(hosts)} nodes of --hosts")
    full, room = int(placed.sizes.max()), request.settings.cores_per_node
    if room is not None and full > room:
        where = placed.names[int(placed.sizes.argmax())]
        raise P3SError(
            f"{path}: {full} ranks are on {where}, --cores-per-node is {room}; correct one of them"
        )
    if request.cluster.topology:
        fabric = read_fabric(request.cluster.topology, max(placed.nodes, len(hosts)))
        name_nodes(fabric, hosts).numbers(placed.names)


def request_of(
    estimator: str,
    network: str,
    no_replay: bool,
    settings: ReplaySettings,
    topology: str = "",
    *,
    placed: bool = False,
    every_rank: bool = False,
) -> Request:
    """Return what options ask for; raises UsageError where they contradict each other.

    ``placed``: ranks are placed (with_placement), hosts are those of the job. ``every_rank``: all
    ranks are simulated, however many.
    """
    known = [AUTO, *ESTIMATORS]
    if estimator not in known:
        raise UsageError(
            f"--estimator {estimator}: there are {', '.join(known[:-1])} and {known[-1]}"
        )
    if no_replay and estimator in FROM_REPLAY:
        raise UsageError(f"--estimator {estimator} rests on a replay: leave --no-replay out")
    if network and estimator not in (AUTO, TYPICAL):
        raise UsageError(
            f"--estimator {estimator} does not take the costs of --network {network}: "
            "leave one of them out"
        )
    if network and settings.hosts and not placed:
        raise UsageError(
            "--network names costs of messages, --hosts nodes to measure them on: "
            "leave one of them out"
        )
    if topology and estimator not in _PLACED:
        raise UsageError(
            f"--estimator {estimator} does not know links between switches: leave --topology out, "
            "or take --estimator machine"
        )
    if topology and settings.hosts and not placed:
        raise UsageError(
            "--topology with --hosts: p3s replay takes both; without --hosts, predict takes costs "
            "between two nodes, or published ones"
        )
    # What a replay measures holds for where its nodes are.
    cluster = Setting(topology=topology, every_rank=every_rank)
    return Request(estimator, network, no_replay or bool(topology), settings, cluster)


def basis_of(
    request: Request, asked: Sequence[int], machine: Path | None, replayed: Callable[[int], bool]
) -> tuple[Estimation, bool]:
    """Return what costs of messages are taken, and whether replays that are missing are made.

    ``machine``: the file of costs between two ranks, None without one. ``replayed``: whether there
    is a replay at a count that tells how fast the program is. What was measured on several nodes
    comes first, or what can be measured on them now; where there is neither, a typical cluster
    stands for it.
    """

    def taken(estimator: str, network: str = "", replay: bool = False) -> tuple[Estimation, bool]:
        return Estimation(estimator, machine, request.setting(network)), replay

    if request.network or request.estimator == TYPICAL:
        if (file := measured_file(request.network)) is not None:
            machine = file
            return taken("machine")
        return taken(TYPICAL, request.network or DEFAULT)
    if request.estimator != AUTO:
        return taken(request.estimator, replay=request.estimator in FROM_REPLAY)
    measured = machine is not None and between_hosts(machine)
    if request.cluster.topology or request.cluster.rank_file is not None:
        return taken("machine") if measured else taken(TYPICAL, DEFAULT)
    several = [n for n in asked if n > 1]  # one process has nobody to talk to
    if several and not request.no_replay and several_nodes(request.settings):
        return taken(AUTO, replay=True)
    if measured:
        return taken("machine" if request.no_replay else AUTO)
    if not request.no_replay and several and all(map(replayed, several)):
        return taken(AUTO, replay=True)
    return taken(AUTO, DEFAULT)


def measured_file(network: str) -> Path | None:
    """Return the machine file that --network names, None where it names a cluster.

    Raises P3SError where its messages were measured inside of one host, or not at all.
    """
    from p3s.machine.machinefile import MACHINE_SCHEMA

    path = Path(network)
    if not network or network in names() or not path.is_file():
        return None
    try:
        read_json(path, MACHINE_SCHEMA)
    except P3SError:
        return None  # read as a cluster it says what is wrong
    if not between_hosts(path):
        raise P3SError(
            f"--network {network}: no messages between two hosts were measured for it; "
            "run p3s machine measure with a --launcher that puts the two ranks on two"
        )
    return path


def between_hosts(machine: Path) -> bool:
    """Tell whether messages of a machine file were measured between two hosts."""
    from p3s.machine.machinefile import Machine

    network = Machine.load(machine).network if machine.exists() else None
    return len(set((network or {}).get("hosts", ()))) > 1


def several_nodes(settings: ReplaySettings) -> bool:
    """Tell whether there are nodes to replay on: named ones, a launcher's, or those of a job."""
    from p3s.base.host.hosts import allocated_hosts

    return bool(settings.hosts or settings.launcher) or len(set(allocated_hosts())) > 1


def told_of(how: Estimation) -> str:
    """Return what is said of costs of messages before anything is simulated, "" if nothing."""
    name = how.setting.network
    if not name:
        return ""
    cluster = cluster_of(name)
    which = "typical " if cluster.typical else ""
    return (
        f"network: a {which}{cluster.label} ({name}); --network takes another one, "
        "p3s machine list shows them"
    )


#: Free space below which nothing is begun: signatures, model and scaled traces of small programs.
LEAST_FREE = 16 << 20


def check_request(
    root: Path, counts: Sequence[int], request: Request, machine: Path | None, base: Path | None
) -> None:
    """Raise where options name something that is not there or cannot be used.

    ``machine``, ``base``: of the command line. A study need not be there yet.
    """
    from p3s.machine.machinefile import Machine
    from p3s.program.collectives.choose import rules_of
    from p3s.program.types import MOST_PREDICTED, MOST_RANKS

    if counts[-1] > MOST_PREDICTED:
        raise UsageError(
            f"-n {counts[-1]}: more than {MOST_PREDICTED:,} processes cannot be predicted: the "
            "places of all of them on the process grid would not fit into memory"
        )
    cluster = request.cluster
    listed = cluster.every_rank or cluster.topology or request.settings.rank_file
    if counts[-1] > MOST_RANKS and listed:
        raise UsageError(
            f"-n {counts[-1]}: --every-rank, --topology and --placement FILE need the rows of all "
            f"ranks, which {MOST_RANKS:,} processes have at most; leave them out"
        )
    rules_of(request.settings.collectives)
    if request.network and measured_file(request.network) is None:
        cluster_of(request.network)
    if cluster.topology:
        from p3s.machine.topology.read import check

        check(cluster.topology)
    if machine is not None:
        Machine.load(machine)
        Machine.load(base_path(name_study(root), base))
    _check_estimator(root, counts, request, machine)
    check_room(root, LEAST_FREE)


def _check_estimator(
    root: Path, counts: Sequence[int], request: Request, machine: Path | None
) -> None:
    """Raise P3SError where an estimator lacks what it rests on, or nothing can be launched."""
    from p3s.machine.machinefile import NAME
    from p3s.predict.estimators import lacking

    name, study = request.estimator, name_study(root)
    if name != AUTO:
        why = lacking(name, traces_of(study), machine or study.root / NAME)
        if why:
            raise P3SError(f"estimator {name}: {why}")
    replays = name in FROM_REPLAY or (
        name == AUTO
        and not request.network
        and not request.no_replay
        and several_nodes(request.settings)
    )
    if replays and any(not study.replay_path(n).exists() for n in counts if n > 1):
        _check_launch(request)


def _check_launch(request: Request) -> None:
    """Raise P3SError where no replay can be launched."""
    from p3s.replay.launching import find_mpi

    try:
        find_mpi(request.settings.launcher)
    except P3SError as err:
        raise P3SError(
            f"nothing can be replayed here: {err}; --network predicts for a typical "
            "network without a replay (p3s machine list)"
        ) from err


def check_launcher(root: Path, words: Sequence[str], counts: Sequence[int]) -> None:
    """Raise where a program cannot be traced at ``counts`` into the study at ``root``."""
    check_template(words)
    study = existing(root)
    check_counts(study, [n for n in counts if study is None or n not in study.counts()])
    program_of(words, counts[0] if counts else 1)


def check_study(root: Path) -> None:
    """Raise P3SError where a study holds too few process counts to be modelled."""
    from p3s.base.settings import sources
    from p3s.pipeline.records import has_parameters

    if has_parameters(root):
        return  # each value is a study of its own
    study = load_study(root)
    there = sorted({*study.counts(), *study.signature_counts()})
    if len(there) < MIN_COUNTS and not study.model_path.exists() and not sources(study):
        raise P3SError(too_few(study, there))


def check_there(root: Path, counts: Sequence[int]) -> None:
    """Raise P3SError where there is no study, and no command that would make one."""
    if existing(root) is None:
        listed = ",".join(map(str, counts))
        raise P3SError(
            f"{root}: no study here; give the launcher command to trace first: "
            f"p3s predict {quote_word(root)} -n {listed} -- mpiexec -n {{np}} PROGRAM"
        )


def ahead(root: Path, words: Sequence[str], first: CountRequest) -> list[int]:
    """Return the counts to predict where none is named, of about 2 and 4 times the largest.

    words: the launcher command with which ``first`` are traced, none: the study is as it is.
    """
    study = existing(root)
    if study is not None and not words:
        return Commands(study).ahead()
    largest = max(first.counts, default=first.top)
    return [2 * largest, 4 * largest]
