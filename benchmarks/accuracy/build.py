"""Compiles programs for SMPI: with counted statements, and with P3S's tracer inside."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from accuracy.cluster import SimulationError

HERE = Path(__file__).resolve().parent / "smpi"
#: Calls of the tracer's that the simulator only declares; smpi/tracer.c answers them.
_ANSWERED = ("Comm_get_parent", "Get_elements_x", "Topo_test")
#: Picoseconds of a basic block and of an access to memory on the simulated cores.
BLOCK_PS = ACCESS_PS = 1000
_COUNTED = ("-O2", "-g", "-std=gnu11", "-w", "-fsanitize-coverage=trace-pc", "-fsanitize=thread")
_TRACER = (
    "-O2",
    "-g",
    "-std=gnu11",
    "-w",
    "-fvisibility=hidden",
    "-DSMPI_NO_OVERRIDE_MALLOC",
    "-include",
    str(HERE / "tracer.h"),
)


@dataclass(frozen=True)
class Build:
    """A compiled program: alone, and with the tracer."""

    plain: Path
    traced: Path


class Builder:
    """Compiles into one directory; ``clock``: what is preloaded into the simulator."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.clock = directory / "clock.so"
        _run(["cc", "-O2", "-fPIC", "-shared", str(HERE / "clock.c"), "-o", str(self.clock)])
        self.counted = directory / "counted.o"
        _run(
            [
                "cc",
                "-O2",
                "-fPIC",
                f"-DBLOCK_PS={BLOCK_PS}",
                f"-DACCESS_PS={ACCESS_PS}",
                "-c",
                str(HERE / "counted.c"),
                "-o",
                str(self.counted),
            ]
        )
        self._tracer: list[Path] = []

    def plain(self, source: Path, name: str) -> Path:
        """Compile a program without the tracer."""
        return self._link(self._object(source, name), self.directory / f"{name}.plain", [])

    def program(self, source: Path, name: str) -> Build:
        """Compile a program alone and with the tracer."""
        compiled = self._object(source, name)
        plain = self._link(compiled, self.directory / f"{name}.plain", [])
        system = self.directory / f"{name}.system.o"
        _run(
            [
                "smpicc",
                *_TRACER,
                f'-DPROGRAM="{name}"',
                "-c",
                str(HERE / "tracer.c"),
                "-o",
                str(system),
            ]
        )
        traced = self._link(compiled, self.directory / f"{name}.traced", [*self.tracer(), system])
        return Build(plain, traced)

    def _object(self, source: Path, name: str) -> Path:
        compiled = self.directory / f"{name}.o"
        _run(
            [
                "smpicc",
                *_COUNTED,
                "-D_XOPEN_SOURCE=700",
                "-include",
                str(HERE / "program.h"),
                "-c",
                str(source),
                "-o",
                str(compiled),
            ]
        )
        return compiled

    def _link(self, compiled: Path, target: Path, others: Sequence[Path]) -> Path:
        # -Bsymbolic: the tracer's MPI_X comes before the simulator's in this program alone.
        _run(
            [
                "smpicc",
                "-Wl,-Bsymbolic",
                str(compiled),
                *map(str, others),
                str(self.counted),
                str(self.clock),
                "-o",
                str(target),
                "-lm",
                "-ldl",
                "-lpthread",
            ]
        )
        return target

    def tracer(self) -> list[Path]:
        """Compile P3S's tracer for the simulator's mpi.h, once, and return its objects."""
        if self._tracer:
            return self._tracer
        from p3s.host import mpi
        from p3s.signature_runner.build import source_paths
        from p3s.signature_runner.tracer import generate

        text = mpi.preprocess("smpicc", "#include <mpi.h>\n")
        if text is None:
            raise SimulationError("smpicc cannot read mpi.h")
        work = self.directory / "tracer"
        work.mkdir(exist_ok=True)
        header, wrappers = generate.generate(text)
        for name in _ANSWERED:
            header = header.replace(
                f"#define PMPI_{name} p3s_real.{name}\n", f"#define PMPI_{name} accuracy_{name}\n"
            )
        (work / "p3s_generated.h").write_text(header)
        (work / "wrappers.c").write_text(wrappers)
        sources = [path for path in source_paths() if path.suffix == ".c"]
        for source in [*sources, work / "wrappers.c"]:
            target = work / f"{source.stem}.o"
            _run(
                [
                    "smpicc",
                    *_TRACER,
                    "-I",
                    str(work),
                    "-I",
                    str(sources[0].parent),
                    "-c",
                    str(source),
                    "-o",
                    str(target),
                ]
            )
            self._tracer.append(target)
        return self._tracer


def _run(words: Sequence[str]) -> None:
    done = subprocess.run(
        words, capture_output=True, text=True, errors="replace", check=False, timeout=300
    )
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if "error" in line] or ["no message"]
        raise SimulationError(f"{' '.join(words[:1])} {words[-1]}: {lines[0][:200]}")
