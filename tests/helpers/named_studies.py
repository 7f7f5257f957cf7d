"""Studies by name, each made once: of which transcripts of commands are, and others copies.

A maker gets an empty folder and returns the place that the name stands for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import hybrid_machine
import timed_study as ts
from capture_writer import put_run_json
from commands import cli
from machines import synthetic
from made_predictions import made_prediction, reason
from report_studies import put_study
from sketch import recv, send, sketched
from threads_study import put_threads

from p3s.base.study import Study, write_json
from p3s.costs.fit import fit
from p3s.costs.gather import measured_at
from p3s.costs.types import COMPUTE
from p3s.methods.baseline.trees.types import Table
from p3s.model.stage import load as load_model
from p3s.pipeline.saved import PredictionFile

#: Messages between two hosts: 1 us, 0.5 ns per byte.
NETWORK: dict[str, Any] = {
    "hosts": ["n0", "n1"],
    "mpi": "openmpi 4.1.4",
    "eager_bytes": 4000,
    "ranges": [],
    "sizes": {
        "bytes": [1, 1000, 100_000],
        "one_way_ns": [1000.0, 1500.0, 51_000.0],
        "one_way_median_ns": [1000.0, 1500.0, 51_000.0],
        "send_ns": [100.0, 200.0, 40_000.0],
        "receive_ns": [80.0, 130.0, None],
        "gap_ns": [100.0, 300.0, 40_000.0],
    },
}
TRAINING = hybrid_machine.workloads(hybrid_machine.TRAINING["nb"])[::3]
#: What grows a tree of runs with a master process beside the workers.
FIT_TREE = ("baseline", "fit", "--family", "tree", "--workers", "n-1")


def plain(root: Path) -> Path:
    """Return a study without runs and parameters."""
    return Study.create(root / "study", ["mpiexec", "-n", "{np}", "true"]).root


def family(root: Path) -> Path:
    """Return a study with a parameter and no runs."""
    study = Study.create(root / "study", ["mpiexec", "-n", "{np}", "true", "{size}"])
    study.update(parameters={"size": []})
    return study.root


def costed(root: Path) -> Path:
    """Return a study of a ring with an allreduce at 2, 4 and 8 processes, and its costs.

    Its work is in instructions that cost 0.3 ns; nothing is replayed.
    """
    study, tables = ts.put_study(root / "study", ts.sweeps(1 << 20, 10), (2, 4, 8))
    model = load_model(study.root)
    found = [measured_at(model, ts.times_of(t, 0.3 * t.segments[:, 4], noise=0.01)) for t in tables]
    write_json(study.compute_path, COMPUTE.data(fit(model, found, [])))
    return study.root


def scaled(root: Path) -> Path:
    """Return the same with scaled traces at 8 and 16 processes."""
    place = costed(root)
    cli(f"scale {place} -n 8,16", code=(0, 3))
    return place


def put_machine(path: Path, **network: Any) -> None:
    """Write a machine file with messages; network: what of them differs."""
    replace(synthetic(name="box"), network={**NETWORK, **network}).save(path)


def machines(root: Path) -> Path:
    """Return a folder with a machine file of two hosts and one of a single host."""
    put_machine(root / "two.json")
    put_machine(root / "one.json", hosts=["n0", "n0"])
    return root


def networked(root: Path) -> Path:
    """Return a study with costs and a machine file of two hosts in it."""
    place = costed(root)
    put_machine(place / "machine.json")
    return place


def predicted(root: Path) -> Path:
    """Return a study with a prediction."""
    return put_study(root / "study", made_prediction()).root


def runs(root: Path) -> Path:
    """Return a study with runs at 2 and 3 processes and a partial one at 5."""
    made = Study.create(root / "study", ["mpiexec", "-n", "{np}", "./a"])
    for n, status in ((2, "complete"), (3, "complete"), (5, "partial")):
        folder = made.runs_dir(n)
        folder.mkdir(parents=True)
        head = {"schema": "p3s.run", "schema_version": 1}
        write_json(folder / "run.json", {**head, "np": n, "status": status, "wall_s": 1.0})
        each = ([send((r + 1) % n), recv((r - 1) % n)] for r in range(n))
        sketched(folder, *each, ends=status == "complete")
    return made.root


def ring(root: Path) -> Path:
    """Return a run of two ranks that send to each other."""
    from test_cli_captures import messages

    for rank in (0, 1):
        messages(rank).save(root)
    return root


def iterated(root: Path) -> Path:
    """Return a study of a ring with a sum in each of 40 turns, at 2 and 4 ranks."""
    from test_bad_captures import good

    made = Study.create(root / "study", ["mpiexec", "-n", "{np}", "./app"])
    for n in (2, 4):
        folder = made.runs_dir(n)
        folder.mkdir(parents=True)
        good(folder, n, turns=40)
        put_run_json(folder, n)
    made.update()
    cli(f"phases {made.root}")
    return made.root


def threads(root: Path) -> Path:
    """Return a study at 1, 2 and 4 threads."""
    place = put_threads(root / "study").root
    cli(f"model {place}", code=(0, 3))
    return place


def times(root: Path) -> Path:
    """Return a folder with run times."""
    text = "n,repeat,seconds\n4,0,26\n4,1,25.5\n8,0,13.5\n16,0,7.25\n32,0,4.125\n"
    (root / "times.csv").write_text(text)
    return root


def written(path: Path, table: Table, more: str = "", cells: str = "") -> Path:
    """Write runs with a master process beside the workers, and their computation."""
    c = table.columns
    k, t = c["workers"], c["threads"].astype(int)
    exact, computed = hybrid_machine.times("nb", c["workload"], k, t)
    rows = [f"n,threads,workload,seconds,t_c{more}"]
    for i in range(len(table)):
        seconds, part = float(table.y[i]), float(computed[i] * table.y[i] / exact[i])
        rows.append(f"{k[i] + 1:g},{t[i]},{c['workload'][i]:g},{seconds!r},{part!r}{cells}")
    path.write_text("\n".join(rows) + "\n")
    return path


def trees(root: Path) -> Path:
    """Return a folder with runs, those of fresh workloads, noisy ones, and a tree of them."""
    fresh = hybrid_machine.workloads(hybrid_machine.VALIDATION["nb"])[2:-8:6]
    train = written(root / "train.csv", hybrid_machine.runs("nb", TRAINING, 0.02, 0))
    written(root / "fresh.csv", hybrid_machine.runs("nb", fresh, 0.02, 1))
    written(root / "noisy.csv", hybrid_machine.runs("nb", fresh, 0.5, 1))
    expression = ("--expression", hybrid_machine.EXPRESSION["nb"])
    cli(*FIT_TREE, train, "-o", root / "tree.json", *expression)
    return root


#: Columns of a table of iterations.
ITERATIONS = (
    "app,machine,run,iteration,W,processes,K,T,affinity,T_iter,mu_m,T_c,send_m,recv_m,mu,region,"
    "recv,send\n"
)


def put_iterations(path: Path, *runs: tuple[int, int, int, float, float]) -> None:
    """Write runs of six iterations: (W, K, T, seconds of a worker, factor of the first)."""
    lines = [ITERATIONS]
    for number, (w, k, t, mu, slow) in enumerate(runs):
        each = [mu * (slow if i == 0 else 1.0) for i in range(k)]
        for i in range(6):
            told = ";".join(str(m) for m in each)
            total = max(each) + (0.5 if i == 0 else 0.02) + 0.001 * i
            lines.append(
                f"heat,n0,{number},{i},{w},{k + 1},{k},{t},close,{total},0.001,{sum(each)},0.01,"
                f"0.01,{told},{told},{told},{told}\n"
            )
    path.write_text("".join(lines))


def balanced(root: Path) -> Path:
    """Return a folder with tables of iterations: of even runs, two alike, uneven ones, and none."""
    even = [(w, k, t, w / (k * t), 1.0) for w in (10, 20) for k in (1, 2) for t in (1, 2)]
    put_iterations(root / "even.csv", *even, (10, 2, 1, 6.0, 1.0))
    put_iterations(root / "alike.csv", (10, 2, 1, 6.0, 1.0), (10, 2, 1, 5.0, 1.0))
    put_iterations(root / "uneven.csv", (10, 4, 1, 1.0, 1.0), (10, 4, 2, 1.0, 1.3))
    put_iterations(root / "empty.csv")
    return root


def at_512(**row: Any) -> PredictionFile:
    """Return a made prediction; ``row``: changes to what it says of 512 processes."""
    data = made_prediction((4, 16, 64, 512))
    data["counts"][-1].update(row)
    return PredictionFile.of(data)


#: 10 s at 512 with an interval of 8 to 12.5 s; 64 times the processes, 16 times as fast.
TEN = at_512(
    time_s=10.0,
    low_s=8.0,
    high_s=12.5,
    speedup=16.0,
    speedup_low=12.8,
    speedup_high=20.0,
    efficiency=0.125,
    cost_core_h=512 * 10 / 3600,
    waiting_s=2.5,
)


def doubted(made: PredictionFile, *reasons: Any) -> PredictionFile:
    """Return a prediction with more reasons not to trust it."""
    return PredictionFile.of({**made.data, "reasons": [*made.data["reasons"], *reasons]})


def gated(root: Path) -> Path:
    """Return a folder with predictions: ten seconds at 512, and some that are not to be trusted."""
    shared = PredictionFile.of(made_prediction(representative=False))
    no_rule = reason("no-rule", "20 % of the program has no rule", "trace another count")
    cores = reason("shared-cores", "at 4 processes ranks shared cores", "", False)
    for name, made in (
        ("ten", TEN),
        ("doubtful", doubted(TEN, no_rule, cores)),
        ("shared", shared),
        ("both", doubted(shared, reason("superlinear", "the efficiency is 300 %"))),
    ):
        made.save(root / f"{name}.json")
    return root


def timed(by_count: dict[int, float], **changes: Any) -> PredictionFile:
    """Return a prediction with these run times, each within 10 %."""
    data = made_prediction(tuple(by_count), measured=(), **changes)
    first, base = next(iter(by_count.items()))
    for row in data["counts"]:
        time = by_count[row["n"]]
        row.update(time_s=time, low_s=0.9 * time, high_s=1.1 * time)
        for key, part in (("speedup", 1.0), ("speedup_low", 1.1), ("speedup_high", 0.9)):
            row[key] = base / (part * time) if time else 0.0
        row["efficiency"] = row["speedup"] * first / row["n"]
    return PredictionFile.of(data)


OLD = timed({4: 100.0, 16: 30.0, 64: 10.0, 512: 4.0})
NEW = timed({4: 120.0, 16: 31.0, 64: 8.0, 512: 3.0})


def compared(root: Path) -> Path:
    """Return a folder with studies that are predicted: old, new, and new with a doubt."""
    doubtful = doubted(NEW, reason("extrapolated", "too far"))
    for name, made in (("old", OLD), ("new", NEW), ("doubtful", doubtful)):
        study = Study.create(root / name, ["mpiexec", "-n", "{np}", f"./{name}"])
        made.save(study.prediction_path)
    return root


STUDIES: dict[str, Callable[[Path], Path]] = {
    "PLAIN": plain,
    "FAMILY": family,
    "COSTED": costed,
    "SCALED": scaled,
    "NETWORKED": networked,
    "MACHINES": machines,
    "PREDICTED": predicted,
    "RUNS": runs,
    "RING": ring,
    "ITERATED": iterated,
    "THREADS": threads,
    "TIMES": times,
    "TREES": trees,
    "BALANCED": balanced,
    "GATED": gated,
    "COMPARED": compared,
}
