"""Compiles the tracer with a program's own mpicc, once per MPI."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from p3s.base.errors import P3SError
from p3s.base.host import compiling, mpi
from p3s.base.host.compiling import c_compiler, cache_dir, compile_cached, made_once, run_tool
from p3s.signature_runner.tracer import generate

_FOLDER = Path(__file__).parent / "tracer"
_COUNTER = "p3s_count.c"  # a plugin of qemu, not part of the tracer
COUNTER_NAME, COUNTER_SOURCES = "counter.so", [_FOLDER / _COUNTER]
COUNTER_FLAGS = ("-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-std=gnu11")
FLAGS = ("-O2", "-g", "-fPIC", "-fvisibility=hidden", "-std=gnu11", "-w")


@dataclass(frozen=True)
class TracerBuild:
    """A compiled tracer: its shared library and the MPI it was compiled for."""

    path: Path
    mpi_family: str
    version: str
    mpicc: str


def source_paths() -> list[Path]:
    """Return the tracer's own C files and headers, in the order of their names."""
    paths = [*_FOLDER.glob("p3s_*.c"), *_FOLDER.glob("p3s_*.h")]
    return sorted(path for path in paths if path.name != _COUNTER)


def generator_paths() -> list[Path]:
    """Return all files that the tracer for an mpi.h is made from, in the order of their names."""
    return sorted([*source_paths(), *_FOLDER.glob("*.py")])


def compile_objects(
    mpicc: str, texts: dict[str, bytes], work: str, flags: Sequence[str]
) -> list[str]:
    """Return the object files in ``work`` that the C files of ``texts`` (by name) compile to.

    Errors: P3SError with the compiler's message.
    """
    for name, text in texts.items():
        Path(work, name).write_bytes(text)
    objects = []
    for name in texts:
        if not name.endswith(".c"):
            continue
        output = os.path.join(work, name[:-2] + ".o")
        run_tool(
            [mpicc, *flags, "-I", work, "-c", os.path.join(work, name), "-o", output],
            "compile the tracer",
        )
        objects.append(output)
    return objects


def _compile(mpicc: str, texts: dict[str, bytes], draft: Path) -> None:
    objects = compile_objects(mpicc, texts, str(draft.parent), FLAGS)
    # Linked without libmpi: the tracer calls whatever MPI library the program brings, and
    # does not pull one into shells and helpers that run under the same preload.
    linker = shutil.which("cc") or shutil.which("gcc") or mpicc
    words = [linker, "-shared", "-o", str(draft), *objects, "-ldl", "-lpthread"]
    run_tool(words, "link the tracer")


def tracer_sources(mpicc: str) -> tuple[dict[str, bytes], str]:
    """Return the tracer's C files by name, generated ones too, and the preprocessed mpi.h.

    Errors: P3SError when the compiler finds no mpi.h.
    """
    text = mpi.preprocess(mpicc, "#include <mpi.h>\n")
    if text is None:
        raise P3SError(f"{mpicc} cannot read mpi.h; run `p3s doctor`")
    header, wrappers = generate.generate(text)
    generated = {"p3s_generated.h": header.encode(), "wrappers.c": wrappers.encode()}
    return {**{path.name: path.read_bytes() for path in source_paths()}, **generated}, text


def ensure_tracer(
    mpicc: str | None = None,
    program: str | None = None,
    launcher: str | None = None,
    likely: str | None = None,
) -> TracerBuild:
    """Return the tracer for an MPI, compiling it if none came with P3S and it has none yet.

    The MPI is that of ``mpicc``, or else the one ``program`` is linked to, or else the one of
    ``launcher``, or else of the family ``likely``. The cache key covers the tracer's sources and
    the whole preprocessed mpi.h, so an upgrade of either makes a new build.
    Errors: P3SError when there is no usable mpicc or it does not compile.
    """
    install = mpi.describe(mpicc) if mpicc else mpi.mpi_for(program, launcher, likely)
    if not mpicc and (build := _came_along(install, program, launcher, likely)):
        return build
    if install is None:
        library = mpi.library_of(program) or mpi.library_of_python(program) if program else None
        if mpicc:
            raise P3SError(f"{mpicc} does not compile MPI programs; run `p3s doctor`")
        if library:
            raise P3SError(
                f"{program} uses {library[1] or library[0]}, but no mpicc of that MPI is on PATH;"
                " install its development package or put its bin directory on PATH"
            )
        raise P3SError("no mpicc found; install an MPI (for example `pip install mpich`)")
    texts, text = tracer_sources(install.mpicc)
    digest = hashlib.sha256(" ".join(FLAGS).encode())
    for name in sorted(texts):
        digest.update(name.encode() + b"\0" + texts[name] + b"\0")
    digest.update(text.encode())
    target = cache_dir() / f"tracer-{install.family}-{digest.hexdigest()[:20]}.so"
    mpicc = install.mpicc
    made_once(target, lambda draft: _compile(mpicc, texts, draft))
    return TracerBuild(target, install.family, install.version, install.mpicc)


def _came_along(
    install: mpi.MpiInstall | None, program: str | None, launcher: str | None, likely: str | None
) -> TracerBuild | None:
    """Return the tracer that came with P3S for a program's MPI, None where none fits."""
    install_found = compiling.runtime(program, launcher, likely)
    if install_found is None:
        return None
    library, of = install_found
    tracer = compiling.taken(f"tracer-{of.family}.so", generator_paths(), FLAGS, library)
    mpicc = install.mpicc if install and install.family == of.family else ""
    return TracerBuild(tracer, of.family, of.version, mpicc) if tracer else None


def ensure_counter() -> Path:
    """Return the plugin that counts instructions under qemu, as it came with P3S or compiled here.

    What qemu itself defines is resolved when it loads the plugin. Errors: P3SError when it did not
    come and there is no C compiler.
    """
    plugin = compiling.taken(COUNTER_NAME, COUNTER_SOURCES, COUNTER_FLAGS)
    return plugin or compile_cached(
        COUNTER_NAME,
        COUNTER_SOURCES,
        COUNTER_FLAGS,
        compiler=c_compiler("the instruction counter"),
        what="the counter",
    )
