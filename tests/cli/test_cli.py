"""The command line as seen from outside: help, streams, exit codes, errors in one line."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
import typer
from commands import P3S, Shown, cli, p3s, started
from paths import ROOT

from p3s.base.errors import GateFailure, PartialResult, UsageError
from p3s.base.extensions import Command, load
from p3s.base.text import one_line, table
from p3s.cli import rules
from p3s.cli import table as commands_table
from p3s.cli.main import app, run
from p3s.cli.values import parse_counts

COMMANDS = [
    "characterize",
    "exec",
    "add",
    "model",
    "scale",
    "replay",
    "predict",
    "report",
    "validate",
    "phases",
    "matrix",
    "check",
    "recover",
    "dump",
    "doctor",
    "submit",
    "gate",
    "compare",
]
HEAVY = ["numpy", "scipy", "sympy", "pyarrow", "mpi4py", "matplotlib", "jinja2", "rich", "elftools"]


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys, p3s.cli.main as m\n"
        "code = m.run(['help', '--all'])\n"
        f"loaded = [name for name in {HEAVY!r} if name in sys.modules]\n"
        "print(loaded, file=sys.stderr)\n"
        "sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0 and done.stderr.strip() == "[]"
    for name in COMMANDS:
        assert name in done.stdout


def commands_of(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the words of all commands."""
    for name in group.commands:
        command = group.commands[name]
        yield (*path, name)
        if hasattr(command, "commands"):
            yield from commands_of(command, (*path, name))


def shown_by(*words: str) -> set[str]:
    """Return the options and commands in a help text."""
    return set(re.findall(r"^  (-{0,2}[\w-]+)(?=,|  | [A-Z]|$)", cli(*words).out, re.MULTILINE))


def test_help_is_short_and_all_of_it_can_be_had() -> None:
    root = typer.main.get_command(app)
    usual, every = shown_by("--help"), shown_by("help", "--all")
    assert len(usual & set(root.commands)) <= 13 and set(root.commands) <= every
    for words in commands_of(root):
        path = " ".join(words)
        short, whole = shown_by(*words, "--help"), shown_by("help", *words, "--all")
        options = {name for name in short if name.startswith("-")}
        assert len(options) <= 20, path
        assert options <= whole and bool(commands_table.rare(path)) == (
            options != {name for name in whole if name.startswith("-")}
        ), path
        if commands_table.rare(path):
            assert shown_by(*words, "--help-all") == whole


RULES = [
    pytest.param(path, rule, id=f"{path} {rule.option}")
    for path in (file.stem.replace("-", " ") for file in (ROOT / "p3s/cli/commands").glob("*.toml"))
    for rule in rules.rules_of(path)
]


@pytest.mark.parametrize(("path", "rule"), RULES)
def test_rules_between_options_are_of_options_that_there_are(path: str, rule: rules.Rule) -> None:
    command = typer.main.get_command(app)
    for word in path.split():
        command = command.commands[word]
    there = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
    others = {*rule.excludes, *rule.needs} - {rules.LAUNCHER}
    assert {rule.option, *others} <= there
    assert rule.broken({rule.option, *rule.excludes}) or not rule.excludes
    assert rule.broken({rule.option}) or not rule.needs
    assert not rule.broken({rule.option, *rule.needs}) and not rule.broken(set(others))
    assert rules.remarks(path, [rule.option])


@pytest.mark.parametrize("command", list(commands_table.own_commands()), ids=lambda each: each.name)
def test_what_the_table_says_of_a_command_is_taken_by_it(command: Command) -> None:
    words = f"{command.parent} {command.name}".strip()
    made = load(command.function)
    taken = signature(made).parameters if callable(made) else {}
    told = commands_table.entries(words)
    assert set(told) <= {"epilog", "rare", "rules", "parameters"}
    assert told["epilog"] and {*told.get("parameters", ())} <= {*taken}


def test_a_command_imports_no_other() -> None:
    code = (
        "import sys, p3s.cli.main as m\n"
        "assert m.run(['matrix', '--help']) == 0\n"
        "names = [f'p3s.cli.{n}' for n in m.CommandGroups().commands]\n"
        "others = [n for n in names if n in sys.modules]\n"
        "print(others, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0 and done.stderr.strip() == "['p3s.cli.matrix']"


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_ends_with_an_example_and_the_next_step(name: str) -> None:
    text = cli(name, "--help").out
    last = text[text.index("Example:") :]
    assert f"p3s {name}" in last and "Next:" in last
    assert ("--json" in text) is (name != "exec"), "exec becomes the program: it prints nothing"
    assert last.count("\n") >= 4, "the example must not be folded into one line"


def test_version_goes_to_stdout() -> None:
    assert p3s("--version") == Shown(0, "p3s 0.1.0\n", "")


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in ("exec", "doctor")])
def test_help_says_what_every_argument_is(name: str) -> None:
    inside = cli(name, "--help").out.partition("\nArguments:\n")[2].partition("\n\n")[0]
    rows = [line[2:] for line in inside.splitlines() if line[2:3].strip()]
    told = [row.partition("  ")[2].strip() for row in rows]
    assert told and all(text[:1].isalpha() for text in told), rows


def test_nothing_prints_the_help_and_is_a_usage_error() -> None:
    cli("", code=2, out="characterize")


