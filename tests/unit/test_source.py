"""Frames of call sites become functions and lines; programs are compiled here and say the truth.

The programs print their own return addresses, as a capture has them, beside function and line.
"""

from __future__ import annotations

import lzma
import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from p3s.capture.callpath import FrameInfo, parse, select_frames, stack
from p3s.capture.modules import Modules, readable, without_parameters
from p3s.capture.sites import resolve

TIMEOUT_S = 300.0

#: note() prints its return address, relative to where the module is loaded, and what it is told.
NOTE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
void note(const char *function, int line)
{
    Dl_info info; struct link_map *map; char self[4096];
    void *ra = __builtin_return_address(0);
    dladdr1(ra, &info, (void **)&map, RTLD_DL_LINKMAP);
    const char *name = strrchr(map->l_name, '/') ? strrchr(map->l_name, '/') + 1 : map->l_name;
    if (!*name) {
        ssize_t got = readlink("/proc/self/exe", self, sizeof self - 1);
        self[got] = 0;
        name = strrchr(self, '/') + 1;
    }
    printf("%s+0x%lx %s %d\n", name, (unsigned long)((uintptr_t)ra - map->l_addr), function, line);
}
"""
PROGRAM = r"""
void note(const char *function, int line);
void in_library(void);
static volatile int turns = 2;
static inline __attribute__((always_inline)) void inlined(int k)
{
    if (k) note("inlined", __LINE__);
    __asm__ volatile("" ::: "memory");
}
static __attribute__((noinline)) void outer(int k)
{
    note("outer", __LINE__);
    inlined(k);
    note("outer", __LINE__);
    __asm__ volatile("" ::: "memory");
}
int main(void)
{
    outer(turns);
    inlined(turns);
    in_library();
    note("main", __LINE__); /* the next line is another one */
    return 0;
}
"""
LIBRARY = r"""
void note(const char *function, int line);
static __attribute__((noinline)) void hidden(void)
{
    note("hidden", __LINE__);
    __asm__ volatile("" ::: "memory"); /* no tail call */
}
void in_library(void)
{
    hidden();
    note("in_library", __LINE__);
    __asm__ volatile("" ::: "memory");
}
"""

#: The inlined function's note is the second and the fourth; called from these.
CALLERS = {1: "outer", 3: "main"}

Truth = list[tuple[str, str, int]]


def compile_(folder: Path, *words: str, tool: str = "gcc") -> None:
    subprocess.run([tool, *words], cwd=folder, check=True, timeout=TIMEOUT_S)


def truth_of(program: Path) -> Truth:
    """What the program says: frame, function, line."""
    done = subprocess.run(
        [str(program)], capture_output=True, text=True, check=True, timeout=TIMEOUT_S
    )
    return [(f, name, int(line)) for f, name, line in map(str.split, done.stdout.splitlines())]


def build(folder: Path, *flags: str, link: tuple[str, ...] = ()) -> tuple[Path, Truth]:
    """A program and a library of its own beside it; what they say."""
    for name, text in (("note", NOTE), ("program", PROGRAM), ("library", LIBRARY)):
        (folder / f"{name}.c").write_text(text)
    shared = ("-shared", "-fPIC", "-o", "libown.so")
    compile_(folder, *flags, *link, *shared, "library.c", "-Wl,--allow-shlib-undefined")
    compile_(folder, "-O1", "-c", "-fPIC", "note.c")
    compile_(
        folder,
        *flags,
        *link,
        "program.c",
        "note.o",
        "-o",
        "program",
        "-L.",
        "-lown",
        "-ldl",
        "-rdynamic",
        "-Wl,-rpath,$ORIGIN",
    )
    truth = truth_of(folder / "program")
    assert len(truth) == 7
    return folder / "program", truth


def places_of(
    program: Path, truth: Truth, **settings: int | None
) -> tuple[dict[str, FrameInfo], list[str]]:
    modules = Modules(["mpiexec", "-n", "{np}", str(program)])
    return resolve([frame for frame, _, _ in truth], modules, **settings)


@pytest.mark.parametrize(
    "flags",
    [
        ("-g", "-O0"),
        ("-g", "-O2"),
        ("-g", "-O2", "-no-pie", "-fno-pie"),
        ("-gdwarf-4", "-O2"),
        ("-g", "-O2", "-gz"),
        ("-g", "-O2", "-gno-as-locview-support", "-ffunction-sections"),
    ],
    ids=" ".join,
)
def test_functions_and_lines_are_those_of_the_source(
    flags: tuple[str, ...], tmp_path: Path
) -> None:
    program, truth = build(tmp_path, *flags)
    places, notes = places_of(program, truth)
    assert notes == []
    for frame_number, (frame, function, line) in enumerate(truth):
        where = places[frame]
        source = "library.c" if frame.startswith("libown") else "program.c"
        assert (where.function, where.line) == (function, line)
        assert Path(where.file) == tmp_path / source
        assert str(where) == f"{function} {source}:{line}"
        around = [(each.function, Path(each.file).name) for each in where.around]
        assert around == ([(CALLERS[frame_number], "program.c")] if function == "inlined" else [])
        # The place it was inlined into is that of the call, in the function's own lines.
        assert all(each.line != line and each.line > 0 for each in where.around)


@pytest.mark.parametrize(
    "flags",
    [("-fPIE", "-pie"), ("-no-pie", "-fno-pie"), ("-fno-plt",), ("-Wl,-z,now",), ("-Wl,-z,lazy",)],
    ids=" ".join,
)
def test_functions_of_other_files_have_the_name_that_is_called(
    flags: tuple[str, ...], tmp_path: Path
) -> None:
    program, _ = build(tmp_path, "-g", "-O1")
    (tmp_path / "note.so.c").write_text(NOTE)
    shared = ("-shared", "-fPIC", "-x", "c", "note.so.c", "-o", "libnote.so")
    compile_(tmp_path, "-O1", *shared)
    compile_(
        tmp_path,
        *("-g", "-O1", *flags, "program.c", "-o", "program", "-L.", "-lown", "-lnote"),
        "-Wl,-rpath,$ORIGIN",
    )
    truth = truth_of(program)
    places, _ = places_of(program, truth)
    if places[truth[0][0]].calls == "" and os.uname().machine != "x86_64":
        pytest.skip("the machine code of this machine is not read")
    assert {places[frame].calls for frame, _, _ in truth} == {"note"}


def test_without_debug_information_there_are_functions(tmp_path: Path) -> None:
    program, truth = build(tmp_path, "-O2")
    places, notes = places_of(program, truth)
    (note,) = notes  # the program and its library lack the same
    assert "and program: no debug information; compile with -g to see source lines" in note
    outer = {"inlined": "outer"}  # only debug information knows what was inlined
    for number, (frame, function, _) in enumerate(truth):
        function = "main" if number == 3 else outer.get(function, function)
        where = places[frame]
        assert (where.function, where.line, where.file) == (function, 0, "")
        assert str(where) == f"{function}+{where.offset:#x}" and 0 < where.offset < 0x100


def test_stripped_files_have_module_and_offset(tmp_path: Path) -> None:
    program, truth = build(tmp_path, "-O2", link=("-s",))
    places, notes = places_of(program, truth)
    known = {frame: str(places[frame]) for frame, _, _ in truth}
    # What others link against keeps its name; static functions have none and are not guessed.
    for frame, function, _ in truth:
        if function == "in_library":
            assert known[frame].startswith("in_library+0x")
        if function == "hidden":
            assert known[frame] == frame
    assert any("1 of its 2 calls are addresses, as it has no symbols" in note for note in notes)


def test_debug_information_in_a_file_of_its_own(tmp_path: Path) -> None:
    if shutil.which("objcopy") is None:
        pytest.skip("no objcopy")
    program, truth = build(tmp_path, "-g", "-O2")
    (tmp_path / ".debug").mkdir()
    for name in ("program", "libown.so"):
        debug = f".debug/{name}.debug"
        compile_(tmp_path, "--only-keep-debug", name, debug, tool="objcopy")
        compile_(tmp_path, "--strip-all", f"--add-gnu-debuglink={debug}", name, tool="objcopy")
    places, notes = places_of(program, truth)
    assert notes == []
    assert [(places[f].function, places[f].line) for f, _, _ in truth] == [t[1:] for t in truth]


def test_debug_information_of_another_build_is_not_taken(tmp_path: Path) -> None:
    if shutil.which("objcopy") is None:
        pytest.skip("no objcopy")
    for build_id in ("--build-id=none", "--build-id=sha1"):
        folder = tmp_path / build_id[-4:]
        folder.mkdir()
        program, truth = build(folder, "-g", "-O2", link=(f"-Wl,{build_id}",))
        compile_(folder, "--only-keep-debug", "program", "program.debug", tool="objcopy")
        link = ("--strip-all", "--add-gnu-debuglink=program.debug", "program")
        compile_(folder, *link, tool="objcopy")
        lines = {f: line for f, _, line in truth if f.startswith("program")}
        assert {f: places_of(program, truth)[0][f].line for f in lines} == lines
        (folder / "program.c").write_text("/* one line more */\n" + PROGRAM)
        compile_(
            folder,
            "-g",
            "-O2",
            f"-Wl,{build_id}",
            "program.c",
            "note.o",
            "-o",
            "other",
            "-L.",
            "-lown",
            "-ldl",
            "-rdynamic",
        )
        compile_(folder, "--only-keep-debug", "other", "program.debug", tool="objcopy")
        assert {places_of(program, truth)[0][f].line for f in lines} == {0}


def test_symbols_that_a_stripped_file_carries_compressed(tmp_path: Path) -> None:
    if shutil.which("objcopy") is None:
        pytest.skip("no objcopy")
    program, truth = build(tmp_path, "-O2")
    compile_(tmp_path, "--only-keep-debug", "libown.so", "mini", tool="objcopy")
    (tmp_path / "mini.xz").write_bytes(lzma.compress((tmp_path / "mini").read_bytes()))
    carried = ("--strip-all", "--add-section", ".gnu_debugdata=mini.xz", "libown.so")
    compile_(tmp_path, *carried, tool="objcopy")
    places, _ = places_of(program, truth)
    assert [places[f].function for f, _, _ in truth if f.startswith("libown")] == [
        "hidden",
        "in_library",
    ]
    (tmp_path / "mini.xz").write_bytes(b"no xz")
    compile_(tmp_path, "--remove-section", ".gnu_debugdata", *carried, tool="objcopy")
    places, _ = places_of(program, truth)
    assert [places[f].function for f, _, _ in truth if f.startswith("libown")] == ["", "in_library"]


def test_what_a_library_of_the_system_lacks_is_not_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody compiles it anew, and functions around those without a name are shown."""
    program, truth = build(tmp_path, "-O2", link=("-s",))
    monkeypatch.setattr(Modules, "of_system", staticmethod(lambda path: "libown" in path.name))
    assert all(note.startswith("program: ") for note in places_of(program, truth)[1])
    monkeypatch.setattr(Modules, "of_system", staticmethod(lambda path: True))
    hidden = [row for row in truth if row[1] == "hidden"]
    assert places_of(program, hidden)[1] == [
        "libown.so: its calls are addresses, as it has no symbols for them; install its debug "
        "symbols to see functions"
    ]


