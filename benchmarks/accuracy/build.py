"""Compiles programs for SMPI: with counted statements, and with P3S's tracer inside."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from accuracy.cluster import SimulationError

HERE = Path(__file__).resolve().parent / "smpi"
#: Calls of the tracer's that the simulator only declares; smpi/tracer.c answers them.
_ANSWERED = ("Comm_get_parent", "Get_elements_x", "Topo_test")
#: Picoseconds of a basic block and of an access to memory on the simulated cores.
BLOCK_PS = ACCESS_PS = 1000
_HOOKS = ("-g", "-w", "-fsanitize-coverage=trace-pc", "-fsanitize=thread")
_COUNTED = ("-O2", "-std=gnu11", *_HOOKS)
#: Names under which builds of programs look for a compiler, and its language.
_WRAPPERS = {
    "c": ("mpicc",),
    "c++": ("mpicxx", "mpic++", "mpiCC"),
    "fortran": ("mpif77", "mpif90", "mpifort"),
}
_BUILD_TIMEOUT_S = 1800.0
_TRACER = (
    "-O2",
    "-g",
    "-std=gnu11",
    "-w",
    "-fvisibility=hidden",
    "-DSMPI_NO_OVERRIDE_MALLOC",
    "-DP3S_INSIDE_PROGRAM",
    "-include",
    str(HERE / "tracer.h"),
)


@dataclass(frozen=True)
class Build:
    """A compiled program: alone, and with the tracer; preloaded: libraries for the traced runs.

    ``directory``: where it runs and finds its input files (None: anywhere); there are two copies.
    """

    plain: Path
    traced: Path
    directories: tuple[Path, Path] | None = None
    preloaded: tuple[Path, ...] = ()


class Builder:
    """Compiles into one directory; ``clock``: what is preloaded into the simulator."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.clock = directory / "clock.so"
        sources = [str(HERE / name) for name in ("clock.c", "exit.c")]
        _run(["cc", "-O2", "-fPIC", "-shared", *sources, "-o", str(self.clock)])
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
        traced = self._link(
            compiled,
            self.directory / f"{name}.traced",
            [*self.tracer(), self._system(f"{name}.traced")],
        )
        return Build(plain, traced)

    def outside(self, name: str, source: Path, command: str, executable: str) -> Build:
        """Build a directory of sources in C, C++ or Fortran by its own build ``command``.

        It runs twice, in copies of the directory, with compilers of MPI's usual names that compile
        for SMPI; ``executable`` is what it makes, from there. Errors: SimulationError.
        """
        if source.resolve() in (self.directory.resolve(), *self.directory.resolve().parents):
            raise SimulationError(f"{name}: --dir lies in {source}, which is copied; name another")
        traced = [*self.tracer(), self._system(Path(executable).name), self._own()]
        places = []
        for kind, others in (("plain", []), ("traced", traced)):
            place = self.directory / f"{name}.{kind}"
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(source, place, symlinks=True)
            link = [*map(str, (*others, self._arguments(), self.counted, self.clock))]
            tools = self._wrappers(self.directory / f"{name}.{kind}.tools", link)
            _make(command, place, tools)
            if not (place / executable).is_file():
                raise SimulationError(f"{name}: `{command}` has made no {executable}")
            places.append(place)
        return Build(
            places[0] / executable,
            places[1] / executable,
            (places[0], places[1]),
            (self._fortran(),),
        )

    def _wrappers(self, tools: Path, link: Sequence[str]) -> Path:
        tools.mkdir(exist_ok=True)
        settings = tools / "settings.json"
        link = [*link, "-lm", "-ldl", "-lpthread"]
        settings.write_text(json.dumps({"flags": _HOOKS, "link": link}))
        for language, names in _WRAPPERS.items():
            words = [sys.executable, str(HERE / "compiler.py"), str(settings), language]
            for name in names:
                path = tools / name
                path.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
                path.chmod(0o755)
        return tools

    def _system(self, name: str) -> Path:
        target = self.directory / f"{name}.system.o"
        words = ["smpicc", *_TRACER, f'-DPROGRAM="{name}"', "-c", str(HERE / "tracer.c")]
        _run([*words, "-o", str(target)])
        return target

    def _fortran(self) -> Path:
        self._calls_header()
        target = self.directory / "fortran.so"
        words = ["cc", "-O2", "-fPIC", "-shared", "-I", str(self.directory)]
        _run([*words, str(HERE / "fortran.c"), "-o", str(target), "-ldl"])
        return target

    def _arguments(self) -> Path:
        target = self.directory / "arguments.o"
        words = ["cc", "-O2", "-fPIC", "-D_GNU_SOURCE", "-c", str(HERE / "arguments.c")]
        _run([*words, "-o", str(target)])
        return target

    def _own(self) -> Path:
        self._calls_header()
        target = self.directory / "own.o"
        words = ["cc", "-O2", "-fPIC", "-I", str(self.directory), "-c", str(HERE / "own.c")]
        _run([*words, "-o", str(target)])
        return target

    def _calls_header(self) -> None:
        """Write calls.h: every MPI call that the tracer has, as CALL(name)."""
        self.tracer()
        text = (self.directory / "tracer" / "wrappers.c").read_text()
        calls = sorted(set(re.findall(r'__asm__\("MPI_(\w+)"\)', text)))
        (self.directory / "calls.h").write_text("".join(f"CALL({name})\n" for name in calls))

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
        from p3s.base.host import mpi
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


def _make(command: str, place: Path, tools: Path) -> None:
    done = subprocess.run(
        ["sh", "-c", command],
        cwd=place,
        env={**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
        timeout=_BUILD_TIMEOUT_S,
    )
    (tools / "build.log").write_text(done.stdout)
    if done.returncode != 0:
        raise SimulationError(
            f"`{command}` failed with exit code {done.returncode}; {tools / 'build.log'} has its "
            "output"
        )


def _run(words: Sequence[str]) -> None:
    done = subprocess.run(
        words, capture_output=True, text=True, errors="replace", check=False, timeout=300
    )
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if "error" in line] or ["no message"]
        raise SimulationError(f"{' '.join(words[:1])} {words[-1]}: {lines[0][:200]}")
