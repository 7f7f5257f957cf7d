"""Laws over threads as a file: threads.json, schema p3s.methods.threads."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from p3s.base.artefacts import SCHEMA_VERSION, read_json, write_json
from p3s.base.errors import Damaged
from p3s.base.serialise import ShapeError, from_data, to_data
from p3s.machine.topology.node import Node
from p3s.methods.threads.columns import NAMES, Curve, Shapes
from p3s.methods.threads.law import Measured, ThreadLaw
from p3s.methods.threads.misfit import Misfit
from p3s.methods.threads.types import Envelope, Part

SCHEMA = "p3s.threads"
_AGAIN = "fit the laws over threads again"


@dataclass(frozen=True)
class Kept:
    """A law as the file has it: arrays as lists of numbers, draws as rows."""

    phase: int
    of: str
    unit: float
    regions: float
    envelope: Envelope
    columns: tuple[str, ...]
    shapes: dict[str, list[float]]
    coefficient: list[list[float]]
    error: list[float]
    misfit_at: list[list[float]]
    misfit_pull: list[list[float]]
    misfit_seed: int
    bandwidth: list[list[float]]
    fork: list[list[float]]
    fit: float
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class File:
    """What threads.json holds: the node that the runs were on, and the laws of the phases."""

    node: Node
    laws: tuple[Kept, ...]


def save_laws(path: Path, laws: tuple[ThreadLaw, ...]) -> None:
    """Write the laws of all phases. Errors: P3SError where the place cannot be written."""
    made = File(laws[0].node, tuple(_kept(law) for law in laws))
    write_json(path, {"schema": SCHEMA, "schema_version": SCHEMA_VERSION, **to_data(made)})


def load_laws(path: Path) -> tuple[ThreadLaw, ...]:
    """Read the laws of all phases. Errors: P3SError, in one line, where it is damaged."""
    data = read_json(path, SCHEMA)
    data.pop("schema"), data.pop("schema_version")
    try:
        found = from_data(File, data)
        return tuple(_law(each, found.node) for each in found.laws)
    except (ShapeError, ValueError, KeyError) as err:
        raise Damaged(f"{path}: damaged ({err}); {_AGAIN}") from err


def _digits(values: Any) -> Any:
    """Return numbers with seven digits."""
    flat = [float(f"{v:.7g}") for v in np.asarray(values, dtype=float).ravel()]
    return np.array(flat).reshape(np.shape(values)).tolist()


def _kept(law: ThreadLaw) -> Kept:
    rate, fork = law.measured.bandwidth, law.measured.fork
    return Kept(
        law.phase,
        law.of,
        law.unit,
        law.regions,
        law.envelope,
        NAMES,
        {each.name: _digits(getattr(law.shapes, each.name)) for each in fields(Shapes)},
        _digits(law.coefficient),
        _digits(law.error),
        _digits(law.misfit.at),
        _digits(law.misfit.pull),
        law.misfit.seed,
        _digits([rate.threads, rate.value]),
        _digits([fork.threads, fork.value]),
        law.fit,
        law.parts,
    )


def _curve(rows: list[list[float]]) -> Curve:
    """Return a measured function; raises ValueError where its rows are not its points."""
    if len(rows) != 2 or len(rows[0]) != len(rows[1]) or sorted(set(rows[0])) != rows[0]:
        raise ValueError("a curve over the threads has no ascending points")
    return Curve(*(np.array(x, dtype=float) for x in rows))


def _law(kept: Kept, node: Node) -> ThreadLaw:
    """Return a law as it was; raises ValueError where its draws do not hold together."""
    if set(kept.shapes) != {each.name for each in fields(Shapes)}:
        raise ValueError("the shapes of its draws are not those of a law")
    shapes = Shapes(**{name: np.array(v, dtype=float) for name, v in kept.shapes.items()})
    draws = len(kept.error)
    coefficient = np.array(kept.coefficient, dtype=float)
    at, pull = np.array(kept.misfit_at, dtype=float), np.array(kept.misfit_pull, dtype=float)
    same = {draws, *(len(getattr(shapes, each.name)) for each in fields(Shapes))} == {draws}
    whole = coefficient.shape == (draws, len(NAMES)) and pull.shape == (draws, len(at))
    if not (draws and same and whole and at.shape[1:] == (5,) and kept.columns == NAMES):
        raise ValueError("the draws do not hold together")
    return ThreadLaw(
        kept.phase,
        kept.of,
        node,
        kept.unit,
        kept.regions,
        kept.envelope,
        Measured(_curve(kept.bandwidth), _curve(kept.fork)),
        shapes,
        coefficient,
        np.array(kept.error, dtype=float),
        Misfit(at, pull, kept.misfit_seed),
        kept.fit,
        kept.parts,
    )
