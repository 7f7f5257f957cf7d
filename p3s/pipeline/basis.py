"""What a prediction is asked for, what its messages cost, and what is checked before it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from p3s.base.artefacts import read_json
from p3s.base.errors import P3SError, UsageError
from p3s.base.settings import MIN_COUNTS, traces_of
from p3s.base.text import quote_word
from p3s.machine.cluster import DEFAULT, cluster_of, names
from p3s.pipeline.commands import Commands
from p3s.pipeline.records import existing, load_study, name_study
from p3s.pipeline.stages import base_path, check_room, too_few
from p3s.pipeline.tracing.counts import CountRequest
from p3s.pipeline.tracing.study import check_counts
from p3s.predict.estimated import ESTIMATORS, FROM_REPLAY, TYPICAL
from p3s.predict.estimates import Estimation
from p3s.predict.estimators.settings import USUAL, Setting
from p3s.replay.settings import ReplaySettings
from p3s.signature_runner.traced_run import check_template, program_of

if TYPE_CHECKING:
    from p3s.program.mapping import RankMap

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
