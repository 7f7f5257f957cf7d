"""A study's prediction on another machine: in STUDY/on/NAME, beside the study's own artefacts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from p3s.base.artefacts import as_json, reason, write_bytes
from p3s.base.errors import P3SError
from p3s.base.serialise import to_data
from p3s.base.study import Study
from p3s.base.text import quoted
from p3s.costs.transfer import move
from p3s.costs.types import COMPUTE, Moved, load, read
from p3s.machine.machinefile import MACHINE, NAME, Machine
from p3s.pipeline.prediction import predict
from p3s.predict.estimated import FROM_REPLAY
from p3s.predict.estimates import Estimation
from p3s.predict.types import Prediction
from p3s.signature.times import load_times


def base_path(study: Study, given: Path | None) -> Path:
    """Return the machine file of the study's runs: ``given``, or that in the study.

    A study inside another one (at/, far/) was run where that one was. Raises P3SError, one line,
    when there is none.
    """
    if given is not None:
        return given
    places = [study.root / NAME]
    if study.root.absolute().parent.name in ("at", "far"):
        places.append(study.root.absolute().parent.parent / NAME)
    for path in places:
        if path.exists():
            return path
    raise P3SError(
        f"{study.root / NAME}: not there, so nothing says what the runs' own machine costs; on "
        f"that machine run p3s machine measure -o {quoted(study.root / NAME)}, or name its file "
        "with --base"
    )


def place_of(study: Study, path: Path, target: Machine) -> Path:
    """Return where the prediction for a target is kept: STUDY/on/NAME, by its file or its host."""
    stem = path.stem if path.stem != Path(NAME).stem else target.name
    return study.root / "on" / (re.sub(r"[^\w.=-]+", "-", stem).strip(".-") or "machine")


def filled_bytes(study: Study, counts: Sequence[int]) -> dict[int, float]:
    """Return the memory that a rank has filled, mean over the ranks, by count where it is known."""
    found = {}
    for n in counts:
        times = load_times(study.root, n)
        if times is not None and len(times.resident_bytes) and (times.resident_bytes > 0).all():
            found[n] = float(times.resident_bytes.mean())
    return found


def is_own(study: Study, target_path: Path) -> bool:
    """Tell whether a machine file is the study's own, wherever it lies."""
    own = study.root / NAME
    return own.exists() and own.read_bytes() == _read(Path(target_path))


def prepare(study: Study, target_path: Path, base: Path | None) -> Study:
    """Write the study of a target machine: model, moved compute.json, machine file; return it.

    What is there and the same is left alone. Raises P3SError when the study has no compute.json,
    a machine file is missing or damaged, or nothing carries over.
    """
    target = Machine.load(target_path)
    own = Machine.load(base_path(study, base))
    compute = load(study.root)
    if compute is None:
        raise P3SError(
            f"{study.compute_path}: not there: nothing says how long computation takes on "
            f"{own.name}; run p3s model {quoted(study.root)} on a study with times"
        )
    moved = move(compute, own, target, filled_bytes(study, compute.counts))
    root = place_of(study, target_path, target)
    try:
        command = study.command()
    except P3SError:  # put together from runs that do not say it
        command = ["mpiexec", "-n", "{np}", "PROGRAM"]
    made = Study.create(root, command)
    made.update(moved_from="../..", machine=target.name)
    for path, text in (
        (made.model_path, _read(study.model_path)),
        (made.compute_path, as_json(COMPUTE.data(moved)).encode()),
        (root / NAME, as_json(MACHINE.data(target)).encode()),
    ):
        write_same(path, text)
    return made


def write_same(path: Path, content: bytes) -> None:
    """Write a file, unless it is there with this content: it stays as old as it is."""
    if not path.exists() or path.read_bytes() != content:
        write_bytes(path, content)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise P3SError(f"{path}: cannot be read: {reason(error)}") from error


def compose(study: Study, made: Study, counts: Sequence[int], how: Estimation) -> Prediction:
    """Put the prediction on the target together.

    The scaled traces of ``made`` are there at all counts; replays of ``study`` are copied, those
    that are not its any more are removed. ``how``: as for p3s.pipeline.prediction.predict.
    ``files``: of the two machines, as they are to be measured again where that was disturbed.
    """
    for n in counts:
        for path, copy in (
            (study.replay_path(n), made.replay_path(n)),
            (study.replay_table(n), made.replay_table(n)),
        ):
            if not path.exists() or n in how.stale:
                copy.unlink(missing_ok=True)
            else:
                write_same(copy, _read(path))
    result = predict(made, counts, how, elsewhere=True)
    about = read(made.compute_path).machine
    if about is None:
        raise P3SError(f"{made.compute_path}: is not of another machine; predict --machine again")
    target = Machine.load(made.root / NAME)
    return replace(
        result,
        machine=to_data(about),
        notes=(*sentences(about), _of_messages(made, result, target), *result.notes),
    )


def sentences(about: Moved) -> list[str]:
    """Return what is to be said of a moved computation: by how much, how sure, what is doubtful."""
    text = f"computation was measured on {about.base.name} and moved to {about.target.name}"
    places = [place for place in about.places if place.factor]
    if places:
        values = [value for place in places for value in place.factor]
        low, high = (f"{end:.2f}" for end in (min(values), max(values)))
        ends = [min(place.low for place in places), max(place.high for place in places)]
        span = f"{low} to {high}" if low != high else low
        text += (
            f" by factors of {span} at the measured work per iteration (90 % interval over all "
            f"places {ends[0]:.2f} to {ends[1]:.2f})"
        )
    said = [text]
    for place in sorted(places, key=lambda place: -place.share)[:3]:
        said.append(
            f"phase {place.phase}, {100 * place.share:.0f} % of the computation: {place.why}"
        )
    return [*dict.fromkeys(said), *about.notes]


def _of_messages(made: Study, result: Prediction, target: Machine) -> str:
    """Say where the costs of messages are from."""
    rested = [row for row in result.counts if row.n > 1]
    if result.network is not None and result.network.published:
        return f"communication is that of {result.network.label}, not of {target.name}"
    if any(row.estimator not in FROM_REPLAY for row in rested):
        return (
            f"communication is simulated with messages measured between two ranks of {target.name}"
        )
    nodes = sorted(
        {str(node) for row in rested for node in made.replay(row.n).get("nodes", []) if node}
    )
    if not nodes:
        return "no communication was measured: none is part of these times"
    if nodes == [target.name]:
        return f"communication was measured on {target.name} itself"
    return (
        f"communication was measured on {', '.join(nodes)} and is not moved: it is not that of "
        f"{target.name}; for that run p3s predict there, or with its nodes in --hosts"
    )
