"""What came compiled with P3S is used where it fits, and only there."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import zipfile
from pathlib import Path

import pytest
from paths import ROOT

from p3s.base.errors import P3SError
from p3s.base.host import compiling
from p3s.base.host.compiling import Library, Prebuilt
from p3s.simulate import core as simulate

OPENMPI = Library("openmpi", "4.1.8", frozenset({"MPI_Init", "MPI_Send"}))


@pytest.fixture
def came(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The compiled simulation as a folder of a wheel, on a machine without a C compiler."""
    if not any(map(shutil.which, ("cc", "gcc", "clang"))):
        pytest.skip("no C compiler")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "first"))
    made = compiling.compile_cached(
        "simulate.so",
        simulate.SOURCES,
        simulate.FLAGS,
        compiler=compiling.c_compiler("this"),
        what="this",
        libraries=["-lm"],
    )
    folder = tmp_path / "prebuilt"
    folder.mkdir()
    shutil.copy(made, folder / "simulate.so")
    row = Prebuilt(
        "simulate.so",
        "simulate.so",
        hashlib.sha256(made.read_bytes()).hexdigest(),
        compiling.source_digest(simulate.SOURCES, simulate.FLAGS),
    )
    compiling.write_index(folder, [row])
    monkeypatch.setattr(compiling, "FOLDER", folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    compiling.index.cache_clear()
    simulate.library.cache_clear()
    yield folder
    compiling.index.cache_clear()
    simulate.library.cache_clear()


def test_the_simulation_needs_no_compiler(came: Path, tmp_path: Path) -> None:
    library = simulate.library()
    assert Path(library._name).parent == tmp_path / "cache" / "p3s"
    assert compiling.is_sound(Path(library._name))


def test_what_is_damaged_is_not_used(came: Path) -> None:
    with open(came / "simulate.so", "ab") as file:
        file.write(b"!")
    with pytest.raises(P3SError, match="no C compiler"):
        simulate.library()


def test_what_other_sources_were_compiled_to_is_not_used(
    came: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulate, "FLAGS", (*simulate.FLAGS, "-DOTHER"))
    with pytest.raises(P3SError, match="no C compiler"):
        simulate.library()


@pytest.mark.parametrize("text", ["", "{}", '{"files": [{"name": 1}]}', "[1]"])
def test_an_index_that_says_nothing(text: str, tmp_path: Path) -> None:
    (tmp_path / compiling.INDEX).write_text(text)
    assert compiling.index(tmp_path) == ()


def test_an_index_is_read_as_it_was_written(tmp_path: Path) -> None:
    rows = (
        Prebuilt("a.so", "a-1.so", "0" * 64, "1" * 64, OPENMPI),
        Prebuilt("b.so", "b.so", "", ""),
    )
    compiling.write_index(tmp_path, rows)
    assert compiling.index(tmp_path) == rows


@pytest.mark.parametrize(
    ("family", "version", "functions", "fits"),
    [
        ("openmpi", "4.0.3", {"MPI_Init"}, True),
        ("openmpi", "4.1.8", {"MPI_Init", "MPI_Send", "MPI_New"}, False),
        ("openmpi", "5.0.11", {"MPI_Init"}, False),
        ("openmpi", "40.1", {"MPI_Init"}, False),
        ("mpich", "4.1.8", {"MPI_Init"}, False),
    ],
)
def test_which_mpi_a_compiled_file_fits(
    family: str, version: str, functions: set[str], fits: bool
) -> None:
    assert OPENMPI.fits(Library(family, version, frozenset(functions))) is fits


def test_a_file_that_is_no_mpi(tmp_path: Path) -> None:
    (tmp_path / "libmpi.so.40").write_bytes(b"\x7fELF")
    assert compiling.library_at(str(tmp_path / "libmpi.so.40")) is None


def test_a_wheel_becomes_one_for_a_kind_of_machine(tmp_path: Path) -> None:
    """Its name, its WHEEL and its RECORD say so; the pure one is gone."""
    spec = importlib.util.spec_from_file_location("p3s_build", ROOT / ".ci" / "p3s_build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    here = os.getcwd()
    os.chdir(ROOT)
    try:
        spec.loader.exec_module(module)
        wheel = tmp_path / "p3s-0.1.0-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as file:
            about = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n\n"
            file.writestr("p3s-0.1.0.dist-info/WHEEL", about)
            file.writestr("p3s-0.1.0.dist-info/RECORD", "")
        tag = "py3-none-manylinux_2_34_x86_64"
        made = module.settle(wheel, {"p3s/prebuilt/a.so": b"a"}, tag)
    finally:
        os.chdir(here)
    assert [path.name for path in tmp_path.iterdir()] == [f"p3s-0.1.0-{tag}.whl"]
    with zipfile.ZipFile(made) as file:
        assert file.read("p3s-0.1.0.dist-info/WHEEL").decode().splitlines() == [
            "Wheel-Version: 1.0",
            "Root-Is-Purelib: false",
            f"Tag: {tag}",
        ]
        assert b"p3s/prebuilt/a.so,sha256=" in file.read("p3s-0.1.0.dist-info/RECORD")