def test_what_came_with_the_system() -> None:
    assert Modules.of_system(Path("/usr/lib/libpetsc.so.3")) and Modules.of_system(Path("/bin/sh"))
    assert not Modules.of_system(Path("/usr/local/lib/libown.so"))
    assert not Modules.of_system(Path("/home/me/build/libown.so"))


def test_a_changed_program_is_said_once_and_never_guessed(tmp_path: Path) -> None:
    program, truth = build(tmp_path, "-g", "-O2")
    traced_ns = program.stat().st_mtime_ns + 10**9
    assert places_of(program, truth, traced_ns=traced_ns)[1] == []
    os.utime(program, ns=(traced_ns + 1, traced_ns + 1))
    places, notes = places_of(program, truth, traced_ns=traced_ns)
    assert len(notes) == 1 and "program is not the file that was traced" in notes[0]
    assert "\n" not in notes[0]
    for frame, function, line in truth:
        if frame.startswith("program"):
            assert str(places[frame]) == frame and not places[frame].function
        else:  # the library is still the same
            assert (places[frame].function, places[frame].line) == (function, line)


def test_a_return_address_that_follows_no_call_tells_another_program(tmp_path: Path) -> None:
    """Where times tell nothing (copied, installed as a package) the code does."""
    if os.uname().machine != "x86_64":
        pytest.skip("known for x86-64 only")
    program, truth = build(tmp_path, "-g", "-O2")
    frame = truth[-1][0]
    shifted = f"{frame.partition('+')[0]}+{int(frame.partition('+')[2], 16) + 1:#x}"
    places, notes = resolve([frame, shifted], Modules([str(program)]))
    assert len(notes) == 1 and "is not the file that was traced" in notes[0]
    assert [str(places[each]) for each in (frame, shifted)] == [frame, shifted]