def fake_doctor(monkeypatch: pytest.MonkeyPatch, behaviour: Callable[[], object]) -> None:
    module = types.ModuleType("p3s.signature_runner.examine")
    module.checks = lambda words: behaviour()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "p3s.signature_runner.examine", module)


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (PartialResult("half of it"), 3, "p3s: half of it"),
        (GateFailure("too slow"), 4, "p3s: too slow"),
        (UsageError("not so"), 2, "p3s: not so"),
        (OSError(28, "No space left on device", "/x/y"), 1, "/x/y: No space left on device"),
        (MemoryError(), 1, "out of memory"),
        (SystemError("boom"), 70, "internal error: SystemError: boom"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (ZeroDivisionError("boom\nboom"), 70, "internal error: ZeroDivisionError: boom boom"),
    ],
)
def test_every_ending_has_its_exit_code_and_one_line(
    error: BaseException, code: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.delenv("P3S_DEBUG", raising=False)
    fake_doctor(monkeypatch, fail)
    streams = cli("doctor", code=code)
    assert said in streams.err and streams.err.count("\n") == 1 and streams.out == ""


def test_traceback_only_when_asked_for(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys, types\n"
        "m = types.ModuleType('p3s.signature_runner.examine')\n"
        "m.checks = lambda: 1 / 0\n"
        "sys.modules['p3s.signature_runner.examine'] = m\n"
    )
    path = f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    for debug in ("", "1"):
        variables = {**os.environ, "PYTHONPATH": path, "P3S_DEBUG": debug}
        done = started([*P3S, "doctor"], env=variables)
        assert done.code == 70 and ("Traceback" in done.err) == bool(debug)
        assert debug or ("please report" in done.err and done.err.count("\n") == 1)


def _without_a_frame() -> None:
    raise SystemError("error return without exception set")


def _without_a_stack() -> None:
    threading.stack_size(32 << 20)  # none of an earlier thread is kept that would do
    threading.Thread(target=time.sleep, args=(0,)).start()


@pytest.mark.parametrize("raising", [_without_a_frame, _without_a_stack])
def test_an_error_of_python_without_memory_is_no_bug(
    raising: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """CPython 3.11 raises SystemError without memory for a frame, RuntimeError for a thread."""
    usual = resource.getrlimit(resource.RLIMIT_AS)
    stack = threading.stack_size()

    def fail() -> None:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 20), usual[1]))
        raising()

    monkeypatch.delenv("P3S_DEBUG", raising=False)
    fake_doctor(monkeypatch, fail)
    try:
        cli("doctor", code=1, err="out of memory")
    finally:
        resource.setrlimit(resource.RLIMIT_AS, usual)
        threading.stack_size(stack)


@dataclass(frozen=True)
class FakeCheck:
    name: str
    status: str
    detail: str
    fix: str


@pytest.mark.parametrize(("status", "code"), [("ok", 0), ("warn", 0), ("fail", 1)])
def test_doctor_lines_and_json(status: str, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_doctor(monkeypatch, lambda: [FakeCheck("MPI", status, "as found\x1b[1m", "install it")])
    text = cli("doctor", code=code).out
    assert status.upper() in text and "\x1b" not in text
    assert ("install it" in text) is (status != "ok")
    result = cli("doctor --json", code=code).data
    assert result["schema"] == "p3s.doctor" and result["ok"] is (code == 0)
    assert result["checks"][0]["status"] == status


def test_closed_pipe_is_quiet() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "p3s", "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
        process.wait(timeout=300)
    assert b"Traceback" not in said and b"Exception" not in said


def test_counts_are_sorted_and_distinct() -> None:
    assert parse_counts("16, 2,4,2") == [2, 4, 16]
    for bad in ("", ",", "1e3", "٣", "+4", "4.0", "2,,4", "0"):
        with pytest.raises(UsageError):
            parse_counts(bad)
    for large in ("99999999999", str((1 << 24) + 1), "2,9" + "9" * 40):
        with pytest.raises(UsageError, match="is more than 16,777,216, the maximum"):
            parse_counts(large)
    assert parse_counts(str(1 << 24)) == [1 << 24]


def test_nothing_reaches_the_terminal_raw() -> None:
    assert one_line("a\nb\x1b[0m\t\u202e") == r"a b\x1b[0m \u202e"
    assert table([["x\ny", "1"]], ["name", "n"]) == "name  n\nx y   1"


def test_counts_that_failed_alike_are_one_reason() -> None:
    from p3s.pipeline.tracing.runs import Failure, reasons

    text = "rank 1{} died; what was captured is kept in s/runs/np{}.r0.failed"
    rows = [Failure(n, 0, 9, f"np={n}: " + text.format(f" of {n}", f"{n:04d}")) for n in (2, 3)]
    assert reasons(rows) == "np=2, 3: " + text.format("", "*")
    assert reasons(rows[:1]) == "np=2: " + text.format(" of 2", "0002")


def test_a_deleted_directory_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    cli("doctor", code=1, err="the directory that you are in was deleted")


def test_too_little_address_space_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenBLAS tries for ever to get memory that is not allowed."""
    import resource

    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (200 << 20, 200 << 20))
    cli("check absent", code=1, err="ulimit -v allows 200 MiB")
    assert run(["check", "--help"]) == run(["--version"]) == 0
