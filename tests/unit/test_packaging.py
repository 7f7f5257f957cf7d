"""Recipes for packages have the version and the dependencies that pyproject.toml has."""

from __future__ import annotations

import ast
import fnmatch
import re
import tomllib
from collections.abc import Iterator
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
