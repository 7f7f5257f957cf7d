"""Values of workload parameters: how they are written, and the studies inside a study they have."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path

from p3s.base.errors import P3SError, UsageError
from p3s.base.extents import EXTENTS
from p3s.base.records import Traces
from p3s.base.study import Study, read_json

#: Value of every parameter, by name.
Setting = Mapping[str, Fraction]

#: The parameter that is no input of the program: threads of a process (``--threads``).
THREADS = "threads"
#: Most combinations of values that one command traces, and that one study holds in total.
MOST_SETTINGS = 64
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,31}")
_VALUE = re.compile(r"[0-9]{1,15}(\.[0-9]{1,9})?")
#: Fewer counts give no model of a setting; fewer settings no law of a parameter.
MIN_COUNTS, MIN_SETTINGS = 3, 2


def parse_value(text: str, where: str) -> Fraction:
    """Return a positive whole number or decimal; UsageError, beginning with ``where``, if not."""
    word = text.strip()
    if not _VALUE.fullmatch(word):
        raise UsageError(f"{where}: {word[:40]!r} is not a positive number such as 1000 or 0.25")
    value = Fraction(word)
    if value <= 0:
        raise UsageError(f"{where}: {word[:40]!r} is not above zero")
    return value


def value_text(value: Fraction) -> str:
    """Return a value as it stands in commands and names of directories: 4000, 0.25."""
    if value.denominator == 1:
        return str(value.numerator)
    text = f"{value.numerator * 10**12 // value.denominator:013d}"
    return f"{text[:-12]}.{text[-12:].rstrip('0')}"


def setting_name(setting: Setting) -> str:
    """Return the name of a setting and of its directory: size=4000, nx=400,ny=200."""
    return ",".join(f"{name}={value_text(value)}" for name, value in setting.items())


def parse_setting(text: str) -> dict[str, Fraction]:
    """Return the setting with a name (:func:`setting_name`); UsageError if it is none."""
    out: dict[str, Fraction] = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        if not _NAME.fullmatch(name):  # it names a directory
            raise UsageError(f"{text[:60]}: {name[:40]!r} is no name of a parameter")
        out[name] = parse_value(value, text)
    return out


def parse_params(words: Sequence[str], option: str = "--param") -> dict[str, list[Fraction]]:
    """Return the values of each parameter, ascending, of words such as size=1000,2000.

    Raises UsageError for bad names, for values that are no positive numbers, for a name given
    twice, and for more combinations than ``MOST_SETTINGS``.
    """
    out: dict[str, list[Fraction]] = {}
    for word in words:
        name, equals, values = word.partition("=")
        where = f"{option} {word[:60]}"
        if not equals or not values.strip():
            raise UsageError(f"{where}: write NAME=VALUES, as in {option} size=1000,2000,4000")
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"{where}: {name[:40]!r} is no name: letters, digits and _, up to 32, no digit "
                "first"
            )
        if name == "np":
            raise UsageError(f"{where}: np is the process count; give its values with -n")
        if name in EXTENTS:
            raise UsageError(
                f"{where}: {name} is an extent of the process grid; give its values with --dims"
            )
        if name in out:
            raise UsageError(
                f"{option} {name}: given twice; give all its values at once, separated by commas"
            )
        out[name] = sorted({parse_value(v, where) for v in values.split(",")})
    combinations = math.prod(map(len, out.values()))
    if combinations > MOST_SETTINGS:
        raise UsageError(
            f"{option}: {combinations} combinations of values, at most "
            f"{MOST_SETTINGS} are traced; name fewer values"
        )
    return out


def one_setting(words: Sequence[str], names: Sequence[str]) -> dict[str, Fraction]:
    """Return one value for each of the parameters ``names``; UsageError for anything else."""
    values_of = parse_params(words)
    names_known = ", ".join(names)
    for name, values in values_of.items():
        if name not in names:
            raise UsageError(f"--param {name}: no parameter of this study, which has {names_known}")
        if len(values) > 1:
            raise UsageError(f"--param {name}: give one value here, {len(values)} are given")
    missing = [name for name in names if name not in values_of]
    if missing:
        raise UsageError(
            f"--param: no value for {', '.join(missing)}; add --param {missing[0]}=VALUE"
        )
    return {name: values_of[name][0] for name in names}


def settings_of(values: Mapping[str, Sequence[Fraction]]) -> list[dict[str, Fraction]]:
    """Return all combinations of the values of each parameter."""
    return [dict(zip(values, each, strict=True)) for each in product(*values.values())]


def check_command(words: Sequence[str], names: Sequence[str]) -> None:
    """Refuse parameters whose placeholder is not in the launcher command.

    Threads need none: the program's OpenMP runtime is told.
    """
    for name in names:
        if name != THREADS and not any(f"{{{name}}}" in word for word in words):
            raise UsageError(
                f"--param {name}: the command has no {{{name}}}; write it where the "
                f"value goes, as in ./program --{name} {{{name}}}"
            )


def fill_parameters(words: Sequence[str], setting: Setting) -> list[str]:
    """Return a command with the values of the parameters in place; {np} stays."""
    out = []
    for word in words:
        for name, value in setting.items():
            word = word.replace(f"{{{name}}}", value_text(value))
        out.append(word)
    return out


# ---- studies with parameters ---------------------------------------------------------------
def parameters(study: Study) -> list[str]:
    """Return the names of the parameters of a study, empty if it has none."""
    try:
        entry = study.manifest().get("parameters")
    except P3SError:
        return []
    # They name directories: one that is no name would lead out of the study.
    named = isinstance(entry, dict) and all(_NAME.fullmatch(str(name)) for name in entry)
    return [str(name) for name in entry] if named and entry else []


def value_study(root: Study, setting: Setting) -> Study:
    """Return the place of the study at one setting of a study's parameters."""
    return Study(root.at_dir(setting_name(setting)))