def test_modules_are_found_by_program_link_home_and_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, truth = build(tmp_path, "-g")
    frames = [frame for frame, _, _ in truth]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "alias").symlink_to(program)

    def lines(modules: Modules) -> list[int]:
        return [resolve(frames, modules)[0][frame].line for frame in frames]

    wanted = [line for _, _, line in truth]
    monkeypatch.chdir(elsewhere)
    assert lines(Modules(["mpiexec", "./alias"])) == wanted
    assert lines(Modules(["mpiexec", "./program"], homes=[tmp_path])) == wanted
    assert lines(Modules(["mpiexec", "./run.sh"], more=[tmp_path])) == wanted
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert lines(Modules(["mpiexec", "program"])) == wanted
    assert lines(Modules(["mpiexec", "./run.sh"])) == wanted, "a script starts it"
    monkeypatch.setenv("PATH", "/nowhere")
    places, notes = resolve(frames, Modules(["mpiexec", "program"]))
    assert notes == [
        "libown.so and program: not found on this machine, so calls there are addresses"
    ]
    assert [str(places[frame]) for frame in frames] == frames


@pytest.mark.parametrize(
    "line",
    [
        'exec "{there}/program" "$@"',
        'exec "$(dirname "$0")/../there/program" "$@"',
        'exec "${{0%/*}}"/../there/program "$@"',
        "cd {there} && exec ./program",
        "BIN=../there; exec $BIN/program",
    ],
)
def test_programs_are_found_through_the_script_that_starts_them(tmp_path: Path, line: str) -> None:
    there, scripts = tmp_path / "there", tmp_path / "scripts"
    there.mkdir(), scripts.mkdir()
    _, truth = build(there, "-g")
    script = scripts / "run.sh"
    frames = [frame for frame, _, _ in truth]
    script.write_text(f"echo no script: {there}/program\n")
    assert not resolve(frames, Modules(["mpiexec", str(script)]))[0][frames[0]].line
    script.write_text("#!/bin/sh\n" + line.format(there=there) + "\n")
    places, notes = resolve(frames, Modules(["mpiexec", "-n", "{np}", str(script)]))
    assert not notes
    assert [places[frame].line for frame in frames] == [number for _, _, number in truth]


