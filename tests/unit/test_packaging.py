"""The package: wheel, archive, release, and what comes from elsewhere."""

from __future__ import annotations

import ast
import base64
import csv
import fnmatch
import gzip
import hashlib
import importlib.metadata
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT

requirements = pytest.importorskip("packaging.requirements", reason="packaging is not installed")

FOLDER = ROOT / "packaging"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
VERSION = PROJECT["version"]
OPTIONAL = PROJECT["optional-dependencies"]
NEEDED = {need.name: need for need in map(requirements.Requirement, PROJECT["dependencies"])}
BUILD = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
#: What of P3S's dependencies modules of EasyBuild bring, beside those of their own name.
MODULES = {
    "SciPy-bundle": {"numpy", "scipy"},
    "Arrow": {"pyarrow"},
    "Python-bundle-PyPI": {"rich", "jinja2", "jsonschema"},
}
DEBIAN = {"gcc", "libc6-dev", "libopenmpi-dev", "openmpi-bin", "python3", "python3-venv"}


def bounds(text: str) -> set[str]:
    """Return the parts of a range of versions."""
    return set(filter(None, text.replace(" ", "").split(",")))


# ---- wheel --------------------------------------------------------------------------------------
def test_the_wheel_has_every_file_of_the_packages() -> None:
    setup = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    patterns = setup["package-data"]["*"]
    files = [
        path
        for package in ("p3s", "replay", "signature_runner")
        for path in (ROOT / package).rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc")
    ]
    assert len(files) > 50
    missing = [f for f in files if not any(fnmatch.fnmatch(f.name, p) for p in patterns)]
    assert not missing


# ---- conda --------------------------------------------------------------------------------------
def listed(text: str, part: str) -> dict[str, str]:
    """Return name and range of what a recipe lists under ``part`` (host, run)."""
    block = re.search(rf"^  {part}:\n((?:    .*\n)+)", text, re.M)
    assert block is not None
    rows = re.findall(r"^    - (\S+)(?: (\S+))?$", block[1], re.M)
    return dict(rows)


def test_conda() -> None:
    text = (FOLDER / "conda" / "recipe.yaml").read_text()
    assert f'version: "{VERSION}"' in text and f"summary: {PROJECT['description']}" in text
    run = {name: bounds(span) for name, span in listed(text, "run").items()}
    assert run.pop("python") == bounds(PROJECT["requires-python"])
    assert run.pop("c-compiler") == set()
    assert run == {name: set(map(str, need.specifier)) for name, need in NEEDED.items()}
    host = listed(text, "host")
    assert [f"setuptools{host['setuptools']}"] == BUILD
    assert f"- p3s = {PROJECT['scripts']['p3s']}" in text


def test_conda_recipe_is_yaml_that_says_so() -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    made = yaml.safe_load((FOLDER / "conda" / "recipe.yaml").read_text())
    assert made["schema_version"] == 1 and made["about"]["license"] == PROJECT["license"]
    assert (ROOT / made["about"]["license_file"]).is_file()


def test_rattler_build_renders_the_conda_recipe() -> None:
    """Conda's own tool: pip install py-rattler-build; it is too large to be among the others."""
    tool = pytest.importorskip("rattler_build", reason="py-rattler-build is not installed")
    recipe = tool.Stage0Recipe.from_file(str(FOLDER / "conda" / "recipe.yaml"))
    (made,) = recipe.render(tool.VariantConfig(), tool.RenderConfig())
    assert f"package='p3s', version='{VERSION}'" in repr(made)


# ---- Spack --------------------------------------------------------------------------------------
def calls(name: str) -> Iterator[ast.Call]:
    """Yield the calls of a directive in Spack's recipe."""
    tree = ast.parse((FOLDER / "spack" / "package.py").read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == name:
            yield node


def first(call: ast.Call) -> str:
    value = ast.literal_eval(call.args[0])
    assert isinstance(value, str)
    return value


def spack_range(specifier: Any) -> str:
    """Return ``>=1.26,<3`` as Spack writes it: both ends belong to it, 2 stands for all of 2.x."""
    ends = {part.operator: part.version for part in specifier}
    assert set(ends) <= {">=", "<"}
    below = ends.get("<")
    return f"{ends['>=']}:{int(below) - 1 if below else ''}"


def test_spack() -> None:
    assert [first(call) for call in calls("version")] == [VERSION]
    found = {}
    for call in calls("depends_on"):
        when = next((ast.literal_eval(k.value) for k in call.keywords if k.arg == "when"), "")
        name, _, span = first(call).partition("@")
        found[name.removeprefix("py-"), when] = span
    assert found.pop(("mpi", "")) == "" and found.pop(("c", "")) == ""
    assert f">={found.pop(('python', '')).rstrip(':')}" == PROJECT["requires-python"]
    assert [f"setuptools>={found.pop(('setuptools', '')).rstrip(':')}"] == BUILD
    wanted = {(spack_name(name), ""): spack_range(n.specifier) for name, n in NEEDED.items()}
    for variant in map(first, calls("variant")):
        for need in map(requirements.Requirement, OPTIONAL[variant]):
            wanted[spack_name(need.name), f"+{variant}"] = spack_range(need.specifier)
    assert found == wanted


def spack_name(name: str) -> str:
    return name.replace("_", "-").lower()


# ---- EasyBuild ----------------------------------------------------------------------------------
def test_easybuild() -> None:
    (path,) = (FOLDER / "easybuild").glob("*.eb")
    made = assigned(path.read_text())
    chain = made["toolchain"]
    assert path.name == f"p3s-{VERSION}-{chain['name']}-{chain['version']}.eb"
    assert made["version"] == VERSION and made["description"] == PROJECT["description"]
    modules = {row[0]: row[1] for row in made["dependencies"]}
    extensions = {row[0]: row for row in made["exts_list"]}
    brought = set().union(*(MODULES.get(name, {name}) for name in modules))
    for name, need in NEEDED.items():
        assert (name in brought) != (name in extensions), name
        version = extensions[name][1] if name in extensions else modules.get(name)
        assert version is None or need.specifier.contains(version), name
    assert made["exts_list"][-1][:2] == ("p3s", VERSION)
    for _, _, settings in made["exts_list"][:-1]:
        assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in settings["checksums"])


