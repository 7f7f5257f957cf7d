"""MPI libraries as far as their choice of algorithms goes, and what the user wants instead."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from p3s.base.artefacts import parse_json
from p3s.base.errors import P3SError
from p3s.program.collectives import choose as _algorithms  # noqa: F401  (fills COLLECTIVES)
from p3s.program.collectives.registry import COLLECTIVES
from p3s.program.collectives.rules import MPICH, OPENMPI, Library, Rule

#: Whose choice of algorithms is taken for a plan where no MPI is installed.
USUAL_LIBRARY = (OPENMPI, "4.1")


def library_of(family: str, version: str, overrides: str | Path = "") -> Library:
    """Return the library of a family and version as p3s.base.host.mpi tells them.

    ``overrides``: "allreduce=ring,bcast=pipeline:65536", or a TOML or JSON file. Raises P3SError.
    """
    if family not in (OPENMPI, MPICH):
        raise P3SError(
            f"no table of collective algorithms for the MPI library {family!r}; known:"
            f" {OPENMPI}, {MPICH}"
        )
    found = re.match(r"(\d+)(?:\.(\d+))?", version)
    if found is None:
        raise P3SError(
            f"version {version!r} of {family} has no number in front; say for example 4.1"
        )
    return Library(family, (int(found[1]), int(found[2] or 0)), rules_of(overrides))


def rules_of(overrides: str | Path) -> tuple[Rule, ...]:
    """Return the rules of an option or a file; see ``library_of``."""
    text = str(overrides).strip()
    if not text:
        return ()
    if "=" in text and not Path(text).is_file():
        return tuple(_rule_of_word(word) for word in text.split(",") if word.strip())
    return _rules_of_file(Path(text))


def _rule_of_word(word: str) -> Rule:
    call, _, rest = word.strip().partition("=")
    name, _, segment = rest.partition(":")
    if segment and not segment.isdigit():
        raise P3SError(
            f"collectives: {word.strip()!r}: the segment size {segment!r} is no number"
            " of bytes; write for example bcast=pipeline:65536"
        )
    return checked(Rule(call.strip().lower(), name.strip().lower(), int(segment or 0)))


def _rules_of_file(path: Path) -> tuple[Rule, ...]:
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as err:
        why = err.strerror if isinstance(err, OSError) else "not text"
        raise P3SError(f"collectives: {path}: {why}; give a file or CALL=ALGORITHM") from err
    try:
        told = parse_json(text.encode()) if path.suffix == ".json" else tomllib.loads(text)
    except ValueError as err:
        why = " ".join(str(err).split())[:120]
        raise P3SError(f"{path}: not {path.suffix.lstrip('.') or 'TOML'}: {why}") from err
    if not isinstance(told, Mapping):
        raise P3SError(f'{path}: not a table of calls; write for example allreduce = "ring"')
    rules = []
    for call, value in told.items():
        for entry in value if isinstance(value, list) else [value]:
            rules.append(_rule_of_entry(path, str(call).lower(), entry))
    return tuple(rules)


def _rule_of_entry(path: Path, call: str, entry: Any) -> Rule:
    if isinstance(entry, str):
        entry = {"algorithm": entry}
    known = {"algorithm", "segment", "members_below", "bytes_below"}
    if not isinstance(entry, Mapping) or not isinstance(entry.get("algorithm"), str):
        raise P3SError(f'{path}: {call}: no algorithm; write for example {call} = "ring"')
    for key, value in entry.items():
        if key not in known:
            raise P3SError(f"{path}: {call}: unknown key {key!r}; known: {', '.join(known)}")
        if key != "algorithm" and (
            not isinstance(value, int) or isinstance(value, bool) or value < 0
        ):
            raise P3SError(f"{path}: {call}: {key} is {value!r}; it must be a number >= 0")
    return checked(
        Rule(
            call,
            entry["algorithm"].lower(),
            entry.get("segment", 0),
            entry.get("members_below"),
            entry.get("bytes_below"),
        ),
        f"{path}: ",
    )


def checked(rule: Rule, where: str = "collectives: ") -> Rule:
    """Return a rule that names a known call and a known algorithm of it; else P3SError."""
    call = rule.call.removeprefix("mpi_")
    if call not in COLLECTIVES:
        raise P3SError(f"{where}no collective {rule.call!r}; known: {', '.join(COLLECTIVES)}")
    if rule.algorithm not in COLLECTIVES[call].algorithms:
        raise P3SError(
            f"{where}{call} has no algorithm {rule.algorithm!r}; known:"
            f" {', '.join(COLLECTIVES[call].algorithms)}"
        )
    return Rule(call, rule.algorithm, rule.segment, rule.members_below, rule.bytes_below)
