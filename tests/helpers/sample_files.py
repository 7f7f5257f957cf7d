"""One file of every format that P3S reads, made by what writes it."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import corpus
import hybrid_machine
import numpy as np
import timed_study
from fuzzing import make_study, put_run
from machines import synthetic
from openmp_made import openmp
from sketch import rank_file
from threads_study import Hybrid, put_threads

from p3s.base.artefacts import crc_of, write_json
from p3s.base.settings import traces_of
from p3s.base.study import Study
from p3s.machine import filesystem
from p3s.machine.cluster import typical
from p3s.machine.machinefile import Facts
from p3s.methods.threads.advise.text import AdviceFile
from p3s.methods.threads.advise.text import write as write_advice
from p3s.model.compare import compare
from p3s.model.stage import load as load_model
from p3s.pipeline.validating import Validation
from p3s.signature import beside, fileuse

BYTES = [0, 1000, 100_000]


def network(latency: float, per_byte: float, hosts: list[str]) -> dict[str, Any]:
    """Return the messages of a machine file."""
    from p3s.machine.programs import ranges

    one_way = [latency + per_byte * b for b in BYTES]
    sizes = {
        "bytes": BYTES,
        "timings": [9] * 3,
        "one_way_ns": one_way,
        "one_way_median_ns": one_way,
        "send_ns": [100.0] * 3,
        "send_median_ns": [100.0] * 3,
        "receive_ns": [100.0, 100.0, None],
        "receive_median_ns": [100.0, 100.0, None],
        "gap_ns": [200.0, per_byte * 1000, per_byte * 100_000],
    }
    about = {"mpi": "openmpi 4.1.4", "hosts": hosts, "cores": [0, 0], "eager_bytes": 4096}
    found: dict[str, Any] = {**about, "sizes": sizes}
    return {**found, "ranges": ranges(found)}


def put_all(root: Path) -> None:
    """Write every format below an empty directory."""
    make_study(root / "study")
    for put in (
        *(_beside, _validation, _machine, _clusters, _replayed, _weak),
        *(_threads, _family, _tree, _baseline, _learned, _placement, _training, _texts, _archive),
    ):
        put(root)


def _beside(root: Path) -> None:
    """What was done to files, and what threads did."""
    from p3s.signature.store import load_table

    study = Study(root / "study")
    table = load_table(study.root, 6)
    rows = np.abs(np.random.default_rng(1).integers(0, 1000, (6, len(fileuse.COLUMNS))))
    rows[:, 0], rows[:, 1] = np.arange(6), 0
    part: Any = SimpleNamespace(files=rows, nodes=list(table.nodes))
    beside.write_uses(study.root, 6, [part])


def _validation(root: Path) -> None:
    """The model beside a run that it was not made from."""
    from p3s.signature.store import load_table

    study = Study(root / "study")
    model = load_model(study.root)
    compared = compare(model, load_table(study.root, 9))
    made = Validation(model.counts, crc_of(study.model_path), compared, (), {}, ())
    write_json(study.validate_path(9), made.to_json())


def _machine(root: Path) -> None:
    far, near = network(10_000, 10, ["a", "b"]), network(500, 0.1, ["a", "a"])
    storage = filesystem.typical(filesystem.names()[0])
    machine = replace(synthetic(), network={**far, "inside": near}, openmp=openmp(), files=storage)
    machine.save(root / "machine.json")
    storage.save(root / "files.json")


def _clusters(root: Path) -> None:
    write_json(root / "cluster.json", dict(typical("infiniband-hdr").data))
    tree = [
        {"switch": "r0", "nodes": "n[0-3]", "speed": "100Gbit/s"},
        {"switch": "r1", "nodes": "n[4-7]", "speed": "100Gbit/s"},
        {"switch": "top", "switches": "r0,r1"},
    ]
    told = {"schema": "p3s.topology", "schema_version": 1, "kind": "tree", "tree": tree}
    (root / "topology.json").write_text(json.dumps({**told, "latency": "100ns"}))


def _replayed(root: Path) -> None:
    """What a program of a replay measured, and where its processes ran."""
    from p3s.replay.engine.results import Place, ProgramResult, save_result

    rng = np.random.default_rng(2)
    passes, events, messages = 4, 6, 3
    result = ProgramResult(
        passes,
        rng.random((passes, 4)),
        np.arange(events),
        rng.random((passes, events)),
        rng.random(events),
        rng.random((passes, messages)),
        rng.random((passes, messages)),
        10.0,
        rng.random(5),
        (Place("n0", "x", (0, 1)),) * 2,
    )
    save_result(root / "result.npz", result)


def _weak(root: Path) -> None:
    told = json.loads((root / "study" / "prediction.json").read_bytes())
    told |= {"schema": "p3s.weak", "weak": "size = 100 n", "base_n": 2}
    write_json(root / "weak-size.json", told)


def _threads(root: Path) -> None:
    """Laws of threads, messages over threads, times over both, advice."""
    from p3s.base.progress import Progress
    from p3s.machine.topology.inside import read_node
    from p3s.methods.threads import predicting as teams
    from p3s.methods.threads.advise.stage import Asked, advise_threads
    from p3s.pipeline import parameters as nodes
    from p3s.pipeline.parameters import PredictionRange
    from p3s.pipeline.prediction import request_of
    from p3s.predict import surface
    from p3s.replay.settings import ReplaySettings

    study, node = put_threads(root / "threads", Hybrid()), read_node("2x8")
    request, before = request_of("auto", "", True, ReplaySettings()), teams.cores
    teams.cores = nodes.cores = lambda: 8
    try:
        found = teams.surface(study, PredictionRange([16], [1, 2], node=node), request, Progress())
        surface.write(study.root, found)
        told = advise_threads(study.root, Asked(nodes=2, cores=32, node=node), request, Progress())
    finally:
        teams.cores = nodes.cores = before
    write_advice(
        study.root,
        AdviceFile("", node, 2, 32, told.advice, told.cells, told.next, "", told.reasons),
    )


def _family(root: Path) -> None:
    """Laws of a parameter over two of its values, and a third that has one count only."""
    from p3s.pipeline.stages import build_family

    study = Study.create(root / "family", ["mpiexec", "-n", "{np}", "./a", "{size}"])
    sizes = (101, 203, 301)
    study.update(parameters={"size": [str(size) for size in sizes]})
    for size in sizes:
        at = study.at_dir(f"size={size}")
        made, _ = timed_study.put_study(at, corpus.jacobi2d(size, size, 3), (4, 6, 9), "cpu_ns")
        for n in (4, 6, 9):
            put_run(made, n)
    build_family(study.root)


def _tree(root: Path) -> None:
    from p3s.methods.baseline.trees.grow import grow
    from p3s.methods.baseline.trees.store import StoredTree, save

    some = hybrid_machine.workloads(hybrid_machine.TRAINING["nb"])[::8]
    runs = hybrid_machine.runs("nb", some, 0.02, 0)
    tree = grow(runs, hybrid_machine.EXPRESSION["nb"], hybrid_machine.VARIABLES)
    save(root / "tree.json", StoredTree(tree, 1, workers=(2.0,), threads=(1.0, 2.0)))


def _baseline(root: Path) -> None:
    from p3s.methods.baseline.model import fit_series
    from p3s.methods.baseline.times import RunTime, series_of

    runs = [RunTime(n, 100.0 / n + 0.1 + 0.01 * r, r) for n in (2, 4, 8, 16, 32) for r in (0, 1)]
    fit_series(series_of(runs)).save(root / "baseline.json")
    rows = [{"n": run.n, "repeat": run.repeat, "seconds": run.seconds} for run in runs]
    (root / "times.json").write_text(json.dumps(rows))
    lines = [f"{row['n']},{row['repeat']},{row['seconds']}" for row in rows]
    (root / "times.csv").write_text("\n".join(["n,repeat,seconds", *lines]) + "\n")


def _learned(root: Path) -> None:
    """A communication model of one split, without a library that learns."""
    from p3s.methods.placement.learned import Card, LearnedModel, Widening, save
    from p3s.methods.placement.lines import Line
    from p3s.methods.placement.trees import Trees

    ints, reals = np.array([-1, -1]), np.array([1.0, 2.0])
    feature, left, right = (np.array([k, *ints]) for k in range(3))
    threshold, value, leaf = np.array([0.5, 0, 0]), np.array([0.0, *reals]), np.array([0])
    made = Trees(feature, threshold, left, right, value, leaf, -5.0, 0.1)
    line = Line((("ND",), ("n",)), (1.0, 2.0))
    ends = np.array([1.0, 2.0]), np.array([100.0, 64.0])
    card = Card("a", "b", 10, 2)
    save(
        root / "learned.json",
        LearnedModel(card, ("ND", "n"), *ends, Widening(), line, None, made, made, made),
    )


def _placement(root: Path) -> None:
    """Placements of a ring, some of them simulated."""
    from replay_patterns import ring

    from p3s.base.progress import Progress
    from p3s.machine.topology.read import read_fabric
    from p3s.methods.placement.allocation import allocation
    from p3s.methods.placement.ranked.job import Job
    from p3s.methods.placement.ranked.ranking import Search, placements
    from p3s.methods.placement.ranked.types import save
    from p3s.predict.estimators.messages import measured_messages
    from p3s.predict.estimators.settings import Setting

    study = Study.create(root / "placed", ["mpiexec", "-n", "{np}", "p"])
    trace = ring(8, nbytes=2000)
    trace.write(study.scaled_dir(trace.n))
    found = {**network(10_000, 10, ["a", "b"]), "inside": network(500, 0.1, ["a", "a"])}
    replace(synthetic(), network=found, facts=Facts(cores=2)).save(study.root / "machine.json")
    messages = measured_messages(traces_of(study), None, Setting())
    fabric, where = read_fabric("fat-tree:2,1,4", 4), allocation(4, 2)
    job = Job(traces_of(study), trace.n, where, fabric, True, messages)
    made = placements(job, (4, 2), None, Search(number=6, simulated=2), Progress())
    save(study.root, made)


def _training(root: Path) -> None:
    """Measured phases of a machine."""
    from p3s.methods.placement.training import dataset

    folder = root / "training"
    folder.mkdir()
    facts = {"machine": "m", "network": "n", "nodes": [0, 1], "hosts": ["a", "b"]}
    settings = {"ranks": 2, "slots": 1, "phases": 10, "seed": 0, "budget_s": None}
    head = {"schema": "p3s.training", "schema_version": 2}
    write_json(folder / "campaign.json", {**head, **facts, "settings": settings})
    probes = [(d, b, 9, 1e-4) for d in (0, 1) for b in (0, 9)]
    made = dataset.ProbeFile(tuple(dataset.ProbeRow(*row) for row in probes))
    write_json(folder / "probes.json", dataset.PROBES.data(made))
    features = {"ND": 64.0, "n": 2.0}
    rows = tuple(dataset.PhaseRow(k, 3, 64, 0.0, 5, 1e-3, features) for k in range(3))
    execution = dataset.ExecutionFile(0, (0, 1), 1, rows)
    write_json(folder / "execution-0000.json", dataset.EXECUTION.data(execution))


def _texts(root: Path) -> None:
    """What people write: ranks on hosts, algorithms of collectives, switches; and a capture."""
    (root / "ranks.txt").write_text(
        "".join(f"rank {r}=node{r // 2} slot={r % 2}\n" for r in range(8))
    )
    (root / "collectives.json").write_text(
        '{"allreduce": "ring", "bcast": [{"algorithm": "binomial"}]}'
    )
    (root / "collectives.toml").write_text('allreduce = "ring"\n')
    (root / "topology.conf").write_text(
        "SwitchName=r0 Nodes=n[0-3]\nSwitchName=r1 Nodes=n[4-7]\nSwitchName=top Switches=r[0-1]\n"
    )
    run = root / "run"
    run.mkdir()
    for rank in range(2):
        calls = [("Send", {"peer": 1}), ("Allreduce",), ("Finalize",)]
        writer = rank_file(rank, 2, [calls[1], calls[2]])
        writer.end()
        (run / f"rank-{rank:06d}.p3t").write_bytes(writer.data())


def _archive(root: Path) -> None:
    """What another tracer writes, where the library for it is there."""
    if importlib.util.find_spec("otf2") is None:
        return
    from made_runs import call, run_of, world

    from p3s.formats.exported import ExportResult
    from p3s.formats.otf2.archive import write_archive
    from p3s.formats.otf2.library import library
    from p3s.formats.run import Run

    ranks = [
        [
            (call("Init"), -100, 100),
            (call("Irecv", 1 - rank, 64, 7), 10, 1),
            (call("Isend", 1 - rank, 64, 7), 12, 1),
            (call("Waitall", comm=-1, nbytes=2), 20, 30),
            (call("Bcast", nbytes=100, root=0), 60, 5),
            (call("Finalize"), 99, 0),
        ]
        for rank in range(2)
    ]
    run = run_of(ranks, [[(3, 1), (3, 2)]] * 2, (world(2),))
    (root / "otf2").mkdir()
    write_archive(library(), Run(run), root / "otf2", ExportResult("otf2", 2, root / "otf2"))
