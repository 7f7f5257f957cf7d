"""A study from somebody else is a program: what it holds is not run without being allowed."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import models
import pytest
from captured_runs import check_runs
from commands import cli
from made_predictions import made_prediction
from paths import ROOT
from replay_jobs import Script, program_of, world_of
from report_studies import put_study
from test_far_next import put_run

from p3s.base.artefacts import read_json, write_json
from p3s.base.command_lines import without_arguments
from p3s.base.errors import P3SError, UsageError
from p3s.base.host import compiling, mpi
from p3s.base.host.command import UNKNOWN, parse
from p3s.base.settings import parameters, parse_setting, value_study
from p3s.base.study import Study
from p3s.base.trust import allow, is_own, is_signed, sign, user_key
from p3s.pipeline.gather import _launcher, put_runs
from p3s.replay.engine.job import ResultStore

COUNTS = (2, 4, 8)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration and a cache of the test's own, and a directory to be in."""
    place = tmp_path / "home"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(place / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(place / "cache"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return place


def evil(path: Path, says: str = "") -> Path:
    """Write a program that leaves a file beside itself when it is run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{says}'\ntouch '{path}.was-run'\n")
    path.chmod(0o755)
    return path


def was_run(path: Path) -> bool:
    return Path(f"{path}.was-run").exists()


def study_of(root: Path, words: list[str], **info: Any) -> Study:
    """Make a study that holds complete runs of a command, as another user's P3S has made them."""
    made = Study.create(root, words)
    for n in COUNTS:
        put_run(made, n, argv=words, **{"directory": os.getcwd(), **info})
    return made


def signed_study(root: Path, words: list[str], **info: Any) -> Study:
    return study_of(root, words, signed=sign(words, os.getcwd()), **info)


# ---- what is run --------------------------------------------------------------------------------
def test_validate_asks_before_it_runs_the_command_of_a_strangers_study(tmp_path: Path) -> None:
    launcher, program = evil(tmp_path / "bin/mpiexec", "Open MPI"), evil(tmp_path / "bin/app")
    study_of(tmp_path / "study", [str(launcher), "-n", "{np}", str(program)])
    said = cli(f"validate {tmp_path / 'study'} -n 16", code=2).err
    assert "--trust" in said and str(program) in said and said.count("\n") == 1
    assert not was_run(launcher) and not was_run(program)


def test_a_study_without_a_finished_run_is_called_that_and_no_strangers(tmp_path: Path) -> None:
    launcher = evil(tmp_path / "bin/mpiexec", "Open MPI")
    Study.create(tmp_path / "study", [str(launcher), "-n", "{np}", "./app"])
    said = cli(f"validate {tmp_path / 'study'} -n 16", code=1).err
    assert "the model needs 3 process counts, 0 are there" in said and "not made by you" not in said
    assert not was_run(launcher)


def test_an_answer_on_a_terminal_counts(tmp_path: Path) -> None:
    study = study_of(tmp_path / "study", ["./mpiexec", "-n", "{np}", "./app"])
    for answer, told in (("n\n", "add --trust"), ("y\n", "launcher not found")):
        ours, theirs = pty.openpty()
        os.write(ours, answer.encode())
        done = subprocess.run(
            [sys.executable, "-m", "p3s", "validate", str(study.root), "-n", "16"],
            stdin=theirs,
            stderr=theirs,
            stdout=subprocess.DEVNULL,
            timeout=120,
        )
        os.close(theirs)
        said = os.read(ours, 65536).decode()
        os.close(ours)
        assert "Run it?" in said and "./app" in said
        assert told in " ".join(said.split()), said
        assert done.returncode == (2 if answer == "n\n" else 1)
    assert is_own(study, study.command(), os.getcwd())  # what was allowed is not asked again


def test_what_proposes_commands_does_not_run_the_launcher(tmp_path: Path) -> None:
    launcher = evil(tmp_path / "bin/mpiexec", "mpiexec (OpenRTE) 4.1.4")
    program = evil(tmp_path / "bin/app")
    words = [str(launcher), "--oversubscribe", "-n", "{np}", str(program), "input"]
    assert without_arguments(words) == words[:-1]
    assert not was_run(launcher)
    assert parse(words, 4, trusted=False).family == UNKNOWN
    assert not was_run(launcher)
    parse(words, 4)  # the user's own
    assert was_run(launcher)


def test_a_launcher_on_path_is_the_users_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = evil(tmp_path / "bin/mpiexec", "mpiexec (OpenRTE) 4.1.4")
    monkeypatch.setenv("PATH", f"{launcher.parent}:{os.environ['PATH']}")
    evil(tmp_path / "bin/app")
    for word in ("mpiexec", str(launcher)):
        assert parse([word, "-n", "{np}", "app"], 4, trusted=False).family == mpi.OPENMPI


def test_the_compiler_of_a_strangers_capture_is_not_asked(tmp_path: Path) -> None:
    compiler = evil(tmp_path / "bin/mpicc", 'p3s openmpi "4.1.4"')
    assert _launcher({"mpicc": str(compiler)}, False) == "mpiexec"
    assert not was_run(compiler)
    _launcher({"mpicc": str(compiler)}, True)
    assert was_run(compiler)


def study_with_frames(root: Path, file: Path) -> Study:
    """Make a study of somebody else with calls that are said to be on line 2 of a file."""
    model = models.built("jacobi2d")
    sites = {site: (f"{file}:leak:2",) * len(frames) for site, frames in model.sites.items()}
    return put_study(root, made_prediction(), model=replace(model, sites=sites))


def page_of(study: Study) -> str:
    cli(f"report {study.root}", code=(0, 3))
    return study.report_path.read_text()


def test_lines_of_the_readers_files_are_not_in_the_report_of_a_strangers_study(
    tmp_path: Path,
) -> None:
    secret = tmp_path / "settings.py"
    secret.write_text("# mine\nPASSWORD = 'hunter2'\n")
    study = study_with_frames(tmp_path / "study", secret)
    link = study.root / "linked.py"
    link.symlink_to(secret)
    page = page_of(study)
    assert "hunter2" not in page and "Lines of source are left out" in page
    assert "hunter2" not in page_of(study_with_frames(tmp_path / "linked", link))
    # Whoever says that it ran in the reader's directory gains nothing.
    info = read_json(study.runs_dir(2) / "run.json", "p3s.run")
    write_json(study.runs_dir(2) / "run.json", info | {"directory": str(tmp_path), "signed": "00"})
    assert "hunter2" not in page_of(study)


def test_lines_of_source_are_quoted_of_ones_own_program_and_from_a_study(tmp_path: Path) -> None:
    file = tmp_path / "solver.py"
    file.write_text("import mpi\nmpi.exchange(halo)\n")
    study = study_with_frames(tmp_path / "study", file)
    info = read_json(study.runs_dir(2) / "run.json", "p3s.run")
    signed = {"directory": os.getcwd(), "signed": sign(study.command(), os.getcwd())}
    write_json(study.runs_dir(2) / "run.json", info | signed)
    page = page_of(study)
    assert "mpi.exchange(halo)" in page and "Lines of source are left out" not in page
    inside = tmp_path / "other" / "solver.py"
    study = study_with_frames(tmp_path / "other", inside)
    inside.write_text(file.read_text())
    os.utime(inside, (0, 0))  # before the runs
    assert "mpi.exchange(halo)" in page_of(study)


def test_nothing_is_imported_from_the_current_directory(tmp_path: Path) -> None:
    Path("mpi4py.py").write_text("open('imported', 'w').close()\n")
    mpi.library_of_python.cache_clear()
    mpi.library_of_python(sys.executable)
    assert not Path("imported").exists()


@pytest.mark.parametrize("room", ["p3s", "replay", "signature_runner"])
def test_own_processes_import_nothing_from_the_current_directory(room: str) -> None:
    for path in (ROOT / room).rglob("*.py"):
        for found in re.finditer(r"sys\.executable,\s*(\S+)", path.read_text()):
            module = re.match(r'"-[mc]"', found[1])
            assert not module, f"{path}: starts Python without -P: {found[0]}"


# ---- whose it is --------------------------------------------------------------------------------
def test_a_users_own_study_and_its_copies_are_known(tmp_path: Path) -> None:
    words = ["mpiexec", "-n", "{np}", "./app"]
    study = signed_study(tmp_path / "study", words)
    copy = Study(Path(shutil.copytree(study.root, tmp_path / "elsewhere" / "copy")))
    assert is_own(study, words, os.getcwd()) and is_own(copy, words, os.getcwd())
    link = tmp_path / "another-name"
    link.symlink_to(os.getcwd())  # a home that other nodes mount under another name
    assert is_own(study, words, str(link))


@pytest.mark.parametrize("change", ["words", "directory", "key", "signature"])
def test_what_was_changed_is_not_known(tmp_path: Path, home: Path, change: str) -> None:
    words, where = ["mpiexec", "-n", "{np}", "./app"], os.getcwd()
    study = signed_study(tmp_path / "study", words)
    if change == "words":
        words = [*words, "--more"]
        study.update(commands=[words])
    elif change == "directory":
        (tmp_path / "evil").mkdir()
        where = str(tmp_path / "evil")
        for run_ in study.runs():
            write_json(run_.path / "run.json", {**run_.info, "directory": where})
    elif change == "key":
        (home / "config/p3s/key").unlink()
    else:
        for run_ in study.runs():
            write_json(run_.path / "run.json", {**run_.info, "signed": ["é", 1]})
    assert not is_own(study, words, where)


def test_what_was_allowed_once_is_remembered(tmp_path: Path) -> None:
    words = ["mpiexec", "-n", "{np}", "./app"]
    study = study_of(tmp_path / "study", words)
    assert not is_own(study, words, os.getcwd())
    allow(study, words, os.getcwd())
    assert is_own(study, words, os.getcwd())
    assert not is_own(study, [*words, "x"], os.getcwd())
    assert not is_own(study, words, str(tmp_path))


def test_a_value_that_was_not_traced_is_known_by_the_others(tmp_path: Path) -> None:
    root = Study.create(tmp_path / "study", ["mpiexec", "-n", "{np}", "./app", "{size}"])
    root.update(parameters={"size": ["100", "200"]})
    for size in (100, 200):
        signed_study(root.at_dir(f"size={size}"), ["mpiexec", "-n", "{np}", "./app", str(size)])
        for n in COUNTS:
            write_json(
                Study(root.at_dir(f"size={size}")).signature_path(n),
                {"schema": "p3s.signature", "schema_version": 1},
            )
    words = ["mpiexec", "-n", "{np}", "./app", "400"]
    made = Study.create(value_study(root, {"size": 400}).root, words)
    made.update(derived=True, parent="../..")
    assert is_own(made, words, os.getcwd())
    assert not is_own(made, [*words[:-2], "./other", "400"], os.getcwd())
    root.update(commands=[["mpiexec", "-n", "{np}", "./other", "{size}"]])
    assert not is_own(made, ["mpiexec", "-n", "{np}", "./other", "400"], os.getcwd())


# ---- the key ------------------------------------------------------------------------------------
def test_the_key_is_the_users_alone(home: Path) -> None:
    assert len(user_key()) == 32 and user_key() == user_key()
    key = home / "config/p3s/key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert stat.S_IMODE(key.parent.stat().st_mode) == 0o700
    assert [path.name for path in key.parent.iterdir()] == ["key"]


def test_a_key_that_others_can_read_or_replace_is_refused(home: Path) -> None:
    signature = sign(["a"], "/")
    key = home / "config/p3s/key"
    for place, mode in ((key, 0o640), (key.parent, 0o777)):
        before = stat.S_IMODE(place.stat().st_mode)
        place.chmod(mode)
        with pytest.raises(P3SError, match="others") as caught:
            is_signed(signature, ["a"], "/")
        assert "\n" not in str(caught.value) and sign(["a"], "/") == ""
        place.chmod(before)
    assert is_signed(signature, ["a"], "/")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_a_key_of_another_user_is_refused(home: Path) -> None:
    user_key()
    os.chown(home / "config/p3s/key", 12345, 12345)
    with pytest.raises(P3SError, match="another user"):
        user_key()


def test_processes_that_begin_together_make_one_key(home: Path) -> None:
    code = "from p3s.base.trust import user_key; print(user_key().hex())"
    started = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        for _ in range(6)
    ]
    assert len({process.communicate(timeout=120)[0] for process in started}) == 1


# ---- what is loaded -----------------------------------------------------------------------------
def test_a_library_of_the_cache_that_was_changed_is_made_again(tmp_path: Path) -> None:
    source = tmp_path / "one.c"
    source.write_text("int one(void) { return 1; }\n")

    def made() -> Path:
        compiler = compiling.c_compiler("the test")
        return compiling.compile_cached(
            "one.so", [source], ("-shared", "-fPIC"), compiler=compiler, what="the test"
        )

    first = made()
    content = first.read_bytes()
    first.write_bytes(content + b"changed")
    assert not compiling.is_sound(first)
    assert made().read_bytes() == content and compiling.is_sound(first)
    first.chmod(0o777)
    assert not compiling.is_sound(first)
    made()
    other = tmp_path / "other.so"
    shutil.copy(first, other)
    first.unlink()
    first.symlink_to(other)
    assert not compiling.is_sound(first)
    assert not made().is_symlink()


def test_a_remembered_tracer_outside_of_the_cache_is_not_loaded(tmp_path: Path) -> None:
    from p3s.signature_runner.attach import _recall

    row = {"family": "openmpi", "version": "4", "mpicc": "mpicc", "python": None}
    outside, inside = tmp_path / "tracer.so", compiling.cache_dir() / "tracer.so"
    for place in (outside, inside):
        draft = tmp_path / "draft"
        draft.write_bytes(b"library")
        compiling.keep(draft, place)
    known = compiling.cache_dir() / "known-1.json"
    known.write_text(json.dumps({**row, "path": str(outside)}))
    assert _recall(known) == (None, None)
    known.write_text(json.dumps({**row, "path": str(inside)}))
    assert _recall(known)[0] is not None


def test_a_job_that_was_changed_is_refused(tmp_path: Path) -> None:
    from p3s.replay.engine.job import JobSettings, program_path, read_job, write_job

    programs, world = [program_of([Script(), Script()])], world_of(2)
    library = tmp_path / "inner.so"
    library.write_bytes(b"library")
    digest = write_job(tmp_path / "job", programs, world, JobSettings(library, 1.0))
    job = read_job(tmp_path / "job", digest)
    assert job.library() == b"library" and job.program(0).name == programs[0].name
    program_path(tmp_path / "job", 0).write_bytes(b"another")
    library.write_bytes(b"another")
    for use in (job.library, lambda: job.program(0)):
        with pytest.raises(P3SError, match="was changed"):
            use()
    plan = tmp_path / "job" / "plan.json"
    plan.write_text(plan.read_text().replace("inner.so", "other.so"))
    with pytest.raises(P3SError, match="was changed"):
        read_job(tmp_path / "job", digest)


# ---- where is written ---------------------------------------------------------------------------
def test_names_of_parameters_do_not_lead_out_of_a_study(tmp_path: Path) -> None:
    root = Study.create(tmp_path / "study", ["mpiexec", "-n", "{np}", "./app", "{size}"])
    root.update(parameters={"size": ["100"]})
    assert parameters(root) == ["size"]
    root.update(parameters={"../../../evil": ["100"]})
    assert parameters(root) == []
    with pytest.raises(UsageError):
        parse_setting("../../../evil=8000")
    assert parse_setting("size=8000") == {"size": 8000}


def test_a_link_in_place_of_a_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "data.json").write_text("{}")
    (tmp_path / "np4.parts").symlink_to(tmp_path / "mine")
    with pytest.raises(P3SError, match="is a link"):
        ResultStore(tmp_path / "np4.parts").clear()
    assert (tmp_path / "mine" / "data.json").exists()