def test_files_that_are_no_programs_are_one_sentence(tmp_path: Path) -> None:
    program, truth = build(tmp_path, "-g")
    whole = program.read_bytes()
    frames = [frame for frame, _, _ in truth if frame.startswith("program")]
    found = {"lines": 0, "note": 0}
    chance = random.Random(4)
    damages = [whole[:size] for size in (4, 16, 63, 64, 65, 4096, len(whole) // 2, len(whole) - 1)]
    for _ in range(120):
        data = bytearray(whole)
        for _ in range(chance.choice([1, 8, 200])):
            data[chance.randrange(4, len(data))] = chance.randrange(256)
        damages.append(bytes(data))
    for data in damages:
        program.write_bytes(data)
        places, notes = resolve(frames, Modules([str(program)]))
        assert len(notes) <= 1 and all("\n" not in note for note in notes)
        assert set(places) == set(frames)
        found["note" if notes else "lines"] += 1
    assert min(found.values()) > 5, found
    program.unlink()
    os.mkfifo(program)  # opening it would wait for ever
    assert "not found" in resolve(frames, Modules([str(program)]))[1][0]


# ---- names ---------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("exchange", "exchange"),
        ("exchange_", "exchange"),
        ("__grid_MOD_halo", "grid::halo"),
        ("__my_mod_MOD_do_it", "my_mod::do_it"),
        ("grid_mp_halo_", "grid::halo"),
        ("_QMgridPhalo", "grid::halo"),
        ("_QPsolve", "solve"),
        ("MAIN__", "main program"),
        ("step.constprop.0", "step"),
        ("step.isra.0.part.1.cold", "step"),
        ("main._omp_fn.3", "main (parallel region)"),
        (".omp_outlined._debug__.3", "parallel region"),
        ("inner.0", "inner"),
        ("__libc_start_main", "__libc_start_main"),
        ("solve@@LIB_1.2", "solve"),
        ("_ZN4Comm4sendEi@LIB_1", "Comm::send"),
        ("_", "_"),
        ("_Znot mangled", "_Znot mangled"),
    ],
)
def test_names(symbol: str, name: str) -> None:
    assert readable(symbol) == name


