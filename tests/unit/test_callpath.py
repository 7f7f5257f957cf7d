"""Which frames of a call stack are shown: of programs, libraries, callbacks, threads and Python."""

from __future__ import annotations

import pytest

from p3s.capture.callpath import CallPath, FrameInfo, call_path, parse
from p3s.report.places import call_place, common_place, joined_places

LIBRARY = "libsolve.so.3"


def at(module: str, function: str = "", line: int = 0, offset: int = 0x10) -> FrameInfo:
    file = f"{module.split('.')[0]}.c" if line else ""
    return FrameInfo(f"{module}+{function}{line}{offset:#x}", module, function, file, line, offset)


def named(*stack: FrameInfo) -> list[str]:
    """What is shown of a stack, in full."""
    path = call_path(stack)
    assert path is not None
    return [path.place, *path.callers()]


STEP, MAIN = at("app", "step", 28), at("app", "main", 50)
SOLVE, DOT = at(LIBRARY, "KSPSolve"), at(LIBRARY, "VecTDot")
HIDDEN, DEEPER = at(LIBRARY, offset=0xE95895), at(LIBRARY, offset=0x7BC2B8)


@pytest.mark.parametrize(
    ("frames", "wanted"),
    [
        ([STEP, MAIN], ["step app.c:28", "main app.c:50"]),
        ([MAIN], ["main app.c:50"]),
        # what the library's authors alone know gives way to the function that was called
        ([HIDDEN, SOLVE, STEP, MAIN], ["KSPSolve", "step app.c:28"]),
        ([DEEPER, DOT, HIDDEN, SOLVE, STEP, MAIN], ["VecTDot", "KSPSolve", "step app.c:28"]),
        ([DOT, SOLVE, STEP, MAIN], ["VecTDot+0x10", "KSPSolve", "step app.c:28"]),
        (
            [DOT, at(LIBRARY, "KSPStep"), HIDDEN, SOLVE, STEP, MAIN],
            ["VecTDot+0x10", "KSPStep", "KSPSolve", "step app.c:28"],
        ),
        # a second library below the first
        (
            [at("libblas.so", "dot"), DOT, SOLVE, STEP],
            ["dot+0x10", "VecTDot", "KSPSolve", "step app.c:28"],
        ),
        (
            [at("libblas.so", offset=5), HIDDEN, SOLVE, STEP],
            ["libblas.so+0x5", "KSPSolve", "step app.c:28"],
        ),
        # a program without symbols says nothing that people know, unless it is all there is
        ([DOT, SOLVE, at("app")], ["VecTDot+0x10", "KSPSolve"]),
        ([HIDDEN, at("app", offset=5)], [f"{LIBRARY}+0xe95895", "app+0x5"]),
        ([at("app", offset=5), at("app", offset=6), at("app", offset=7)], ["app+0x5", "app+0x6"]),
        ([at("app", offset=5), at("app", "main", offset=6)], ["main"]),
        # a callback, and what calls it
        (
            [at("app", "mult", 12), at(LIBRARY, "MatMult"), HIDDEN, SOLVE, STEP, MAIN],
            ["mult app.c:12", "MatMult", "KSPSolve", "step app.c:28"],
        ),
        # what begins threads and sorts is not what the program called
        (
            [DOT, SOLVE, at("app", "worker", 7), at("libgomp.so.1", "GOMP_run")],
            ["VecTDot+0x10", "KSPSolve", "worker app.c:7"],
        ),
        (
            [at("app", "compare", 3), at("libc.so.6", "qsort"), MAIN],
            ["compare app.c:3", "main app.c:50"],
        ),
        # Python: the library that an extension module calls, and the script
        (
            [DOT, HIDDEN, SOLVE, parse("run.py:solve:5"), parse("run.py:<module>:9")],
            ["VecTDot+0x10", "KSPSolve", "solve run.py:5"],
        ),
        (
            [HIDDEN, SOLVE, at("libffi.so.8", "ffi_call"), parse("run.py:solve:5")],
            ["KSPSolve", "solve run.py:5"],
        ),
    ],
)
def test_frames_that_matter(frames: list[FrameInfo], wanted: list[str]) -> None:
    # Texts of made frames are not what a capture holds; those without a name show themselves.
    shown = [
        FrameInfo(f"{w.module}+{w.offset:#x}", w.module, w.function, w.file, w.line, w.offset)
        if not (w.function or w.python)
        else w
        for w in frames
    ]
    assert named(*shown) == wanted


def test_nothing_known() -> None:
    assert call_path([]) is None
    assert call_place([], {}) == ("?", "") and joined_places([], {}) == "?"
    assert named(parse("?")) == ["?"]


@pytest.mark.parametrize(
    ("room", "text"),
    [
        (80, "VecTDot+0x10 < KSPStep < KSPSolve < step app.c:28"),
        (48, "VecTDot+0x10 < KSPStep < KSPSolve < step"),
        (39, "VecTDot+0x10 < KSPSolve < step app.c:28"),
        (38, "VecTDot+0x10 < KSPSolve < step"),
        (29, "VecTDot+0x10 < step app.c:28"),
        (25, "VecTDot+0x10 < step"),
        (5, "VecTDot+0x10"),
    ],
)
def test_what_tells_least_is_left_out_first(room: int, text: str) -> None:
    path = call_path([DOT, at(LIBRARY, "KSPStep"), HIDDEN, SOLVE, STEP, MAIN])
    assert path is not None and path.within(room) == text


