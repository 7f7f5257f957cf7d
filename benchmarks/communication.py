"""Learn simulated machines, predict traffic that they have not seen, compare with SimGrid.

    python benchmarks/communication.py [--work DIR] [--only fat-tree,torus,dragonfly,ranking]

Machines of 64 nodes (SimGrid): fat tree with 8 nodes a leaf and half the bandwidth above, torus of
4 x 4 x 4, dragonfly of 4 groups of 4 switches. Trained on random pairs of up to 32 ranks, asked
about phases of applications on up to 64 and 256 ranks, placed in blocks and at random
(docs/accuracy.md, "Learned communication"). Ranking: 84 placements of three patterns on the
simulated torus, 56 of them trained. What was measured is kept in DIR; results are in
DIR/communication.json.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
# This directory has a replay.py, which must not be taken for the package.
sys.path = [path for path in sys.path if Path(path).resolve() != HERE]
sys.path += [str(HERE.parent), str(HERE / "sources")]

from traffic_patterns import (  # noqa: E402
    all_to_all_in_rows,
    around,
    at_faces,
    at_faces_and_corners,
    fixed_halo,
    halo,
    hpcg,
    lulesh,
    qcd,
)

from p3s.machine.topology.fabric import Fabric  # noqa: E402
from p3s.machine.topology.read import read_fabric  # noqa: E402
from p3s.methods.placement.allocation import allocation  # noqa: E402
from p3s.methods.placement.candidates import candidates  # noqa: E402
from p3s.methods.placement.costs import Phase, network_id, row_of  # noqa: E402
from p3s.methods.placement.learned import LearnedModel, columns, learn  # noqa: E402
from p3s.methods.placement.links import link_features  # noqa: E402
from p3s.methods.placement.phases import Traffic  # noqa: E402
from p3s.methods.placement.ranking import agreement, rcc  # noqa: E402
from p3s.methods.placement.simulated import SIMULATED, simulated_features  # noqa: E402
from p3s.methods.placement.training import train as training  # noqa: E402
from p3s.methods.placement.training.campaign import Settings  # noqa: E402
from p3s.methods.placement.training.costs import hockney_of, network_of, seconds_of  # noqa: E402
from p3s.methods.placement.training.dataset import Dataset, DatasetHeader, measure_dataset  # noqa: E402
from p3s.methods.placement.training.jobs import (  # noqa: E402
    Job,
    SimulatedMachine,
    hosts_of,
    measure,
    on_processes,
)
from p3s.program.mapping import rank_map  # noqa: E402
from p3s.simulate.network import Network  # noqa: E402

NODES = 64
#: Name: the network for P3S, and SimGrid's name and parameters of its form.
MACHINES = {
    "fat-tree": ("fat-tree:8,4,8@10Gbit/s", "FAT_TREE", "2;8,8;1,4;1,1"),
    "torus": ("torus:4x4x4@10Gbit/s", "TORUS", "4,4,4"),
    "dragonfly": ("dragonfly:4,4,4@10Gbit/s", "DRAGONFLY", "4,1;1,1;4,1;4"),
}
TRAINED = Settings(ranks=32, slots=4, phases=1500)
#: Nodes and ranks of a node of what is asked.
SHAPES = (
    (8, 1), (16, 1), (27, 1), (64, 1), (16, 2), (32, 2), (64, 2), (16, 4), (32, 4), (54, 4),
    (64, 4), (48, 3),
)  # fmt: skip
FABRICS = {name: read_fabric(told, NODES) for name, (told, _, _) in MACHINES.items()}
SPLITS, PLACEMENTS, TAUGHT = 10, 84, 56


def platform(work: Path, name: str) -> SimulatedMachine:
    """Write the description of a machine for SimGrid."""
    _, form, parameters = MACHINES[name]
    path = work / f"{name}.xml"
    path.write_text(
        '<?xml version="1.0"?>\n'
        '<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">\n'
        f'<platform version="4.1">\n  <cluster id="cluster" prefix="n-" suffix="" radical="0-63"'
        f' speed="1Gf" bw="10Gbps" lat="1us" topology="{form}" topo_parameters="{parameters}"'
        ' loopback_bw="40Gbps" loopback_lat="200ns"/>\n</platform>\n'
    )
    return SimulatedMachine(path)


def grid(ranks: int, dims: int) -> tuple[int, ...]:
    """Return a process grid, as cubic as the largest factors first make it."""
    extents, left, factor = [1] * dims, ranks, 2
    factors = []
    while left > 1:
        while left % factor == 0:
            factors.append(factor)
            left //= factor
        factor += 1
    for each in reversed(factors):
        extents[extents.index(min(extents))] *= each
    return tuple(sorted(extents, reverse=True))


def unseen(ranks: int) -> Iterator[tuple[str, Traffic]]:
    """Yield phases of applications."""
    for edge in (64, 256, 1024):
        yield "halo 3-D", halo(grid(ranks, 3), (edge,) * 3)
    for edge in (48, 96):
        yield "halo 4-D", halo(grid(ranks, 4), (edge,) * 4)
    for edge in (64, 512):
        yield "27-point", halo(grid(ranks, 3), (edge,) * 3, around(3))
    for nbytes in (64, 8192, 1 << 18):
        yield "halo 2-D", fixed_halo(grid(ranks, 2), at_faces(2), nbytes)
    for nbytes in (64, 4096, 65536):
        yield "all-to-all in rows", all_to_all_in_rows(grid(ranks, 2), 1, nbytes)
    cut = grid(ranks, 4)
    yield "QCD", qcd(cut, tuple(8 * extent for extent in cut))
    if round(ranks ** (1 / 3)) ** 3 == ranks:
        for side in (8, 40):
            for part, sent in enumerate(lulesh(ranks, side), 1):
                yield f"LULESH {part}", sent
        yield "HPCG", hpcg(ranks, 16 * round(ranks ** (1 / 3)))


@dataclass(frozen=True)
class Asked:
    """A phase that was not trained on, and what SimGrid says."""

    pattern: str
    phase: Phase
    seconds: float


def asked(work: Path, name: str, machine: SimulatedMachine) -> list[Asked]:
    """Return the phases of all shapes, in blocks and at random, measured."""
    rng, found = np.random.default_rng(7), []
    for nodes, slots in SHAPES:
        there = np.arange(nodes) if rng.random() < 0.5 else np.sort(rng.permutation(NODES)[:nodes])
        names = tuple(f"+n{node}" for node in there.tolist())
        for kind in ("block", "random"):
            node_of = np.repeat(np.arange(nodes), slots)
            placed = rank_map(kind, node_of if kind == "block" else rng.permutation(node_of), names)
            phases = list(unseen(nodes * slots))
            hosts = hosts_of(placed, [f"n-{node}" for node in there.tolist()])
            sent = {k: on_processes(x, placed) for k, (_, x) in enumerate(phases)}
            job = Job(hosts, sent, machine.repeats)
            seconds = measure(job, machine, work / f"{name}.asked" / f"{nodes}-{slots}-{kind}")
            found += [Asked(what, (x, placed), seconds[k]) for k, (what, x) in enumerate(phases)]
    return found


def data_of(work: Path, name: str, machine: SimulatedMachine) -> Dataset:
    """Return the phases that a machine is learned from."""
    fabric, hosts = FABRICS[name], tuple(f"n-{node}" for node in range(NODES))
    told = DatasetHeader(name, network_id(fabric), tuple(range(NODES)), hosts, TRAINED)
    return measure_dataset(work / f"{name}.phases", told, fabric, machine)


def whole(work: Path, name: str) -> dict[str, Any]:
    """Return the errors of all ways on phases that were not trained on."""
    fabric, machine = FABRICS[name], platform(work, name)
    clock = [time.perf_counter()]
    data = data_of(work, name, machine)
    clock.append(time.perf_counter())
    network = network_of(data.probes, name)
    model = training.train(data, fabric, name, network_id(fabric))
    clock.append(time.perf_counter())
    truth = asked(work, name, machine)
    t = np.array([each.seconds for each in truth])
    ranks = np.array([each.phase[1].n for each in truth])
    rows = training.with_simulation(data, fabric, network)
    new = [row_of(each.phase, fabric, network) for each in truth]
    result: dict[str, Any] = {
        "phases": len(t),
        "trained": len(rows),
        "used": model.card.features,
        "left_out": {code: found.mmre for code, found in model.card.compared.items()},
        "seconds": {"measuring": clock[1] - clock[0], "training": clock[2] - clock[1]},
        "ways": {},
    }
    for code, seconds, ends in _ways(data, fabric, network, rows, truth, new, model):
        inside = None if ends is None else (ends[0] <= t) & (t <= ends[1])
        parts = {"all": ranks > 0, "64": ranks <= 64, "256": ranks > 64}
        found: dict[str, Any] = {
            part: _scores(t[at], seconds[at], None if inside is None else inside[at])
            for part, at in parts.items()
        }
        patterns = np.array([each.pattern for each in truth])
        found["patterns"] = {
            str(each): agreement(t[patterns == each], seconds[patterns == each]).mmre
            for each in np.unique(patterns)
        }
        result["ways"][code] = found
        _print(name, code, found)
    return result


Way = tuple[str, np.ndarray, tuple[np.ndarray, np.ndarray] | None]


def _ways(
    data: Dataset,
    fabric: Fabric,
    network: Network,
    rows: list,
    truth: list[Asked],
    new: list,
    model: LearnedModel,
) -> Iterator[Way]:
    """Yield what each way says of the phases; the ends of intervals of class C and of the model."""
    phases = [each.phase for each in truth]
    simple = replace(hockney_of(data.probes, network), gamma=0.0)
    found = np.array([seconds_of(simple, *phase, fabric) for phase in phases])
    yield training.ALPHA_BETA, found, None
    yield training.MAX_BYTES, _max_bytes(rows, data.seconds, new), None
    yield training.SIMULATION, np.array([row[SIMULATED] for row in new]), None
    for code, way in training.ways(list(data.rows[0])).items():
        options = training.differences(rows)
        if code == model.card.features:
            found = model.predict(new)
        else:
            options |= {} if code == training.C else {"apart": (), "beyond": ()}
            made = learn(rows, data.seconds, data.execution, way, **options)
            found = made.predict(new)
        shown = code in (training.C, model.card.features)
        yield code, found.seconds, (found.low, found.high) if shown else None


def _max_bytes(rows: list, t: np.ndarray, new: list) -> np.ndarray:
    name = "max bytes"
    old, asked_of = ({name: np.array([row[name] for row in part])} for part in (rows, new))
    return training.fit_nonnegative(((), (name,)), old, t).seconds(asked_of)


def _scores(t: np.ndarray, seconds: np.ndarray, held: np.ndarray | None) -> dict[str, float]:
    found = {name: float(x) for name, x in asdict(agreement(t, seconds)).items()}
    return found if held is None else {**found, "held": float(held.mean())}


def _print(name: str, code: str, parts: dict[str, Any]) -> None:
    found = parts["all"]
    held = f"  intervals hold {100 * found['held']:.0f} %" if "held" in found else ""
    print(
        f"{name:10} {code:10} mean error {found['mmre']:.3f} (to 64: {parts['64']['mmre']:.3f}, "
        f"to 256: {parts['256']['mmre']:.3f})  in order {found['rcc']:.3f}{held}",
        flush=True,
    )


# ---- ranking of placements -------------------------------------------------------------------


def kernels(cut2: tuple[int, ...], cut3: tuple[int, ...], nbytes: int) -> dict[str, Traffic]:
    """Return the three patterns of SC13, of as many ranks as the grids have."""
    row = max(range(3), key=lambda d: cut3[d])
    return {
        "halo 2-D": fixed_halo(cut2, at_faces(2), nbytes),
        "halo 3-D": fixed_halo(cut3, at_faces_and_corners(3), nbytes),
        "sub-all-to-all": all_to_all_in_rows(cut3, row, nbytes),
    }


def regret(measured: np.ndarray, predicted: np.ndarray) -> float:
    """Return the time of the one that is predicted to be the fastest, over that of the fastest."""
    return float(measured[int(predicted.argmin())] / measured.min())


def _plain(seconds: np.ndarray, y: np.ndarray) -> tuple[float, int]:
    """Return the same of times that were not learned from the others."""
    tests = [np.random.default_rng(seed).permutation(len(y))[TAUGHT:] for seed in range(SPLITS)]
    order = [rcc(y[other], seconds[other]) for other in tests]
    good = sum(regret(y[other], seconds[other]) <= 1.05 for other in tests)
    return float(np.mean(order)), int(good)


def _splits(rows: list, y: np.ndarray, names: tuple[str, ...]) -> tuple[float, int]:
    """Return the mean order of 28 placements that were left out, and how many splits chose well."""
    from sklearn.ensemble import ExtraTreesRegressor

    x, order, good = columns(rows, names), [], 0
    for seed in range(SPLITS):
        mixed = np.random.default_rng(seed).permutation(len(y))
        one, other = mixed[:TAUGHT], mixed[TAUGHT:]
        forest = ExtraTreesRegressor(100, random_state=seed).fit(x[one], y[one])
        found = forest.predict(x[other])
        order.append(rcc(y[other], found))
        good += regret(y[other], found) <= 1.05
    return float(np.mean(order)), int(good)


def ranking(work: Path) -> dict[str, Any]:
    """Return how well sets of features order unseen placements on the simulated torus."""
    machine, fabric, slots = platform(work, "torus"), FABRICS["torus"], 4
    where, result = allocation(NODES, slots), {}
    hosts = [f"n-{node}" for node in range(NODES)]
    network = network_of(data_of(work, "torus", machine).probes, "torus")
    for name, sent in kernels((16, 16), (4, 4, 16), 1 << 16).items():
        cut = (16, 16) if name == "halo 2-D" else (4, 4, 16)
        placements = candidates(NODES * slots, where, grid=cut, fabric=fabric)[:PLACEMENTS]
        job = Job(
            hosts_of(placements[0], hosts),
            {k: on_processes(sent, placed) for k, placed in enumerate(placements)},
            machine.repeats,
        )
        seconds = measure(job, machine, work / "torus.ranking" / name.replace(" ", "-"))
        y = np.array([seconds[k] for k in range(len(placements))])
        rows = [link_features(sent, placed, fabric) for placed in placements]
        times = [simulated_features(sent, placed, fabric, network) for placed in placements]
        direct = [each[SIMULATED] for each in times]
        result[name] = {"slowest": float(y.max() / y.min())}
        for code, found in (
            ("max bytes", _splits(rows, y, ("max bytes",))),
            ("simulation", _plain(np.array(direct), y)),
        ):
            result[name][code] = dict(zip(("order", "good"), found, strict=True))
        print(name, json.dumps(result[name]), flush=True)
    return result


def main() -> None:
    """Measure, learn, compare; write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, default=Path("communication"))
    parser.add_argument("--only", default=",".join([*MACHINES, "ranking"]))
    told = parser.parse_args()
    told.work.mkdir(parents=True, exist_ok=True)
    path = told.work / "communication.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    for part in told.only.split(","):
        results[part] = ranking(told.work) if part == "ranking" else whole(told.work, part)
        path.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
