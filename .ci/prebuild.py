"""Compiles what a platform wheel brings along: tracer, replay and measurements for MPIs, P3S's C.

Called by p3s_build.build_wheel when the setting ``prebuilt`` (or the variable P3S_PREBUILT) names
compiler wrappers, separated by colons, of the MPIs to build for. Two builds with the same compiler
and MPIs give the same bytes, wherever they are made.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path

_NEEDS = re.compile(rb"GLIBC_(\d+)\.(\d+)")


def prebuild(wrappers: Sequence[str], folder: Path) -> str:
    """Compile into ``folder``, with an index; return the tag of the machines it is for."""
    sys.path.insert(0, os.getcwd())
    with tempfile.TemporaryDirectory() as cache:
        os.environ["XDG_CACHE_HOME"] = cache
        _compile(wrappers, folder)
    newest = max(_glibc(path) for path in folder.iterdir())
    machine = sysconfig.get_platform().removeprefix("linux-").replace("-", "_")
    return "py3-none-manylinux_{}_{}_{}".format(*newest, machine)


def _compile(wrappers: Sequence[str], folder: Path) -> None:
    from p3s.base.host import compiling, mpi
    from p3s.base.host.compiling import c_compiler, compile_cached, version_of
    from p3s.capture import events
    from p3s.machine import programs as machine
    from p3s.replay.engine import inner
    from p3s.signature_runner import build
    from p3s.simulate import core as simulate

    compiling.FOLDER = folder  # nothing is there yet: all is compiled
    made = []
    version = version_of(c_compiler("P3S"))

    def put(name: str, path: Path, sources: list[Path], flags: Sequence[str], library=None) -> None:
        stem, dot, ending = name.partition(".")
        of = f"-{library.family}-{library.version}" if library else ""
        stem = stem.removesuffix(f"-{library.family}") if library else stem
        file = folder / f"{stem}{of}{dot}{ending}"
        _strip(path, file)
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        sources_are = compiling.source_digest(sources, flags)
        made.append(compiling.Prebuilt(name, file.name, digest, sources_are, library, version))

    for name, module in (("simulate.so", simulate), ("varint.so", events)):
        path = compile_cached(
            name,
            module.SOURCES,
            module.FLAGS,
            compiler=c_compiler(name),
            what=name,
            libraries=["-lm"],
        )
        put(name, path, module.SOURCES, module.FLAGS)
    counter = build.COUNTER_SOURCES, build.COUNTER_FLAGS
    put(build.COUNTER_NAME, build.ensure_counter(), *counter)
    kernels, sources = machine.kernels().path, [machine.source_of(machine.KERNELS)]
    put(machine.name_of(machine.KERNELS), kernels, sources, machine.FLAGS)
    for wrapper in wrappers:
        install = mpi.describe(os.path.abspath(wrapper))
        path = _libmpi(wrapper, install.mpiexec) if install else None
        library = compiling.library_at(path) if path else None
        if library is None:
            raise SystemExit(f"{wrapper}: no compiler of an MPI with its libmpi and mpiexec")
        name = f"tracer-{library.family}.so"
        tracer = build.ensure_tracer(install.mpicc).path
        put(name, tracer, build.generator_paths(), build.FLAGS, library)
        loop = _unlinked(install.mpicc, inner.SOURCES, inner.FLAGS)
        put("replay.so", loop, inner.SOURCES, inner.FLAGS, library)
        for source in (machine.NETWORK, machine.FILES):
            sources = [machine.source_of(source)]
            ranks = _unlinked(install.mpicc, sources, machine.LIBRARY_FLAGS)
            put(machine.name_of(source, ".so"), ranks, sources, machine.LIBRARY_FLAGS, library)
    compiling.write_index(folder, made)


def _libmpi(wrapper: str, mpiexec: str | None) -> str | None:
    """Return the libmpi that a wrapper links programs to, wherever the launcher is."""
    from p3s.base.host import mpi

    with tempfile.TemporaryDirectory(prefix="p3s-linked-") as folder:
        source, program = Path(folder, "linked.c"), Path(folder, "linked")
        source.write_text("#include <mpi.h>\nint main(void) { return MPI_Init(0, 0); }\n")
        subprocess.run([wrapper, "-o", program, source], check=True, capture_output=True)
        return mpi.libmpi_for(str(program), mpiexec)


def _unlinked(mpicc: str, sources: list[Path], flags: Sequence[str]) -> Path:
    """Return a library that is not linked to this libmpi: others have another name and place."""
    from p3s.base.host.compiling import c_compiler, compile_cached

    what = sources[0].name
    whole = compile_cached("unlinked.o", sources, (*flags, "-c"), compiler=mpicc, what=what)
    return compile_cached(
        "unlinked.so", [whole], ("-shared",), compiler=c_compiler(what), what=what
    )


def _strip(compiled: Path, to: Path) -> None:
    """Copy a library without what tells where it was compiled."""
    words = ["strip", "--strip-unneeded", "--remove-section=.note.gnu.build-id"]
    subprocess.run([*words, "-o", str(to), str(compiled)], check=True, timeout=60)
    os.chmod(to, 0o644)


def _glibc(library: Path) -> tuple[int, int]:
    """Return the version of the GNU C library that a file needs at least."""
    needs = ((int(a), int(b)) for a, b in _NEEDS.findall(library.read_bytes()))
    return max(needs, default=(2, 5))  # one that calls nothing needs the oldest there is a tag for
