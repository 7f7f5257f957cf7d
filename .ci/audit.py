"""Checks what P3S is built on: licences of what it needs to run, and known vulnerabilities.

    .venv/bin/python .ci/audit.py [--offline]

Licences are those that the installed packages state. Vulnerabilities are asked for with pip-audit,
which comes into a place of its own; where no advisory service answers, this is said. Exit code 1:
a licence that is not among those allowed, or a vulnerability.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from p3s_build import LOCK, closure, normal, read_lock

#: Licences under which P3S may be used and passed on with what it needs; they ask for notices only
#: (MPL: for changed files of the library itself).
ALLOWED = {
    *("MIT", "MIT-CMU", "BSD", "BSD-2-Clause", "BSD-3-Clause", "0BSD", "Apache-2.0", "ISC"),
    *("PSF-2.0", "Python-2.0", "HPND", "MPL-2.0", "Zlib", "CC0-1.0", "Unlicense", "BSL-1.0"),
    "Public Domain",
    "GPL-3.0-or-later WITH GCC-exception-3.1",  # the runtime of GCC, which numpy's wheels bring
}
#: How packages that do not state SPDX's names say it, by what such text begins with.
_SAID = (
    (r"MIT\b", "MIT"),
    (r"(The )?(New |Modified |3-Clause )?BSD[ -]3|BSD-3|.*\b3-clause", "BSD-3-Clause"),
    (r"(Simplified |2-Clause )?BSD[ -]2|.*\b2-clause", "BSD-2-Clause"),
    (r"(The )?BSD", "BSD"),
    (r"(The )?Apache( Software)?( License)?(,? Version)?[ -]2|Apache 2|Apache-2", "Apache-2.0"),
    (r"Apache Software License", "Apache-2.0"),
    (r"(The )?ISC", "ISC"),
    (r"Python Software Foundation|PSF", "PSF-2.0"),
    (r"Mozilla Public License 2|MPL", "MPL-2.0"),
)
#: How the text of a licence goes, for packages that only bring that.
_TEXTS = (
    ("Permission is hereby granted, free of charge", "MIT"),
    ("Redistribution and use in source and binary forms", "BSD"),
)
_TOOLS = Path(sys.prefix) / "tools"
_TIMEOUT_S = 300


def main(arguments: list[str]) -> int:
    """Check both; return the exit code."""
    wrong = licences()
    wrong |= False if "--offline" in arguments else vulnerabilities()
    return int(wrong)


def licences() -> bool:
    """Tell whether something that P3S needs to run has a licence that is not allowed."""
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    _, needs = read_lock(LOCK.read_text())
    roots = [re.match(r"[\w.-]+", text)[0] for text in project["dependencies"]]
    here, wrong = 0, False
    for name in closure([normal(root) for root in roots], needs):
        try:
            found = importlib.metadata.metadata(name)
        except importlib.metadata.PackageNotFoundError:
            print(f"licences: {name}: not installed here (of another system)")
            continue
        here += 1
        for one in stated(found):
            if one not in ALLOWED:
                print(f"licences: {name} {found['Version']}: {one!r} is not among those allowed")
                wrong = True
    print(f"licences: {here} packages that P3S needs to run{'' if wrong else ', all allowed'}")
    return wrong


def stated(found: importlib.metadata.PackageMetadata) -> set[str]:
    """Return the licences that a package states, by SPDX's names where they can be told."""
    if expression := found.get("License-Expression"):
        parts = re.split(r"\s+AND\s+", re.sub(r"[()]", "", expression))
        return {_choice(part) for part in parts}
    classified = [
        text.rpartition("::")[2].strip()
        for text in found.get_all("Classifier") or []
        if text.startswith("License ::") and not text.endswith("OSI Approved")
    ]
    text = (found.get("License") or "").strip().splitlines()
    return {_named(each) for each in classified or text[:1] or [_of_text(found)]}


def _of_text(found: importlib.metadata.PackageMetadata) -> str:
    """Return the licence whose text a package brings."""
    folder = f"{found['Name'].replace('-', '_')}-{found['Version']}.dist-info"
    distribution = importlib.metadata.distribution(found["Name"])
    for name in found.get_all("License-File") or []:
        text = distribution.read_text(f"licenses/{name}") or distribution.read_text(name) or ""
        for words, licence in _TEXTS:
            if words in " ".join(text.split()):
                return licence
    return f"none stated in {folder}"


def _choice(expression: str) -> str:
    """Return of licences to choose from one that is allowed, if there is one."""
    offered = [each.strip() for each in re.split(r"\s+OR\s+", expression)]
    return next((each for each in offered if each in ALLOWED), expression.strip())


def _named(text: str) -> str:
    return next((name for said, name in _SAID if re.match(said, text, re.IGNORECASE)), text[:60])


def vulnerabilities() -> bool:
    """Tell whether a vulnerability of something pinned is known; says why where it cannot ask."""
    tool = _TOOLS / "bin" / "pip-audit"
    if not tool.exists() and not _installed():
        print("vulnerabilities: skipped: pip-audit could not be installed")
        return False
    words = [tool, "-r", LOCK, "--require-hashes", "--disable-pip", "--progress-spinner", "off"]
    try:
        done = subprocess.run(
            [str(word) for word in [*words, "--format", "json", "--timeout", "15"]],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=_TIMEOUT_S,
        )
        rows = json.loads(done.stdout)["dependencies"]
    except subprocess.TimeoutExpired:
        print("vulnerabilities: skipped: the advisory service did not answer")
        return False
    except (ValueError, KeyError):
        last = (done.stderr.strip().splitlines() or ["no answer"])[-1]
        print(f"vulnerabilities: skipped: nothing could be asked ({last[:160]})")
        return False
    return told(rows)


def told(rows: list[dict[str, Any]]) -> bool:
    """Print what is known of pinned packages; tell whether a vulnerability is."""
    unknown = [row for row in rows if row.get("skip_reason")]
    if len(unknown) == len(rows):
        why = unknown[0]["skip_reason"] if unknown else "nothing is pinned"
        print(f"vulnerabilities: skipped: the service here has no advisories ({why})")
        return False
    bad = [(row, one) for row in rows for one in row.get("vulns", ())]
    for row, one in bad:
        fixed = ", ".join(one.get("fix_versions", ())) or "none yet"
        print(f"vulnerabilities: {row['name']} {row['version']}: {one['id']}, fixed in {fixed}")
    asked = len(rows) - len(unknown)
    print(f"vulnerabilities: {len(bad)} known in {asked} packages; {len(unknown)} not asked for")
    return bool(bad)


def _installed() -> bool:
    """Install pip-audit into a place of its own; tell whether that went well."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "check": False}
    python = _TOOLS / "bin" / "python"
    make = [sys.executable, "-m", "venv", _TOOLS]
    if not python.exists() and subprocess.run(make, **quiet).returncode:
        return False
    pip = [python, "-m", "pip", "install", "pip-audit"]
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    return subprocess.run(pip, env=environment, **quiet).returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
