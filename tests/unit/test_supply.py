"""What P3S is built from: pinned with digests, stated in the wheel, the same bytes each time."""

from __future__ import annotations

import base64
import csv
import hashlib
import importlib
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from paths import ROOT

sys.path.insert(0, str(ROOT / ".ci"))
p3s_build = pytest.importorskip("p3s_build", reason="no setuptools here")
audit = pytest.importorskip("audit")
matrix = importlib.import_module("matrix")

LOCK = ROOT / ".ci" / "requirements.lock"
RUNTIME_LOCK = LOCK.with_name("runtime.lock")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NEEDED = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["dev"]]


@pytest.mark.parametrize("needed", NEEDED)
def test_what_is_needed_is_pinned_within_its_bounds(needed: str) -> None:
    requirements = pytest.importorskip("packaging.requirements")
    wanted = requirements.Requirement(needed)
    pinned, _ = p3s_build.read_lock(LOCK.read_text())
    versions = [version for version, _ in pinned[p3s_build.normal(wanted.name)]]
    assert versions and all(wanted.specifier.contains(version) for version in versions)


@pytest.mark.parametrize(("lock", "least"), [(LOCK, 50), (RUNTIME_LOCK, 20)])
def test_everything_pinned_has_digests(lock: Path, least: int) -> None:
    entries = re.split(r"^(?=\S)", lock.read_text(), flags=re.MULTILINE)
    entries = [entry for entry in entries if "==" in entry]
    assert len(entries) > least
    assert all("--hash=sha256:" in entry for entry in entries)
    assert not re.search(r"https?://", lock.read_text())  # an index may be a mirror


def test_what_p3s_runs_with_is_pinned_as_for_its_tests() -> None:
    (all_of_it, _), (runtime, _) = (
        p3s_build.read_lock(lock.read_text()) for lock in (LOCK, RUNTIME_LOCK)
    )
    for name, pinned in runtime.items():
        assert {version for version, _ in pinned} <= {version for version, _ in all_of_it[name]}
    needed = [re.match(r"[\w.-]+", text) for text in PROJECT["dependencies"]]
    assert {p3s_build.normal(found[0]) for found in needed if found} <= set(runtime)
    assert not {"pytest", "ruff", "mkdocs"} & set(runtime)