def settings_in(root: Study) -> list[tuple[dict[str, Fraction], Study]]:
    """Return the settings that have traced runs, ascending, with their studies."""
    names = parameters(root)
    pairs = []
    for path in (root.root / "at").glob("*/study.json"):
        try:
            setting = parse_setting(path.parent.name)
        except UsageError:
            continue
        study = Study(path.parent)
        if list(setting) == names and study.counts():
            pairs.append((setting, study))
    return sorted(pairs, key=lambda each: tuple(each[0].values()))


def alike_in_threads(root: Study) -> list[tuple[dict[str, Fraction], Study]]:
    """Return the settings that have traced runs, of one number of threads.

    That with most values that have enough counts for a model, of these the smallest; all of them
    in a study without threads.
    """
    studies = settings_in(root)
    able: dict[Fraction, int] = {}
    for setting, at in studies:
        if THREADS in setting:
            enough = len(at.signature_counts()) >= MIN_COUNTS
            able[setting[THREADS]] = able.get(setting[THREADS], 0) + enough
    if not able:
        return studies
    base = max(able, key=lambda threads: (able[threads], -threads))
    return [(setting, at) for setting, at in studies if setting[THREADS] == base]


def parent_of(study: Study) -> tuple[Study, dict[str, Fraction]] | None:
    """Return the study with parameters that a study lies in, and its setting; None if in none."""
    at = Path(study.root).resolve()
    if at.parent.name != "at":
        return None
    root = Study(at.parent.parent)
    names = parameters(root)
    try:
        setting = parse_setting(at.name)
    except UsageError:
        return None
    return (root, setting) if names and list(setting) == names else None


def threads_of(study: Study) -> int:
    """Return the threads of a process in the runs of a study, 0 where none were asked for."""
    parent = parent_of(study)
    return int(parent[1].get(THREADS, 0)) if parent is not None else 0


def without_threads(setting: Setting) -> dict[str, Fraction]:
    """Return the values of the input's own parameters."""
    return {name: value for name, value in setting.items() if name != THREADS}


def sources(study: Study) -> list[Study]:
    """Return the traced studies that a derived one was made from, empty for any other."""
    parent = parent_of(study)
    if parent is None or not study.manifest().get("derived"):
        return []
    return [at for _, at in settings_in(parent[0])]


def traces_of(study: Study) -> Traces:
    """Return what a study has traced, as values."""
    parent = parent_of(study)
    siblings = {at.root: _traces(at) for _, at in settings_in(parent[0])} if parent else {}
    return replace(
        _traces(study),
        sources=tuple(siblings[at.root] for at in sources(study)),
        around=tuple(siblings.values()),
        threads=threads_of(study),
    )


def _traces(study: Study) -> Traces:
    """Return what a study itself has traced."""
    command: list[str] = []
    with suppress(P3SError):  # put together from runs that do not say it
        command = study.command()
    runs, timed = tuple(study.runs()), tuple(study.timed_runs())
    return Traces(study.root, tuple(command), runs, timed, study.unused_counts())


def counts_behind(study: Study) -> list[int]:
    """Return the counts a study's model rests on: its own, or those of the values it is from."""
    own_counts = study.signature_counts()
    if not sources(study):
        return own_counts
    behind = read_json(study.model_path, "p3s.model")["counts"]
    return sorted({*own_counts, *(int(n) for n in behind)})


def has_threads(root: Study) -> bool:
    """Tell whether a study was traced with --threads."""
    return THREADS in parameters(root)


def threads_in(root: Study) -> list[int]:
    """Return the numbers of threads of the traced runs, ascending."""
    return sorted({int(setting[THREADS]) for setting, _ in settings_in(root) if THREADS in setting})


def inputs_in(root: Study) -> list[str]:
    """Return the names of the values of the input's own parameters; one empty name without any."""
    return list(dict.fromkeys(setting_name(without_threads(s)) for s, _ in settings_in(root)))
