"""Trace a program with every value of its parameters, each in a study inside the study."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

from p3s.base.errors import P3SError, UsageError
from p3s.base.progress import Progress
from p3s.base.serialise import to_data
from p3s.base.settings import (
    MOST_SETTINGS,
    THREADS,
    check_command,
    fill_parameters,
    parameters,
    parse_params,
    setting_name,
    settings_in,
    settings_of,
    value_study,
    value_text,
)
from p3s.base.study import Study
from p3s.base.text import differing
from p3s.model.stage import ProgramFacts
from p3s.pipeline.parameters import NamedProgress
from p3s.pipeline.records import keep_dims, known_of
from p3s.pipeline.tracing.counts import (
    CountRequest,
    TraceResult,
    choose_counts,
    grids_of,
    reasons,
    trace_asked,
    warn,
)
from p3s.pipeline.tracing.runs import TraceRequest, trace_counts
from p3s.signature_runner.traced_run import check_template, program_of


@dataclass(frozen=True)
class TracedValue:
    """What tracing one value did; ``root``: its study; characterized: counts with signatures."""

    name: str
    root: Path
    done: TraceResult
    characterized: Sequence[int]

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "name": self.name,
            "study": str(self.root),
            **to_data(self.done),
            "characterized": list(self.characterized),
        }


@dataclass(frozen=True)
class TracedValues:
    """What tracing all values did, and why some or some of their counts are missing."""

    study: Study
    values: Sequence[TracedValue]
    failed: Sequence[str]


def trace_values(request: TraceRequest, params: Sequence[str], bar: Progress) -> TracedValues:
    """Trace every combination of counts and values, each value in a study inside the study.

    Up to a maximum, the first value decides on the counts. Raises UsageError where a study would
    not be one of these values, and P3SError where no value can be traced.
    """
    words, root, asked = list(request.command), request.root, request.asked
    values = parse_params(params)
    check_template(words)
    check_command(words, list(values))
    settings = settings_of(values)
    program_of(fill_parameters(words, settings[0]), max(asked.counts, default=asked.top))
    made = not root.exists()
    study = _root(root, words, values)
    keep_dims(study, request.extents)
    grids = grids_of(known_of(study), words, request.extents)
    counts = choose_counts(asked, ProgramFacts(), grids, bar)
    warn(asked, counts, ProgramFacts(), grids, bar)
    bar.say(f"tracing into {study.root}")
    bar.expect(len(counts) * request.repeats * len(settings))
    rows: list[TracedValue] = []
    failed: list[str] = []
    try:
        for setting in settings:
            name = setting_name(setting)
            at = value_study(study, setting)
            new = not at.root.exists()
            command = fill_parameters(words, setting)
            try:
                derived = at.manifest_path.exists() and at.manifest().get("derived")
                if derived and not at.runs():  # its derived model stays till it is traced
                    bar.say(f"{at.root.name}: was derived from other values, is traced now")
                at = Study.create(at.root, command)
                threads = int(setting.get(THREADS, 0))
                here = replace(
                    request,
                    command=tuple(command),
                    recording=replace(request.recording, threads=threads),
                )

                some = partial(
                    trace_counts, at, here, bar=NamedProgress(bar, name, notes=True), made=new
                )
                done = trace_asked(asked, counts, partial(known_of, at), grids, some, bar)
            except P3SError as err:
                if isinstance(err, UsageError) or not rows:
                    raise
                failed.append(f"{name}: {err}")
                continue
            if asked.top:
                counts = [row.np for row in done.counts]
                asked = CountRequest(tuple(counts))
            if done.failed:
                failed.append(f"{name}: {reasons(done.failed)}")
            failed += [f"{name}: {problem}" for problem in done.problems]
            rows.append(TracedValue(name, at.root, done, at.signature_counts()))
    finally:
        _tidy(study, made)
    _remember(study)
    return TracedValues(study, rows, failed)


def _root(root: Path, words: list[str], values: Mapping[str, Sequence[Fraction]]) -> Study:
    """Return the study with parameters, made or as it is; nothing in it is changed yet."""
    existing = Study.find(root)
    if existing is not None:
        names, why = parameters(existing), ""
        if not names and existing.runs():
            why = "holds runs without parameters"
        elif not names and existing.manifest()["commands"]:
            why = "is a study without parameters"
        elif names and names != list(values):
            why = f"its parameters are {', '.join(names)}, not {', '.join(values)}; give these, or"
        elif names and existing.command() != words:
            there, here = differing(existing.command(), words)
            why = f"holds runs of another command ({there}, not {here})"
        if why:
            why += "" if why.endswith("or") else ";"
            raise UsageError(f"{root}: {why} choose another directory with -o")
        settings = {setting_name(s) for s, _ in settings_in(existing)}
        settings |= {setting_name(s) for s in settings_of(values)}
        if len(settings) > MOST_SETTINGS:
            raise UsageError(
                f"{root}: would hold {len(settings)} values, at most {MOST_SETTINGS}; "
                "use another study"
            )
        if names:
            return existing
    study = Study.create(root, words)
    study.update(parameters={name: [] for name in values})
    return study


def _remember(study: Study) -> None:
    """Write the values that have runs into study.json."""
    found = settings_in(study)
    study.update(
        parameters={
            name: [value_text(v) for v in sorted({s[name] for s, _ in found})]
            for name in parameters(study)
        }
    )


def _tidy(study: Study, made: bool) -> None:
    """Remove a study that was made for nothing."""
    at = study.root / "at"
    if not made or (at.is_dir() and any(at.iterdir())):
        return
    shutil.rmtree(at, ignore_errors=True)
    study.remove_if_empty()
