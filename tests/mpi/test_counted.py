"""A signature is a trace of all calls: what it only counted is put back in its place."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from commands import cli
from paths import EXAMPLES
from test_signature_run import INNER, NP, OUTER, nest_of, sample
from tracer_helpers import PROGRAMS, compile_c, the_mpi, trace, usable_mpi

from p3s.base.settings import traces_of
from p3s.base.study import Study
from p3s.capture import RunTrace, read_file
from p3s.capture.recording_plan import Enough
from p3s.model.compare import predicted_tallies
from p3s.model.evaluate import generate, model_grid, phase_weight
from p3s.model.holdout import build_model
from p3s.signature.store import load_table

pytestmark = [pytest.mark.mpi, pytest.mark.skipif(the_mpi() is None, reason="no usable MPI")]


def calls(run: RunTrace, rank: int) -> list[tuple[object, ...]]:
    """Return all that a rank's calls say, in their order."""
    return [
        (c.op, run.sites[c.site].key, c.peer, c.tag, c.bytes, c.elem_bytes, c.root)
        for c in map(run.calls.__getitem__, run.ranks[rank].call.tolist())
    ]


def test_what_was_counted_is_put_back(tmp_path: Path) -> None:
    program = compile_c(PROGRAMS / "turns.c", tmp_path / "turns")
    words = [str(program), str(OUTER), str(INNER)]
    full = trace(words, NP, tmp_path / "full")
    sample(words, NP, tmp_path / "few", nest_of(full, Enough(early=1, smallest=2, largest=2)))
    for rank in range(NP):
        file = tmp_path / "few" / f"rank-{rank:06d}.p3t"
        recorded, whole = (read_file(file, whole=each) for each in (False, True))
        one, few = whole.ranks[rank], recorded.ranks[rank]
        assert calls(whole, rank) == calls(full, rank)
        assert len(few.call) < len(one.call) / 4 and not one.counted_events
        assert one.complete and one.gap is None
        counted = [sum(row[k] for row in few.counted.values()) for k in (1, 2)]
        assert one.work.sum() == few.work.sum() + counted[1]
        assert one.elapsed_ns.sum() == pytest.approx(few.elapsed_ns.sum() + counted[0], rel=0.05)
        assert (one.start_ns[1:] >= (one.start_ns + one.elapsed_ns)[:-1] - 2000).all()


#: Example, its arguments, counts, and a count at which the models are compared.
EXAMPLES_RUN = [
    ("jacobi2d", "--nx 30 --ny 30 --iterations 300 --check 7", (4, 6, 9), 25),
    ("cg", "--n 120 --nonzeros 6 --iterations 12", (4, 8, 16), 64),
    ("halo3d", "--nx 12 --ny 12 --nz 12 --iterations 150", (8, 12, 18), 27),
    ("wavefront", "--nx 18 --ny 18 --nz 16 --iterations 40", (4, 6, 9), 64),
]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("examples")
    for name, *_ in EXAMPLES_RUN:
        compile_c(EXAMPLES / f"{name}.c", folder / name, f"-I{EXAMPLES}", "-std=gnu11", "-lm")
    return folder


def same_model(study: Path, other: Path, n: int) -> bool:
    """Tell whether the models of two studies have the same messages and weights at a count."""
    models = []
    for root in (study, other):
        counts = traces_of(Study(root)).counts
        model = build_model([load_table(root, count) for count in counts])
        grid = model_grid(model, n)
        weights = [phase_weight(phase, grid) for phase in model.phases]
        models.append((predicted_tallies(model, generate(model, n))[:2], weights))
    return models[0] == models[1]


@pytest.mark.parametrize(("name", "words", "counts", "n"), EXAMPLES_RUN)
def test_models_of_signatures_are_those_of_full_traces(
    programs: Path, tmp_path: Path, name: str, words: str, counts: tuple[int, ...], n: int
) -> None:
    command = ["--", usable_mpi().mpiexec, "-n", "{np}", str(programs / name), *words.split()]
    full, few, ended = (tmp_path / each for each in ("full", "few", "ended"))
    first, *others = map(str, counts)
    cli(f"characterize -n {','.join(map(str, counts))} --no-repeat -o {full}", *command)
    cli(f"characterize -n {first} --part --no-repeat -o {few}", *command)
    cli(f"characterize --signature -n {','.join(others)} --no-repeat -o {few}", *command)
    assert [n for n in counts if load_table(few, n).recorded] == list(counts[1:])
    assert same_model(full, few, n)
    last = counts[-1]
    shutil.copytree(full, ended)
    shutil.rmtree(ended / "runs" / f"np{last:04d}.r0")
    for path in (ended / "signature").glob(f"np{last:04d}.*"):
        path.unlink()
    cli(f"characterize --signature --stop -n {last} -o {ended}", *command)
    assert same_model(full, ended, n)


def test_a_program_of_2000_iterations_is_left_by_200(programs: Path, tmp_path: Path) -> None:
    words = ["--nx", "60", "--ny", "60", "--iterations", "2000"]
    command = ["--", usable_mpi().mpiexec, "-n", "{np}", str(programs / "jacobi2d"), *words]
    cli(f"characterize -n 2,4 --part --no-repeat -o {tmp_path / 'study'}", *command)
    cli(f"characterize --signature --stop -n 3 -o {tmp_path / 'study'}", *command)
    recorded = load_table(tmp_path / "study", 3).recorded
    assert recorded is not None and 25 <= recorded.ended <= 200
    assert recorded.detail < recorded.events / 10
