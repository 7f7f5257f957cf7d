"""What may be released: everything committed, one version, its changes told, its tag free."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from paths import ROOT

sys.path.insert(0, str(ROOT / ".ci"))
p3s_build = pytest.importorskip("p3s_build", reason="no setuptools here")
release = pytest.importorskip("release")

if shutil.which("git") is None:
    pytest.skip("git is not installed", allow_module_level=True)

CHANGES = """# Changes

## Unreleased

- later

## 0.1.0 - 2026-12-01

### Added
- it

## 0.0.1
- x
"""


def git(root: Path, *words: str) -> str:
    given = ["git", "-C", str(root), "-c", "user.name=a", "-c", "user.email=a@b", *words]
    return subprocess.run(given, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone of what the check reads, with a section of changes."""
    names = ["pyproject.toml", *(name for name, _ in release._VERSIONS)]
    names += [str(path.relative_to(ROOT)) for path in ROOT.glob("packaging/easybuild/*.eb")]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    (tmp_path / "CHANGELOG.md").write_text(CHANGES)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "All")
    for name, value in (("NAME", "a"), ("EMAIL", "a@b")):
        monkeypatch.setenv(f"GIT_COMMITTER_{name}", value)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_release_is_checked_and_tagged_when_asked_to(
    clone: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    version = release.tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    told = CHANGES.replace("0.1.0", version)
    if told != CHANGES:
        (clone / "CHANGELOG.md").write_text(told)
        git(clone, "commit", "-qam", "Changes")
    assert release.main(["check"]) == 0 and git(clone, "tag") == ""
    assert release.main(["tag"]) == 0 and git(clone, "tag") == f"v{version}\n"
    assert "### Added\n- it\n" in git(clone, "tag", "-n99", "--format=%(contents)")
    assert release.main(["check"]) == 1
    assert f"the tag v{version} is taken" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("CHANGELOG.md", "# Changes\n\n## Unreleased\n- it\n", "tells nothing of"),
        ("p3s/base/version.py", '__version__ = "9.9"\n', "p3s/base/version.py says version 9.9"),
        ("p3s/base/version.py", "", "p3s/base/version.py says version None"),
        ("other.txt", "", "?? other.txt is not committed"),
    ],
)
def test_what_is_missing_is_told(
    clone: Path, name: str, text: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (clone / name).write_text(text)
    assert release.main(["tag"]) == 1
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1 and git(clone, "tag") == ""


def test_sections_of_a_change_log() -> None:
    assert release.section(CHANGES, "0.1.0") == "### Added\n- it"
    assert release.section("## [0.1.0] - 2026-12-01\n\n- it\n", "0.1.0") == "- it"
    assert release.section(CHANGES, "0.0.1") == "- x"
    assert release.section(CHANGES, "0.1") == release.section(CHANGES, "0x1x0") == ""


def archive(path: Path, mtime: int) -> Path:
    """Write an archive as setuptools does: files in place of a link."""
    path.parent.mkdir()
    with tarfile.open(path, "w:gz") as file:
        for name in ("p-1/p3s/a.py", "p-1/p3s/linked/b.py", "p-1/setup.cfg")[:: 1 if mtime else -1]:
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime, entry.uname = len(name), mtime, f"user{mtime}"
            file.addfile(entry, io.BytesIO(name.encode()))
    return path


def test_an_archive_is_the_same_whenever_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    one = archive(tmp_path / "1" / "p-1.tar.gz", 0)
    two = archive(tmp_path / "2" / "p-1.tar.gz", 7)
    for path in (one, two):
        p3s_build.settle_sources(path, {"p3s/linked": "../linked"})
    assert one.read_bytes() == two.read_bytes()
    assert gzip.decompress(one.read_bytes())[:4] == b"p-1/"
    with tarfile.open(one) as file:
        assert file.getmember("p-1/p3s/linked").linkname == "../linked"
        assert sorted(file.getnames()) == [
            "p-1/linked/b.py",
            "p-1/p3s/a.py",
            "p-1/p3s/linked",
            "p-1/setup.cfg",
        ]


@pytest.mark.slow
def test_the_archive_has_what_a_clone_has(tmp_path: Path) -> None:
    try:
        listed = set(git(ROOT, "ls-files").splitlines())
    except subprocess.CalledProcessError:
        pytest.skip("not a clone: what belongs to P3S is not known")
    build = "import p3s_build, sys; p3s_build.build_sdist(sys.argv[1])"
    subprocess.run(
        [sys.executable, "-c", build, str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / ".ci")},
        stdout=subprocess.DEVNULL,
        check=True,
        timeout=300,
    )
    (path,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(path) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    own = {".gitignore", ".git-blame-ignore-revs", ".pre-commit-config.yaml"}
    assert listed - own <= names