# ---- captures of others -------------------------------------------------------------------------
def captured(folder: Path, **info: Any) -> Path:
    """Make what `p3s exec` leaves: a capture and a run.json."""
    from test_times import capture

    folder.mkdir()
    for rank in range(2):
        capture(folder, rank, [100, 200])
    words = ["./app", "input"]
    head = {"schema": "p3s.run", "schema_version": 1, "np": 2, "argv": words}
    write_json(folder / "run.json", {**head, "directory": os.getcwd(), "mpicc": "", **info})
    return folder


def added(root: Path, folder: Path, command: list[str] | None = None) -> Study:
    return put_runs(root, check_runs(root, [folder], command))


def test_added_captures_are_the_users_own_if_she_made_them(tmp_path: Path) -> None:
    mine = captured(tmp_path / "mine", signed=sign(["./app", "input"], os.getcwd()))
    study = added(tmp_path / "one", mine)
    assert is_own(study, study.command(), os.getcwd())
    for number, signature in enumerate((sign(["./app"], os.getcwd()), "", None, 7)):
        theirs = captured(tmp_path / f"theirs{number}", signed=signature)
        study = added(tmp_path / f"study{number}", theirs)
        assert not is_own(study, study.command(), os.getcwd())


def test_a_command_given_with_captures_is_the_users_own_where_she_gave_it(tmp_path: Path) -> None:
    words = ["mpiexec", "-n", "{np}", "./app", "input"]
    study = added(tmp_path / "one", captured(tmp_path / "a"), words)
    assert is_own(study, words, os.getcwd())
    (tmp_path / "evil").mkdir()
    theirs = captured(tmp_path / "b", directory=str(tmp_path / "evil"))
    study = added(tmp_path / "two", theirs, words)
    assert not is_own(study, words, str(tmp_path / "evil"))  # not where they say it was run
