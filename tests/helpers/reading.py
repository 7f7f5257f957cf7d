"""Files of every format, changed at random: what their readers make of them, in one process."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import os
import random
import tempfile
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
from mutations import mutate_bytes, mutate_json, mutate_table
from outcomes import AT, Hung, Outcome, Trial, fit_head, limited

from p3s.base import records
from p3s.base.artefacts import add_digest
from p3s.base.errors import P3SError
from p3s.base.settings import traces_of
from p3s.base.study import Study
from p3s.base.tables import ROOM, TIMES_ITS_SIZE

#: Where files are written again and again: a disk would be waited for.
MEMORY = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else None
#: Seconds that one input may take, far above what it does.
LIMIT_S = 20
#: Memory that reading may take beside what the tables of a file may ask for.
_BESIDE = 64 << 20


@dataclass(frozen=True)
class Reader:
    """A format: a file of it, and what reads it.

    keeps: it has a digest, or checksums, so that a change that was not meant is told.
    """

    name: str
    file: str
    read: Callable[[Path], Any]
    keeps: bool = True


def _by(function: str, args: Callable[[Path], tuple[Any, ...]] = lambda path: (path,)) -> Any:
    """Return what reads a path by a function ("module:name") that is imported when it is needed."""
    module, _, name = function.partition(":")
    return lambda path: attrgetter(name)(import_module(module))(*args(path))


def _at(n: int) -> Callable[[Path], tuple[Path, int]]:
    """Return what turns a file beside a signature into its study and a process count."""
    return lambda path: (path.parents[1], n)


def _scaled(path: Path) -> Any:
    from p3s.program.scaled import read_scaled, scaled_head

    return scaled_head(path.parent), read_scaled(path.parent)


def _replay(path: Path) -> Any:
    from p3s.predict.estimators.one import communication

    study = Study(path.parents[1])
    return study.replay(AT), communication("simulation", traces_of(study), AT)


def _prediction(path: Path) -> Any:
    from p3s.pipeline.saved import PredictionFile

    return PredictionFile.load(path).content


def _machine(path: Path) -> Any:
    from p3s.machine.machinefile import Machine
    from p3s.machine.show import render
    from p3s.simulate.network import network_from_machine

    machine = Machine.load(path)
    return machine, network_from_machine(machine), render(machine)


def _topology(path: Path) -> Any:
    from p3s.machine.topology.read import read_fabric

    return read_fabric(str(path), 4).about


def _capture(path: Path) -> Any:
    from p3s.capture import read_run

    run = read_run(path.parent)
    for rank, problem in run.problems.items():  # what is left of it is used, and this is said
        raise P3SError(f"{path.parent}: rank {rank}: {problem}")
    return run.np, list(run.ranks)


def _archive(path: Path) -> Any:
    """Read an OTF2 archive, one of whose files this is; return the captures made of it."""
    from p3s.formats.otf2.capture import archive_at, import_archive

    whole = path.parents[path.parent.name == "traces"]
    anchor = archive_at(whole)
    if anchor is None:
        raise P3SError(f"{whole}: holds no archive")
    with tempfile.TemporaryDirectory(dir=MEMORY) as captures:
        import_archive(anchor, Path(captures))
        return {each.name: each.read_bytes() for each in sorted(Path(captures).iterdir())}


_SIGNATURE = "study/signature/np0006"
_SCALED = f"study/scaled/np{AT:06d}"
READERS: tuple[Reader, ...] = (
    Reader("study", "study/study.json", lambda path: Study(path.parent).manifest()),
    Reader("run", "study/runs/np0004.r0/run.json", lambda path: records.read_run(path.parent)),
    Reader("signature", f"{_SIGNATURE}.json", _by("p3s.signature.store:load_table", _at(6))),
    Reader("calls", f"{_SIGNATURE}.parquet", _by("p3s.signature.store:load_table", _at(6))),
    Reader("edges", f"{_SIGNATURE}.edges.parquet", _by("p3s.signature.store:load_table", _at(6))),
    Reader("events", f"{_SIGNATURE}.events.parquet", _by("p3s.signature.store:load_table", _at(6))),
    Reader(
        "samples", f"{_SIGNATURE}.samples.parquet", _by("p3s.signature.store:load_table", _at(6))
    ),
    Reader(
        "segments", f"{_SIGNATURE}.segments.parquet", _by("p3s.signature.store:load_table", _at(6))
    ),
    Reader("times", f"{_SIGNATURE}.times.json", _by("p3s.signature.times:load_times", _at(6))),
    Reader(
        "times table", f"{_SIGNATURE}.times.parquet", _by("p3s.signature.times:load_times", _at(6))
    ),
    Reader("files", f"{_SIGNATURE}.files.parquet", _by("p3s.signature.beside:load_uses", _at(6))),
    Reader(
        "teams",
        "threads/at/threads=2/signature/np0004.teams.parquet",
        _by("p3s.signature.beside:load_teams", _at(4)),
    ),
    Reader("phases", "study/signature/phases.json", _by("p3s.signature.phase_file:load")),
    Reader("model", "study/model.json", _by("p3s.model.stage:read")),
    Reader("compute", "study/compute.json", _by("p3s.costs.types:read")),
    Reader("scaled", f"{_SCALED}/scaled.json", _scaled),
    Reader("comms", f"{_SCALED}/comms.json", _scaled),
    Reader(
        "order",
        f"{_SCALED}/order.json",
        _by("p3s.program.scaled:read_order", lambda path: (path.parent,)),
    ),
    Reader("rows", f"{_SCALED}/part-00000.parquet", _scaled),
    Reader("replay", f"study/replay/np{AT:06d}.json", _replay),
    Reader("replay table", f"study/replay/np{AT:06d}.parquet", _replay),
    Reader("result", "result.npz", _by("p3s.replay.engine.results:read_result")),
    Reader("prediction", "study/prediction.json", _prediction),
    Reader("weak", "weak-size.json", _by("p3s.predict.types:WEAK.read")),
    Reader(
        "validation", "study/validate/np000009.json", _by("p3s.model.comparison:read_comparison")
    ),
    Reader("machine", "machine.json", _machine),
    Reader("filesystem", "files.json", _by("p3s.machine.filesystem:FileSystem.load")),
    Reader("cluster", "cluster.json", _by("p3s.machine.cluster:Cluster.load")),
    Reader("topology", "topology.json", _topology, keeps=False),
    Reader("switches", "topology.conf", _topology, keeps=False),
    Reader(
        "threads",
        "threads/threads.json",
        _by("p3s.methods.threads.stage:load", lambda path: (path.parent,)),
    ),
    Reader("surface", "threads/surface.json", _by("p3s.predict.surface:SURFACE.read")),
    Reader(
        "advice",
        "threads/advice.json",
        _by("p3s.methods.threads.advise.text:load", lambda path: (path.parent,)),
    ),
    Reader(
        "family",
        "family/family.json",
        _by("p3s.pipeline.stages:load_family", lambda path: (path.parent,)),
    ),
    Reader("tree", "tree.json", _by("p3s.methods.baseline.trees.store:TREE.read")),
    Reader("baseline", "baseline.json", _by("p3s.methods.baseline.model:BASELINE.read")),
    Reader("learned", "learned.json", _by("p3s.methods.placement.learned:load")),
    Reader(
        "placement",
        "placed/placement/np000008.json",
        _by("p3s.methods.placement.ranked.types:PLACEMENTS.read"),
    ),
    Reader(
        "campaign",
        "training/campaign.json",
        _by("p3s.methods.placement.training.dataset:PHASES.read"),
    ),
    Reader(
        "probes", "training/probes.json", _by("p3s.methods.placement.training.dataset:PROBES.read")
    ),
    Reader(
        "execution",
        "training/execution-0000.json",
        _by("p3s.methods.placement.training.dataset:EXECUTION.read"),
    ),
    Reader("run times", "times.json", _by("p3s.methods.baseline.read:read"), keeps=False),
    Reader("run times, CSV", "times.csv", _by("p3s.methods.baseline.read:read"), keeps=False),
    Reader(
        "rank file",
        "ranks.txt",
        _by("p3s.program.mapping:read_rank_file", lambda path: (path, 8)),
        keeps=False,
    ),
    Reader(
        "collectives",
        "collectives.json",
        _by("p3s.program.collectives.choose:rules_of"),
        keeps=False,
    ),
    Reader(
        "collectives, TOML",
        "collectives.toml",
        _by("p3s.program.collectives.choose:rules_of"),
        keeps=False,
    ),
    Reader("capture", "run/rank-000001.p3t", _capture),
)
if importlib.util.find_spec("otf2"):  # which is optional
    READERS += (
        Reader("OTF2", "otf2/traces.otf2", _archive, keeps=False),
        Reader("OTF2 definitions", "otf2/traces.def", _archive, keeps=False),
        Reader("OTF2 events", "otf2/traces/1.evt", _archive, keeps=False),
    )
#: What changes files by their suffix; others are changed byte by byte.
MUTATE = {".json": mutate_json, ".parquet": mutate_table}


@contextlib.contextmanager
def kept(*paths: Path) -> Iterator[None]:
    """Put files back as they were, and as old: what was made of them is not made again."""
    before = {path: (path.read_bytes(), path.stat()) for path in paths}
    try:
        yield
    finally:
        for path, (data, stat) in before.items():
            path.unlink(missing_ok=True)
            path.write_bytes(data)
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


@dataclass
class Files:
    """Samples of all formats, and the most memory that reading one took, in bytes."""

    root: Path
    memory: int = 0

    @classmethod
    def made(cls, folder: Path) -> Files:
        """Write the samples into an empty folder."""
        from sample_files import put_all

        put_all(folder)
        return cls(folder)

    def trials(self, reader: Reader, seeds: Sequence[int]) -> Iterator[Trial]:
        """Yield what becomes of the inputs of a format with these numbers."""
        path = self.root / reader.file
        data, expected = path.read_bytes(), reader.read(path)
        assert same(expected, reader.read(path)), f"{reader.name} is not read the same twice"
        for seed in seeds:
            rng = random.Random(f"{reader.name} {seed}")
            change = MUTATE.get(path.suffix, mutate_bytes)
            changed, what = change(rng, data)
            if changed == data:
                changed, what = mutate_bytes(rng, data + b" ")
            yield self.trial(reader, seed, changed, what, expected)

    def trial(self, reader: Reader, seed: int, changed: bytes, what: str, expected: Any) -> Trial:
        """Read a changed file and put the whole one back."""
        meant = bool(seed % 2) or not reader.keeps
        path = self.root / reader.file
        fitted = meant and path.suffix == ".parquet" and reader.keeps
        heads = path.parent.glob("*.json") if fitted else ()
        with kept(path, *heads):
            path.write_bytes(add_digest(changed) if meant and path.suffix == ".json" else changed)
            if fitted:
                fit_head(path, changed)
            found, said = self.outcome(reader, expected)
        if meant and found is Outcome.SILENT:
            found = Outcome.OTHER
        return Trial(reader.name, seed, f"{'meant' if meant else 'damage'}: {what}", found, said)

    def outcome(self, reader: Reader, expected: Any) -> tuple[Outcome, str]:
        """Read a file as it is now; sort what comes of it."""
        path = self.root / reader.file
        before = _memory_of_now()
        try:
            with limited(LIMIT_S):
                made = reader.read(path)
        except P3SError as err:
            return _refused(str(err), self.root)
        except Hung:
            return Outcome.HUNG, ""
        except (Exception, RecursionError) as err:
            return Outcome.CRASHED, f"{type(err).__name__}: {err}"
        finally:
            asked = _most_memory() - before
            self.memory = max(self.memory, asked)
        if asked > ROOM + _BESIDE + TIMES_ITS_SIZE * path.stat().st_size:
            return Outcome.CRASHED, f"{asked:,} bytes of memory"
        return (Outcome.UNCHANGED if same(made, expected) else Outcome.SILENT), ""


def _refused(text: str, root: Path) -> tuple[Outcome, str]:
    """Return that a file was refused, if that was said in one line that names it."""
    good = "\n" not in text.strip() and str(root) in text
    return (Outcome.REFUSED, text) if good else (Outcome.CRASHED, f"said badly: {text!r:.300}")


def _memory_of_now() -> int:
    """Return the bytes this process has, and let the most be counted from now on."""
    Path("/proc/self/clear_refs").write_bytes(b"5")
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _most_memory() -> int:
    with open("/proc/self/status", "rb") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith(b"VmHWM"))


_PLAIN = (str, bytes, int, float, bool, type(None), Path, types.FunctionType, frozenset, set)


def same(one: Any, other: Any) -> bool:
    """Tell whether two objects hold the same, NaN like NaN."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        if one.dtype != other.dtype or one.shape != other.shape:
            return False
        return bool(np.array_equal(one, other, equal_nan=one.dtype.kind == "f"))
    if isinstance(one, float):
        return one == other or (one != one and other != other)
    if isinstance(one, _PLAIN):
        return bool(one == other)
    if isinstance(one, Mapping):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if dataclasses.is_dataclass(one):
        return all(
            same(getattr(one, f.name), getattr(other, f.name)) for f in dataclasses.fields(one)
        )
    return bool(one == other) or same(getattr(one, "__dict__", 1), getattr(other, "__dict__", 2))
