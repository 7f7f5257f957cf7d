"""Call sites: one per place and way there, the same on all ranks, in all runs, at all counts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from tracer_helpers import PROGRAMS, compile_c, the_mpi, trace

from p3s.capture import RunTrace
from p3s.capture.callpath import call_path, stack
from p3s.capture.modules import Modules
from p3s.capture.sites import resolve

pytestmark = [pytest.mark.skipif(the_mpi() is None, reason="no usable MPI")]


def _site_of_place(run: RunTrace, directory: Path) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for rank in run.ranks:
        places = (directory / f"places-{rank.rank:06d}.txt").read_text().splitlines()
        sites = [
            run.calls[call].site
            for call in rank.call.tolist()
            if run.calls[call].op == "MPI_Barrier"
        ]
        assert len(sites) == len(places)
        for place, site in zip(places, sites, strict=True):
            found.setdefault(place, set()).add(run.sites[site].key)
    return found


@pytest.mark.parametrize("flags", ["-O2", "-O0"])
def test_places_and_sites_correspond(
    flags: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    program = compile_c(PROGRAMS / "sites.c", tmp_path / "sites", flags)
    seen = []
    for np in (1, 3):
        run = trace([str(program)], np, tmp_path / f"run{np}")
        seen.append(_site_of_place(run, tmp_path))
    assert seen[0] == seen[1]
    places = seen[0]
    # A place reached through two different lines of main is two sites; all others are one.
    several = {"one", "two", "three"}
    ping = {"mutual recursion"}
    qsort = {"callback of qsort"}
    for place, keys in places.items():
        if place in several:
            assert len(keys) == 2, place
        elif place in ping:
            assert 1 <= len(keys) <= 2, place
        elif place in qsort:
            assert len(keys) >= 1
        else:
            assert len(keys) == 1, place
    owners = Counter(key for keys in places.values() for key in keys)
    assert set(owners.values()) == {1}, "two places share a site"


def test_frames_name_module_and_offset_up_to_main(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    program = compile_c(PROGRAMS / "sites.c", tmp_path / "sites", "-O2")
    run = trace([str(program)], 1, tmp_path / "run")
    barriers = {call.site for call in run.calls if call.op == "MPI_Barrier"}
    for site in barriers:
        frames = run.sites[site].frames
        assert frames
        for frame in frames:
            module, _, offset = frame.partition("+0x")
            assert int(offset, 16) > 0
            assert not module.startswith("tracer-")
        assert frames[0].startswith("sites+0x"), "innermost frame is the program's"
        assert frames[-1].startswith("sites+0x"), "outermost frame is main"


def test_recursion_is_one_site_and_keeps_its_depth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    program = compile_c(PROGRAMS / "sites.c", tmp_path / "sites", "-O1", "-fno-inline")
    run = trace([str(program)], 2, tmp_path / "run")
    for rank in run.ranks:
        places = (tmp_path / f"places-{rank.rank:06d}.txt").read_text().splitlines()
        levels = (tmp_path / f"depths-{rank.rank:06d}.txt").read_text().splitlines()
        barriers = [c for c in (run.calls[k] for k in rank.call.tolist()) if c.op == "MPI_Barrier"]
        recursive = [c for c, place in zip(barriers, places, strict=True) if place == "recursion"]
        assert len({c.site for c in recursive}) == 1
        # recurse(n) is on the stack n + 1 times; the innermost call is at another place in it,
        # and of the n equal return addresses one stays.
        assert [c.depth for c in recursive] == [int(level) - 1 for level in levels]
        assert max(c.depth for c in recursive) == 2999


def test_a_program_may_be_removed_while_it_runs(tmp_path: Path) -> None:
    source = """
        #include <mpi.h>
        #include <unistd.h>
        int main(int argc, char **argv)
        {
            MPI_Init(0, 0);
            unlink(argv[0]);
            MPI_Barrier(MPI_COMM_SELF);
            MPI_Finalize();
        }
    """
    program = compile_c(source, tmp_path / "removed")
    run = trace([str(program)], 1, tmp_path / "run")
    assert {site.frames[0].split("+")[0] for site in run.sites} == {"removed"}


#: A library whose calls are made in functions that nobody else sees; one entry has a version.
LIBRARY = """
    #include <mpi.h>
    #define NO_TAIL_CALL __asm__ volatile("" ::: "memory")
    #define NOT_INLINED __attribute__((noinline))
    static NOT_INLINED void deepest(void) { MPI_Barrier(MPI_COMM_WORLD); NO_TAIL_CALL; }
    NOT_INLINED void library_dot(void) { deepest(); NO_TAIL_CALL; }
    static NOT_INLINED void hidden(int k)
    {
        if (k) library_dot(); else deepest();
        NO_TAIL_CALL;
    }
    __asm__(".symver solve_1, library_solve@@V_1");
    void solve_1(int k) { hidden(k); NO_TAIL_CALL; }
"""


def test_calls_in_a_stripped_library_show_its_entry_and_the_program(tmp_path: Path) -> None:
    (tmp_path / "map").write_text("V_1 { global: library_*; local: *; };\n")
    compile_c(
        LIBRARY,
        tmp_path / "libsolve.so.3",
        "-shared",
        "-fPIC",
        "-s",
        "-O1",
        "-fno-ipa-cp",
        f"-Wl,--version-script={tmp_path / 'map'},-soname,libsolve.so.3",
    )
    program = compile_c(
        "#include <mpi.h>\nvoid library_solve(int);\n"
        "static __attribute__((noinline)) void step(int k)\n{\n    library_solve(k);\n"
        '    __asm__ volatile("" ::: "memory");\n}\n'
        "int main(int argc, char **argv)\n{\n    MPI_Init(&argc, &argv);\n"
        "    for (int k = 0; k < 2; k++)\n        step(k);\n    MPI_Finalize();\n}\n",
        tmp_path / "app",
        str(tmp_path / "libsolve.so.3"),
        "-Wl,-rpath,$ORIGIN",
    )
    run = trace([str(program)], 2, tmp_path / "run")
    places, notes = resolve([f for s in run.sites for f in s.frames], Modules([str(program)]))
    assert all("libsolve.so.3" in note for note in notes)
    shown = []
    for call in run.calls:
        if call.op == "MPI_Barrier":
            path = call_path(stack(run.sites[call.site].frames, places))
            assert path is not None
            shown.append([path.place, *path.callers()])
    assert shown == [
        ["library_solve", "step app.c:5"],
        ["library_dot", "library_solve", "step app.c:5"],
    ]