def test_the_demo_installs_what_p3s_runs_with_alone() -> None:
    made = subprocess.run(
        ["make", "-n", "demo", "VENV=.venv-none"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "runtime.lock" in made.stdout
    assert "requirements.lock" not in made.stdout and "[dev" not in made.stdout


def test_the_bill_of_materials_names_all_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1000000000")
    bill = p3s_build.bill()
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert bill["metadata"]["timestamp"] == "2001-09-09T01:46:40Z"
    refs = {part["bom-ref"] for part in bill["components"]}
    names = {part["name"] for part in bill["components"]}
    needed = PROJECT["dependencies"]
    assert {p3s_build.normal(re.match(r"[\w.-]+", text)[0]) for text in needed} <= names
    assert "mpmath" in names  # what sympy needs
    assert not {"pytest", "psutil"} & names  # what tests need
    own = bill["metadata"]["component"]["bom-ref"]
    assert {row["ref"] for row in bill["dependencies"]} == refs | {own}
    assert all(ref in refs for row in bill["dependencies"] for ref in row["dependsOn"])
    assert p3s_build.bill() == bill


def made_wheel(path: Path, when: tuple[int, ...], mode: int, order: int) -> Path:
    """Write a wheel as setuptools might, with times, modes and an order of its own."""
    entries = [("p/b.py", b"b = 1\n"), ("p/a.py", b"a = 1\n"), ("p-1.dist-info/METADATA", b"x\n")]
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as file:
        for name, data in [*entries[::order], ("p-1.dist-info/RECORD", b"old")]:
            entry = zipfile.ZipInfo(name, when)
            entry.external_attr = mode << 16
            file.writestr(entry, data)
    return path


def test_a_wheel_is_the_same_whenever_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    one = made_wheel(tmp_path / "1" / "p.whl", (2020, 1, 1, 0, 0, 0), 0o100644, 1)
    two = made_wheel(tmp_path / "2" / "p.whl", (2025, 6, 7, 8, 9, 10), 0o100775, -1)
    assert one.read_bytes() != two.read_bytes()
    for wheel in (one, two):
        p3s_build.settle(wheel)
    assert one.read_bytes() == two.read_bytes()
    check_record(one)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    p3s_build.settle(two)
    with zipfile.ZipFile(two) as file:
        assert {entry.date_time for entry in file.infolist()} == {(2023, 11, 14, 22, 13, 20)}


def check_record(wheel: Path) -> None:
    """Check that RECORD, which installers go by, has every file with its digest."""
    with zipfile.ZipFile(wheel) as file:
        (record,) = (name for name in file.namelist() if name.endswith("/RECORD"))
        rows = {row[0]: row[1:] for row in csv.reader(file.read(record).decode().splitlines())}
        assert set(rows) == set(file.namelist()) and rows.pop(record) == ["", ""]
        for name, (digest, size) in rows.items():
            data = file.read(name)
            found = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            assert (digest, int(size)) == (f"sha256={found}", len(data))
        (sbom,) = (
            name for name in file.namelist() if name.endswith(".dist-info/sboms/p3s.cdx.json")
        )
        assert json.loads(file.read(sbom))["bomFormat"] == "CycloneDX"


@pytest.mark.slow
def test_two_builds_of_p3s_give_the_same_wheel(tmp_path: Path) -> None:
    version = importlib.metadata.version("setuptools")
    if int(version.partition(".")[0]) < 71:
        pytest.skip(f"setuptools {version} builds no wheels by itself")
    listed = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("not a clone: what belongs to P3S is not known")
    made = []
    for number, mask in ((1, 0o022), (2, 0o002)):
        source = tmp_path / f"source{number}"
        for name in filter(None, listed.stdout.split("\0")):
            there, target = ROOT / name, source / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if there.is_symlink():
                target.symlink_to(os.readlink(there))
            elif there.exists():
                target.write_bytes(there.read_bytes())
        subprocess.run(
            [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index"]
            + ["--no-build-isolation", "-w", str(tmp_path / f"out{number}"), str(source)],
            check=True,
            timeout=300,
            umask=mask,
        )
        made += (tmp_path / f"out{number}").glob("*.whl")
    assert made[0].read_bytes() == made[1].read_bytes()
    check_record(made[0])


def test_licences_are_told_from_what_packages_state() -> None:
    def stated(text: str) -> set[str]:
        import email

        return audit.stated(email.message_from_string(text))

    assert stated("License-Expression: MIT AND (GPL-2.0-only OR BSD-3-Clause)") == {
        "MIT",
        "BSD-3-Clause",
    }
    assert stated("License-Expression: GPL-3.0-only") == {"GPL-3.0-only"}
    assert stated(
        "Classifier: License :: OSI Approved\n"
        "Classifier: License :: OSI Approved :: Apache Software License"
    ) == {"Apache-2.0"}
    assert stated("License: BSD 3-Clause License") == {"BSD-3-Clause"}
    assert not stated("License: GNU GPL v3") <= audit.ALLOWED


def test_a_known_vulnerability_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    bad = {"name": "a", "version": "1", "vulns": [{"id": "CVE-1", "fix_versions": ["2"]}]}
    good = {"name": "b", "version": "1", "vulns": []}
    unknown = {"name": "c", "skip_reason": "not found"}
    assert audit.told([bad, good, unknown])
    assert "a 1: CVE-1, fixed in 2" in capsys.readouterr().out
    assert not audit.told([good, unknown])
    assert not audit.told([unknown])
    assert "skipped" in capsys.readouterr().out


def test_a_python_is_found_by_its_version_or_path(monkeypatch: pytest.MonkeyPatch) -> None:
    version = "{}.{}".format(*sys.version_info)
    own = matrix.interpreter(sys.executable)
    assert own == sys.executable
    root = Path(sys.base_prefix)
    for place in (root / "bin", Path(sys.executable).parent):  # as python3.11 on PATH
        if (place / f"python{version}").exists():
            monkeypatch.setenv("PATH", str(place))
            assert matrix.interpreter(version) == str(place / f"python{version}")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("PYENV_ROOT", str(ROOT / "nowhere"))
    assert matrix.interpreter(version) is None and matrix.interpreter("/nowhere/python") is None


def test_what_the_matrix_runs_is_there() -> None:
    assert all((ROOT / path).is_file() for path in matrix.QUICK)
    assert len(set(matrix.QUICK)) == len(matrix.QUICK)
