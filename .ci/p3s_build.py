"""Builds P3S as setuptools does, the wheel reproducibly and with a bill of materials in it.

Two builds of the same files with the same setuptools give the same bytes: entries are in the order
of their names, with one time (SOURCE_DATE_EPOCH, else the beginning of 1980) and plain modes. The
bill of materials (CycloneDX 1.6, https://cyclonedx.org/docs/1.6/json/) lies where PEP 770 has it:
p3s-VERSION.dist-info/sboms/p3s.cdx.json. It names what P3S needs, as .ci/requirements.lock has it.
With the setting ``prebuilt`` (compiler wrappers of MPIs, separated by colons) the wheel is one for
this kind of machine, and brings along what P3S would compile there: see prebuild.py.
The archive of the sources is the same each time too, and has the links that a clone has.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import tarfile
import tempfile
import time
import tomllib
import uuid
import zipfile
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403  the other hooks are setuptools' own

LOCK = Path(__file__).with_name("requirements.lock")
_PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)(?:\s*;\s*([^\\]*))?")
_ASKED_BY = re.compile(r"\s+#\s+(?:via\s+)?([A-Za-z0-9._-]+)$")
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_NAMESPACE = uuid.UUID("5ad0b9a8-6f0d-5cf1-9b0e-4d0f8d4b3a57")
#: The first time that a zip file can hold.
_EARLIEST = 315532800


def build_wheel(
    wheel_directory: str,
    config_settings: dict[str, Any] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """Build the wheel; return its name."""
    wrappers = _wrappers(config_settings)
    for left in [Path("build/lib"), *Path("build").glob("bdist.*")]:
        shutil.rmtree(left, ignore_errors=True)  # files that are gone would come along
    name: str = build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)
    if not wrappers:
        settle(Path(wheel_directory) / name)
        return name
    import prebuild

    with tempfile.TemporaryDirectory() as folder:
        tag = prebuild.prebuild(wrappers, Path(folder))
        files = {f"p3s/prebuilt/{path.name}": path.read_bytes() for path in Path(folder).iterdir()}
    return settle(Path(wheel_directory) / name, files, tag).name


def get_requires_for_build_wheel(config_settings: dict[str, Any] | None = None) -> list[str]:
    """Return what else building the wheel needs."""
    more: list[str] = build_meta.get_requires_for_build_wheel(config_settings)
    if not _wrappers(config_settings):
        return more
    needed: list[str] = tomllib.loads(Path("pyproject.toml").read_text())["project"]["dependencies"]
    return [*more, *needed]  # P3S itself compiles its C


def _wrappers(config_settings: dict[str, Any] | None) -> list[str]:
    return list(filter(None, str((config_settings or {}).get("prebuilt", "")).split(":")))


def build_sdist(sdist_directory: str, config_settings: dict[str, Any] | None = None) -> str:
    """Build the archive of the sources; return its name."""
    name: str = build_meta.build_sdist(sdist_directory, config_settings)
    links = {str(path): os.readlink(path) for path in Path("p3s").iterdir() if path.is_symlink()}
    settle_sources(Path(sdist_directory) / name, links)
    return name


def settle_sources(archive: Path, links: dict[str, str]) -> None:
    """Write an archive of sources anew, the same way every time, with links as links.

    setuptools puts the files behind a link of a folder in its place; tests look for them where
    they are in a clone. ``links``: what each leads to, by its path.
    """
    top = archive.name.removesuffix(".tar.gz")
    moved = {f"{top}/{at}/": f"{_end(f'{top}/{at}', to)}/" for at, to in links.items()}
    files: dict[str, tuple[bytes, bool]] = {}
    with tarfile.open(archive) as file:
        for entry in filter(tarfile.TarInfo.isfile, file.getmembers()):
            begin = next((each for each in moved if entry.name.startswith(each)), "")
            name = moved.get(begin, "") + entry.name.removeprefix(begin)
            files[name] = (file.extractfile(entry).read(), bool(entry.mode & 0o100))
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as file:
        for at, to in sorted(links.items()):
            entry = _source(f"{top}/{at}", 0o777)
            entry.type, entry.linkname = tarfile.SYMTYPE, to
            file.addfile(entry)
        for name, (data, runs) in sorted(files.items()):
            entry = _source(name, 0o755 if runs else 0o644)
            entry.size = len(data)
            file.addfile(entry, io.BytesIO(data))
    draft = archive.with_name(f".{archive.name}")
    draft.write_bytes(gzip.compress(plain.getvalue(), mtime=0))
    os.replace(draft, archive)


def _end(at: str, to: str) -> str:
    return os.path.normpath(os.path.join(os.path.dirname(at), to))


def _source(name: str, mode: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.mode, entry.mtime = mode, max(_epoch() or 0, _EARLIEST)
    return entry


def settle(wheel: Path, more: dict[str, bytes] | None = None, tag: str = "") -> Path:
    """Add the bill of materials to a wheel and write it anew, the same way every time.

    With ``more`` files it becomes one for the machines of a tag. Returns its path.
    """
    with zipfile.ZipFile(wheel) as file:
        entries = {name: file.read(name) for name in file.namelist() if not name.endswith("/")}
    (record,) = (name for name in entries if name.endswith(".dist-info/RECORD"))
    del entries[record]
    target = wheel
    if tag:
        entries |= more or {}
        about = record.replace("RECORD", "WHEEL")
        text = re.sub(r"(?m)^(Tag|Root-Is-Purelib):.*\n", "", entries[about].decode()).strip()
        entries[about] = f"{text}\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
        target = wheel.with_name("-".join([*wheel.name.split("-")[:2], f"{tag}.whl"]))
    sbom = record.replace("RECORD", "sboms/p3s.cdx.json")
    entries[sbom] = json.dumps(bill(), indent=1, sort_keys=True).encode() + b"\n"
    lines = [f"{name},sha256={_digest(data)},{len(data)}" for name, data in sorted(entries.items())]
    draft = wheel.with_name(f".{wheel.name}")
    with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
        for name, data in sorted(
            entries.items(), key=lambda each: (".dist-info/" in each[0], each)
        ):
            file.writestr(_entry(name), data, zipfile.ZIP_DEFLATED, 9)
        file.writestr(
            _entry(record), "\n".join([*lines, f"{record},,", ""]), zipfile.ZIP_DEFLATED, 9
        )
    wheel.unlink()
    os.replace(draft, target)
    return target


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, time.gmtime(max(_epoch() or 0, _EARLIEST))[:6])
    entry.create_system, entry.external_attr = 3, 0o100644 << 16
    return entry


def _epoch() -> int | None:
    text = os.environ.get("SOURCE_DATE_EPOCH", "")
    return int(text) if text.isdecimal() else None


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


# ---- what P3S needs -----------------------------------------------------------------------------
def bill() -> dict[str, Any]:
    """Return the bill of materials of P3S."""
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    pinned, needs = read_lock(LOCK.read_text())
    roots = [normal(_NAME.match(text)[0]) for text in project["dependencies"]]
    used = closure(roots, needs)
    own = f"pkg:pypi/{project['name']}@{project['version']}"
    parts = [_component(name, version, why) for name in used for version, why in pinned[name]]
    refs = {name: [_purl(name, version) for version, _ in pinned[name]] for name in used}
    epoch = _epoch()
    made = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            **(
                {"timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch))}
                if epoch is not None
                else {}
            ),
            "component": {
                "type": "application",
                "bom-ref": own,
                "purl": own,
                "name": project["name"],
                "version": project["version"],
                "description": project["description"],
                "licenses": [{"license": {"id": project["license"]}}],
            },
        },
        "components": parts,
        "dependencies": [
            {"ref": own, "dependsOn": sorted(ref for root in roots for ref in refs[root])},
            *(
                {"ref": ref, "dependsOn": sorted(r for other in needs[name] for r in refs[other])}
                for name in used
                for ref in refs[name]
            ),
        ],
    }
    number = uuid.uuid5(_NAMESPACE, json.dumps(made, sort_keys=True))
    return {**made, "serialNumber": f"urn:uuid:{number}"}


def _purl(name: str, version: str) -> str:
    return f"pkg:pypi/{name}@{version}"


def _component(name: str, version: str, where: str) -> dict[str, Any]:
    purl = _purl(name, version)
    made = {"type": "library", "bom-ref": purl, "purl": purl, "name": name, "version": version}
    return {**made, "properties": [{"name": "p3s:where", "value": where}]} if where else made


def normal(name: str) -> str:
    """Return a project's name as PEP 503 writes it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_lock(text: str) -> tuple[dict[str, list[tuple[str, str]]], dict[str, set[str]]]:
    """Return, by name, the versions of a lock file with their markers, and what each needs."""
    pinned: dict[str, list[tuple[str, str]]] = {}
    needs: dict[str, set[str]] = {}
    name = ""
    for line in text.splitlines():
        if found := _PINNED.match(line):
            name = normal(found[1])
            pinned.setdefault(name, []).append((found[2], (found[3] or "").strip()))
            needs.setdefault(name, set())
        elif (by := _ASKED_BY.match(line)) and by[1] != "via":
            needs.setdefault(normal(by[1]), set()).add(name)
    return pinned, needs


def closure(roots: list[str], needs: dict[str, set[str]]) -> list[str]:
    """Return what is needed by some projects, they themselves included, by name."""
    found, left = set(), list(roots)
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += needs.get(name, ())
    return sorted(found)
