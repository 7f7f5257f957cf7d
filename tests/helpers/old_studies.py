"""Studies of earlier versions: kept in tests/data/studies, each with what it said when it was made.

    python tests/helpers/old_studies.py NAME STUDY

packs a study (its runs and what was made of them, no programs) into tests/data/studies/NAME.tar.xz
and puts what today's commands say of it beside it.
"""

from __future__ import annotations

import collections
import json
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from commands import cli

from p3s.base.study import Study

FOLDER = Path(__file__).parents[1] / "data" / "studies"
#: The count that is predicted; none of the studies has runs at it.
AT = 24
_LEFT_OUT = {"stdout.txt", "stderr.txt", "report.html", "speedup.png"}


def names() -> list[str]:
    """Return the studies that are kept."""
    return sorted(path.name.removesuffix(".tar.xz") for path in FOLDER.glob("*.tar.xz"))


def _unpack(packed: tarfile.TarFile, folder: Path) -> None:
    """Write the plain files of an archive, all of them below the folder."""
    for member in packed.getmembers():
        place = (folder / member.name).resolve()
        assert place.is_relative_to(folder.resolve()) and (member.isfile() or member.isdir())
        packed.extract(member, folder)


def unpack(name: str, folder: Path) -> Path:
    """Put a study into a folder; return where it is."""
    with tarfile.open(FOLDER / f"{name}.tar.xz") as packed:
        _unpack(packed, folder)
    return folder / "study"


def recorded(name: str) -> dict[str, Any]:
    """Return what a study said when it was kept."""
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return found


def said_of(root: Path) -> dict[str, Any]:
    """Return what check, model, scale and predict say of a study, from its files alone.

    Whole numbers and the work of all ranks; of the predicted time only that there is one, as it
    rests on what is known of machines, too.
    """
    check = cli("check", root, "--json", code=None)
    checked = {"exit": check.code, "whole": check.out.count('"problem": ""')}
    model = cli("model", root, "--json", code=None)
    scale = cli("scale", root, "-n", AT, "--json", code=None)
    head = json.loads(Study.open(root).scaled_path(AT).read_text())
    predict = cli("predict", root, "-n", AT, "--no-replay", "--json", code=None)
    (point,) = [found for found in predict.data["counts"] if found["n"] == AT]
    return {
        "check": checked,
        "model": {"exit": model.code, "items": _items(model.data)},
        "scaled": {"exit": scale.code, **_sums(head)},
        "predicted": {"exit": predict.code, "time": point["time_s"] > 0},
    }


def _items(content: dict[str, Any]) -> dict[str, int]:
    """Return how many items of the model are of each operation."""
    return dict(sorted(collections.Counter(item["op"] for item in content["items"]).items()))


def _sums(head: dict[str, Any]) -> dict[str, Any]:
    sums: dict[str, float] = {}
    for table in head["tables"].values():
        for name, value in table["sums"].items():
            sums[name] = sums.get(name, 0) + value
    return {name: sums[name] for name in ("events", "bytes", "work")}


def pack(name: str, root: Path) -> None:
    """Keep a study under a name, with what it says."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "study")
        shutil.copytree(root, place, ignore=lambda _, files: _LEFT_OUT & set(files))
        with tarfile.open(FOLDER / f"{name}.tar.xz", "w:xz", preset=9) as packed:
            packed.add(place, "study", filter=nobody)
        said = said_of(place)
    (FOLDER / f"{name}.json").write_text(json.dumps(said, indent=1) + "\n")


def nobody(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Return an archive's entry without its owner."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


if __name__ == "__main__":
    pack(sys.argv[1], Path(sys.argv[2]))