@pytest.mark.parametrize(
    ("full", "name"),
    [
        ("Comm::send(int, double*) const", "Comm::send"),
        ("void send<double, std::less<int> >(std::vector<double>&)", "send"),
        ("std::map<int, Grid<3> >::at(int)", "std::map::at"),
        ("(anonymous namespace)::halo(int)", "{anonymous}::halo"),
        ("name[abi:cxx11](int)", "name"),
        ("Grid::operator()(int)", "Grid::operator()(int)"),
    ],
)
def test_cpp_names_lose_what_is_long(full: str, name: str) -> None:
    assert without_parameters(full) == name


def test_cpp(tmp_path: Path) -> None:
    if shutil.which("g++") is None:
        pytest.skip("no C++ compiler")
    (tmp_path / "note.c").write_text(NOTE)
    (tmp_path / "program.cc").write_text(
        'extern "C" void note(const char *, int);\n'
        "namespace grid { struct Halo {\n"
        "  template <class T> __attribute__((noinline)) void send(T) {\n"
        '    note("grid::Halo::send", __LINE__); asm(""); }\n'
        "}; }\n"
        "namespace { __attribute__((noinline)) void local(int) {\n"
        '    note("{anonymous}::local", __LINE__); asm(""); } }\n'
        "int main() { grid::Halo h; h.send(1); h.send(2.0); local(3);\n"
        '  note("main", __LINE__); return 0; }\n'
    )
    compile_(tmp_path, "-c", "note.c")
    for flags in (("-g",), ()):
        compile_(
            tmp_path,
            "-O1",
            *flags,
            "program.cc",
            "note.o",
            "-rdynamic",
            "-ldl",
            "-o",
            "program",
            tool="g++",
        )
        truth = truth_of(tmp_path / "program")
        places, _ = places_of(tmp_path / "program", truth)
        assert len(truth) == 4
        for frame, function, line in truth:
            # What has no name for the linker stands in debug information without its scope.
            short = function.rpartition("::")[2]
            assert places[frame].function in (function, short if "anon" in function else function)
            assert places[frame].line == (line if flags else 0)


