"""Programs of the benchmark: what is run, where it is traced, where it is predicted."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"


@dataclass(frozen=True)
class Program:
    """A program: C source, arguments, process counts that are traced, and that are predicted."""

    name: str
    source: Path
    arguments: tuple[str, ...]
    traced: tuple[int, ...] = (4, 8, 16, 32)
    predicted: tuple[int, ...] = (64, 128, 256)


def _example(name: str, arguments: str, source: str = "") -> Program:
    return Program(name, EXAMPLES / f"{source or name}.c", tuple(arguments.split()))


#: Extents and numbers of bodies are no multiples of the process counts.
PROGRAMS = {
    program.name: program
    for program in (
        _example("jacobi2d", "--nx 1201 --ny 1003 --iterations 80 --check 8"),
        _example("halo3d", "--nx 97 --ny 89 --nz 101 --iterations 30"),
        _example("wavefront", "--nx 121 --ny 118 --nz 80 --planes 4 --iterations 4"),
        _example("cg", "--n 4201 --nonzeros 40 --iterations 4 --inner 15"),
        _example("ring", "--bodies 4001 --steps 4"),
        _example("ring-overlap", "--bodies 4001 --steps 4 --overlap --packed", "ring"),
    )
}