def test_a_caller_goes_before_an_entry_without_a_program() -> None:
    path = call_path([DOT, at(LIBRARY, "KSPStep"), SOLVE, at("app")])
    assert path is not None
    assert [path.within(room) for room in (40, 30, 20)] == [
        "VecTDot+0x10 < KSPStep < KSPSolve",
        "VecTDot+0x10 < KSPStep",
        "VecTDot+0x10",
    ]
    assert CallPath(MAIN, "main").within(0) == "main"


# ---- functions that the program calls by name ----------------------------------------------------
def calling(name: str, line: int) -> FrameInfo:
    """A frame of the program that calls a function of another file."""
    where = at("app", "step", line)
    return FrameInfo(where.frame, where.module, where.function, where.file, line, calls=name)


@pytest.mark.parametrize(
    ("frames", "wanted"),
    [
        # solve ends in a call of KSPSolve and leaves no frame
        (
            [DOT, SOLVE, calling("solve", 28)],
            ["VecTDot+0x10", "KSPSolve", "solve", "step app.c:28"],
        ),
        ([DOT, calling("dot", 28)], ["VecTDot+0x10", "dot", "step app.c:28"]),
        ([HIDDEN, calling("solve", 28)], [f"{LIBRARY}+0xe95895", "solve", "step app.c:28"]),
        ([DEEPER, HIDDEN, calling("solve", 28)], [f"{LIBRARY}+0x7bc2b8", "solve", "step app.c:28"]),
        ([DOT, SOLVE, calling("KSPSolve", 28)], ["VecTDot+0x10", "KSPSolve", "step app.c:28"]),
        ([DOT, calling("VecTDot", 28)], ["VecTDot+0x10", "step app.c:28"]),
        ([calling("MPI_Send", 28), MAIN], ["step app.c:28", "main app.c:50"]),
    ],
)
def test_the_function_of_a_library_has_the_name_that_the_program_calls(
    frames: list[FrameInfo], wanted: list[str]
) -> None:
    shown = [w if w.function else parse(f"{w.module}+{w.offset:#x}") for w in frames]
    assert named(*shown) == wanted


# ---- several calls -------------------------------------------------------------------------------
def _sites(*stacks: list[FrameInfo]) -> tuple[list[list[str]], dict[str, FrameInfo]]:
    """Frames as a capture has them, and their places."""
    places = {where.frame: where for frames in stacks for where in frames}
    return [[where.frame for where in frames] for frames in stacks], places


def test_a_phase_in_a_library_is_the_function_that_the_program_called() -> None:
    sites, places = _sites(
        [DEEPER, DOT, HIDDEN, SOLVE, STEP, MAIN],
        [at(LIBRARY, offset=0x1000), at(LIBRARY, offset=0xE95999), SOLVE, STEP, MAIN],
    )
    assert common_place(sites, places) == ("KSPSolve < step app.c:28", True)
    assert common_place(sites, places, 10) == ("KSPSolve", True)
    assert common_place(sites[:1], places) == ("VecTDot < KSPSolve < step app.c:28", True)


def test_a_phase_of_the_program_is_its_function_with_lines() -> None:
    sites, places = _sites([STEP, MAIN], [SOLVE, at("app", "step", 30), MAIN])
    assert common_place(sites, places) == ("step app.c:28-30", True)


def test_a_phase_that_is_in_libraries_alone_names_their_functions() -> None:
    sites, places = _sites(
        [DOT, calling("solve", 28), MAIN], [HIDDEN, SOLVE, calling("", 30), MAIN]
    )
    assert common_place(sites, places) == ("solve, KSPSolve < step app.c:28-30", True)
    many = [[HIDDEN, calling(f"f{k}", k), MAIN] for k in range(1, 6)]
    sites, places = _sites(*many)
    assert common_place(sites, places) == ("f1, f2, f3 and 2 more < step app.c:1-5", True)


def test_a_place_without_a_name_is_not_known() -> None:
    sites, places = _sites([at("app", offset=5), at("app", offset=6)])
    assert common_place(sites, places)[1] is False


def test_calls_of_a_library_share_what_called_it() -> None:
    other = [at(LIBRARY, "VecNorm"), HIDDEN, SOLVE, STEP, MAIN]
    sites, places = _sites([DOT, HIDDEN, SOLVE, STEP, MAIN], other, [HIDDEN, SOLVE, STEP, MAIN])
    assert joined_places(sites, places) == "VecTDot+0x10 and 2 more < KSPSolve < step app.c:28"
    assert joined_places(sites[::-1], places) == "KSPSolve and 2 more < step app.c:28"
    assert call_place(sites[0], places) == ("VecTDot+0x10", "KSPSolve < step app.c:28")


def test_calls_from_several_lines_of_a_function_have_all_of_them() -> None:
    sites, places = _sites([DOT, calling("solve", 28), MAIN], [DOT, calling("solve", 30), MAIN])
    assert joined_places(sites, places) == "VecTDot+0x10 < solve < step app.c:28-30"
