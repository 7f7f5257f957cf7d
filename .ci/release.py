"""Checks whether this clone can be released, and makes the tag of the release.

    .venv/bin/python .ci/release.py check    nothing is uncommitted, all files name one version,
                                             CHANGELOG.md tells of it, its tag is not taken
    .venv/bin/python .ci/release.py tag      the same, then the tag vVERSION, with its changes

Nothing is sent anywhere. Exit code 1: it can not be released, and the line says why.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

#: Files that name the version, and how.
_VERSIONS = (
    ("p3s/base/version.py", r'^__version__ = "([^"]+)"'),
    ("CITATION.cff", r"^version: (\S+)"),
    ("docs/man/p3s.1", r'^\.TH .*"p3s (\S+)"'),
    ("packaging/conda/recipe.yaml", r'^  version: "([^"]+)"'),
    ("packaging/spack/package.py", r'^    version\("([^"]+)"'),
    ("packaging/containers/Dockerfile", r'image\.version="([^"]+)"'),
    ("packaging/debian/changelog", r"^p3s \(([^-]+)-"),
    ("packaging/containers/p3s.def", r"^    Version (\S+)"),
)


class NotReady(Exception):
    """Why this cannot be released: one line, with what to do."""


def main(arguments: list[str]) -> int:
    """Check, and make the tag if asked to; return the exit code."""
    root = Path.cwd()
    try:
        version, told = check(root)
        if arguments == ["tag"]:
            _git(
                root,
                "tag",
                "-a",
                f"v{version}",
                "--cleanup=whitespace",
                "-m",
                message(version, told),
            )
            print(f"tagged as v{version}; git push origin v{version} publishes it")
    except NotReady as why:
        print(f"cannot be released: {why}", file=sys.stderr)
        return 1
    return 0


def check(root: Path) -> tuple[str, str]:
    """Return the version and what CHANGELOG.md says of it; raises NotReady."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    version: str = project["version"]
    for name, found in versions(root):
        if found != version:
            raise NotReady(f"{name} says version {found}, pyproject.toml {version}")
    told = section((root / "CHANGELOG.md").read_text(), version)
    if not told:
        raise NotReady(
            f"CHANGELOG.md tells nothing of {version}: begin a section ## {version} - DATE"
        )
    if changed := _git(root, "status", "--porcelain"):
        raise NotReady(f"{changed.splitlines()[0].strip()} is not committed")
    if _git(root, "tag", "--list", f"v{version}"):
        raise NotReady(f"the tag v{version} is taken: raise the version in pyproject.toml")
    return version, told


def versions(root: Path) -> list[tuple[str, str | None]]:
    """Return the version that each file names, None where it names none."""
    found = [(name, re.search(how, (root / name).read_text(), re.M)) for name, how in _VERSIONS]
    recipes = [path.name for path in (root / "packaging/easybuild").glob("*.eb")]
    named = [(name, re.match(r"p3s-([^-]+)-", name)) for name in recipes]
    return [(name, match[1] if match else None) for name, match in [*found, *named]]


def section(changes: str, version: str) -> str:
    """Return what a change log says of a version, empty if nothing."""
    head = rf"^## \[?{re.escape(version)}\]?(?: - \S+)?\s*$"
    _, *rest = re.split(head, changes, maxsplit=1, flags=re.M)
    return re.split(r"^## ", rest[0], maxsplit=1, flags=re.M)[0].strip() if rest else ""


def message(version: str, told: str) -> str:
    """Return the text of a tag."""
    return f"P3S {version}\n\n{told}\n"


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", root, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotReady(f"git {words[0]}: {done.stderr.strip() or 'failed'}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