def test_fortran(tmp_path: Path) -> None:
    if shutil.which("gfortran") is None:
        pytest.skip("no Fortran compiler")
    (tmp_path / "plain.c").write_text(
        NOTE.replace(
            "void note(const char *function, int line)\n{",
            'void note_(int *at)\n{ int line = *at; const char *function = "?";',
        )
    )
    (tmp_path / "program.f90").write_text(
        "module grid\ncontains\n"
        "  subroutine halo()\n    call note(4)\n    call note(5)\n  end subroutine\n"
        "end module\n"
        "subroutine solve()\n  call note(9)\n  call note(10)\nend subroutine\n"
        "program hello\n  use grid\n  call halo()\n  call solve()\n"
        "  call note(16)\n  call note(17)\nend program\n"
    )
    compile_(tmp_path, "-c", "plain.c")
    for flags in (("-g",), ()):
        compile_(
            tmp_path,
            "-O0",
            *flags,
            "program.f90",
            "plain.o",
            "-rdynamic",
            "-ldl",
            "-o",
            "program",
            tool="gfortran",
        )
        truth = truth_of(tmp_path / "program")
        places, _ = places_of(tmp_path / "program", truth)
        names = ["grid::halo"] * 2 + ["solve"] * 2 + ["main program"] * 2
        assert [places[frame].function for frame, _, _ in truth] == names
        lines = [line if flags else 0 for _, _, line in truth]
        assert [places[frame].line for frame, _, _ in truth] == lines


# ---- frames --------------------------------------------------------------------------------
def test_python_frames_are_what_they_say() -> None:
    where = parse("script.py:Grid.exchange.<locals>.<lambda>:12")
    assert where.python and (where.file, where.line) == ("script.py", 12)
    assert str(where) == "Grid.exchange.<locals>.<lambda> script.py:12"
    frames = ["MPI.cpython-311.so+0x10", "script.py:step:5", "script.py:<module>:9"]
    assert select_frames(frames) == frames[1:]
    assert [str(each) for each in stack(frames, {})] == ["step script.py:5", "<module> script.py:9"]
    assert resolve(select_frames(frames), Modules()) == ({f: parse(f) for f in frames[1:]}, [])


def test_libraries_below_an_extension_module_are_shown() -> None:
    extension = ["PETSc.cpython-311-x86_64-linux-gnu.so+0x1", "libpython3.11.so.1.0+0x2"]
    script = ["run.py:solve:5", "run.py:<module>:9"]
    library = ["libpetsc.so.3+0x1", "libpetsc.so.3+0x2"]
    assert select_frames([*library, *extension, *script]) == [*library, *script]
    assert select_frames([*extension, *script]) == script
    assert select_frames([*library, *extension[:1], extension[0], extension[1], *script]) == [
        *library,
        *script,
    ]
    # one extension module that calls another is no library
    assert select_frames(["MPI.abi3.so+0x1", *extension, *script]) == script


def test_the_import_system_is_not_shown() -> None:
    frames = ["MPI.so+0x1", "<frozen importlib._bootstrap>:_load:241", "a.py:<module>:1"]
    assert select_frames(frames) == ["a.py:<module>:1"]
    assert select_frames(frames[:2]) == frames[1:2]


@pytest.mark.parametrize(
    "frame", ["", "?", "+0x", "app+0x", "app+0xzz", "app+0x" + "f" * 40, "a:b", ":::", "\n", "é+1"]
)
def test_any_text_is_a_frame(frame: str) -> None:
    places, _ = resolve([frame], Modules())
    assert str(places[frame]) == frame