def assigned(text: str) -> dict[str, Any]:
    """Return the values of a recipe, which is assignments of literals, in which names may stand."""
    found: dict[str, Any] = {}
    for node in ast.parse(text).body:
        assert isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        known = {
            each: ast.Constant(found[each.id])
            for each in ast.walk(node.value)
            if isinstance(each, ast.Name)
        }
        found[node.targets[0].id] = ast.literal_eval(Filled(known).visit(node.value))
    return found


class Filled(ast.NodeTransformer):
    """Puts values in the place of names."""

    def __init__(self, known: dict[ast.Name, ast.Constant]) -> None:
        self.known = known

    def visit_Name(self, node: ast.Name) -> ast.Constant:
        return self.known[node]


# ---- containers ---------------------------------------------------------------------------------
def installed(text: str) -> set[str]:
    """Return the packages of Debian that a recipe installs."""
    found = re.search(r"--no-install-recommends \\\n\s+([^&\n]+)", text)
    assert found is not None
    return set(found[1].replace("\\", "").split())


def test_containers() -> None:
    docker = (FOLDER / "containers" / "Dockerfile").read_text()
    apptainer = (FOLDER / "containers" / "p3s.def").read_text()
    assert f'image.version="{VERSION}"' in docker and f"    Version {VERSION}\n" in apptainer
    assert f'licenses="{PROJECT["license"]}"' in docker
    for text in (docker, apptainer):
        assert "debian:bookworm-slim" in text and installed(text) == DEBIAN
    assert requirements.Requirement(f"python{PROJECT['requires-python']}").specifier.contains(
        "3.11"
    )


def test_the_apptainer_image_gets_what_a_wheel_is_made_of() -> None:
    text = (FOLDER / "containers" / "p3s.def").read_text()
    copied = re.findall(r"^    (\S+) /src/(\S+)$", text, re.M)
    assert all(one == other and (ROOT / one).exists() for one, other in copied)
    links = {path.name for path in (ROOT / "p3s").iterdir() if path.is_symlink()}
    needed = {"pyproject.toml", PROJECT["readme"], *PROJECT["license-files"], "p3s", ".ci", "docs"}
    assert {one for one, _ in copied} == needed | links


def test_debian() -> None:
    """Its version is P3S's, and its patch still fits pyproject.toml."""
    debian = FOLDER / "debian"
    assert (debian / "changelog").read_text().startswith(f"p3s ({VERSION}-")
    text = (ROOT / "pyproject.toml").read_text()
    for name in (debian / "patches" / "series").read_text().split():
        lines = (debian / "patches" / name).read_text().splitlines()
        assert "+++ b/pyproject.toml" in lines
        for line in lines:
            if line.startswith("-") and not line.startswith("---"):
                assert f"{line[1:]}\n" in text


def test_the_list_of_recipes_is_whole() -> None:
    told = (FOLDER / "README.md").read_text().replace("VERSION", VERSION)
    for path in FOLDER.rglob("*"):
        if path.is_relative_to(FOLDER / "debian"):
            assert "`debian/`" in told
        elif path.is_file() and path.suffix not in (".md", ".dockerignore"):
            assert f"`{path.relative_to(FOLDER)}`" in told


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


sys.path.insert(0, str(ROOT / ".ci"))
audit = pytest.importorskip("audit")
matrix = importlib.import_module("matrix")

LOCK = ROOT / ".ci" / "requirements.lock"
RUNTIME_LOCK = LOCK.with_name("runtime.lock")
ALL_NEEDED = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["dev"]]


@pytest.mark.parametrize("needed", ALL_NEEDED)
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
