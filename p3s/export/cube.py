"""A profile for Cube (https://www.scalasca.org/software/cube-4.x): a .cubex file.

An uncompressed tar with anchor.xml (metrics, call paths, system) and, for each metric, an index of
call paths and their values, as pyCubexR documents it.
"""

from __future__ import annotations

import io
import struct
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import numpy as np

from p3s.artefacts import write_bytes
from p3s.export.profile import Node, Profile, profile_at
from p3s.export.run import Run
from p3s.export.scaled import Exported, Options
from p3s.version import __version__

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from p3s.study import Study

#: Name for programs and for people, type, unit, what it is.
METRICS = (
    ("visits", "Visits", "UINT64", "occ", "Number of MPI calls"),
    ("time", "Time", "DOUBLE", "sec", "Time of all processes"),
    ("bytes_sent", "Bytes sent", "UINT64", "bytes", "Bytes of messages and collectives"),
    ("bytes_received", "Bytes received", "UINT64", "bytes", "Bytes of messages received"),
)
_INDEX, _DATA = b"CUBEX.INDEX", b"CUBEX.DATA"
_LITTLE_ENDIAN, _VERSION, _SPARSE = 1, 0, 1


def to_cube(
    study: Study, n: int, target: Path, options: Options, say: Callable[[str], None]
) -> Exported:
    """Write the profile of the run at ``n`` processes, traced or simulated, as a .cubex file."""
    done = Exported("cube", n, target)
    run, profile = profile_at(study, n, options, done, say)
    write_bytes(target, cubex(run, profile))
    done.events = float(profile.visits.sum())
    done.records = len(profile.nodes)
    done.command = f"cube {target}"
    return done


def cubex(run: Run, profile: Profile) -> bytes:
    """Return the bytes of a .cubex file."""
    order = _depth_first(profile.nodes)
    columns = (profile.visits, profile.time_s, profile.sent, profile.received)
    files = {"anchor.xml": _anchor(run, profile, order)}
    for number, ((_, _, dtype, _, _), values) in enumerate(zip(METRICS, columns, strict=True)):
        told = np.rint(values) if dtype == "UINT64" else values
        used = [i for i, node in enumerate(order) if told[node].any()] or [0]
        index = struct.pack("<iHBi", _LITTLE_ENDIAN, _VERSION, _SPARSE, len(used))
        files[f"{number}.index"] = _INDEX + index + np.array(used, dtype="<i4").tobytes()
        rows = told[[order[i] for i in used]]
        files[f"{number}.data"] = _DATA + _packed(rows, dtype)
    return _tar(files)


def _packed(rows: NDArray[np.float64], dtype: str) -> bytes:
    return rows.astype("<u8" if dtype == "UINT64" else "<f8").tobytes()


def _tar(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o644
            tar.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def _depth_first(nodes: Sequence[Node]) -> list[int]:
    """Return the nodes in the order in which Cube numbers them: each before those below it."""
    below: dict[int, list[int]] = {}
    for number, node in enumerate(nodes):
        below.setdefault(node.parent, []).append(number)
    found: list[int] = []
    todo = below[-1][::-1]
    while todo:
        found.append(todo.pop())
        todo += below.get(found[-1], [])[::-1]
    return found


def _anchor(run: Run, profile: Profile, order: Sequence[int]) -> bytes:
    root = ElementTree.Element("cube", version="4.4")
    kind = "simulated" if run.simulated else "traced"
    for key, value in (("Creator", f"P3S {__version__}"), ("P3S run", kind)):
        ElementTree.SubElement(root, "attr", key=key, value=value)
    metrics = ElementTree.SubElement(root, "metrics")
    for number, (name, shown, dtype, unit, what) in enumerate(METRICS):
        metric = ElementTree.SubElement(metrics, "metric", id=str(number), type="EXCLUSIVE")
        _texts(metric, disp_name=shown, uniq_name=name, dtype=dtype, uom=unit, val="")
        _texts(metric, url="", descr=what)
    _program(ElementTree.SubElement(root, "program"), profile.nodes, order)
    _system(ElementTree.SubElement(root, "system"), run)
    data: bytes = ElementTree.tostring(root, encoding="UTF-8", xml_declaration=True)
    return data


def _program(root: ElementTree.Element, nodes: Sequence[Node], order: Sequence[int]) -> None:
    regions: dict[tuple[str, str, int, bool], int] = {}
    for number in order:
        node = nodes[number]
        key = (node.name, node.file, node.line, node.mpi)
        if key in regions:
            continue
        regions[key] = len(regions)
        line = str(node.line or -1)
        region = ElementTree.SubElement(
            root, "region", id=str(regions[key]), mod=_text(node.file), begin=line, end=line
        )
        paradigm, role = ("mpi", _role(node.name)) if node.mpi else ("user", "function")
        _texts(region, name=node.name, mangled_name=node.name, paradigm=paradigm, role=role)
        _texts(region, url="", descr="")
    made: dict[int, ElementTree.Element] = {-1: root}
    for place, number in enumerate(order):
        node = nodes[number]
        callee = regions[node.name, node.file, node.line, node.mpi]
        made[number] = ElementTree.SubElement(
            made[node.parent], "cnode", id=str(place), calleeId=str(callee)
        )


def _role(op: str) -> str:
    from p3s.trace.ops import COLLECTIVE, RECV, SEND, kind_of

    kind = kind_of(op)
    if kind in (SEND, RECV):
        return "point2point"
    if kind == COLLECTIVE:
        return "barrier" if op.lower().endswith("barrier") else "coll_all2all"
    return "function"


def _system(root: ElementTree.Element, run: Run) -> None:
    machine = ElementTree.SubElement(root, "systemtreenode", Id="0")
    _texts(machine, **{"name": "machine", "class": "machine"})
    nodes: dict[str, list[int]] = {}
    for rank in range(run.trace.np):
        nodes.setdefault((run.hosts[rank] if run.hosts else "") or "node", []).append(rank)
    places = 0
    for number, (host, ranks) in enumerate(nodes.items(), 1):
        node = ElementTree.SubElement(machine, "systemtreenode", Id=str(number))
        _texts(node, **{"name": host, "class": "node"})
        for rank in ranks:
            group = ElementTree.SubElement(node, "locationgroup", Id=str(places))
            _texts(group, name=f"MPI Rank {rank}", rank=str(rank), type="process")
            location = ElementTree.SubElement(group, "location", Id=str(places))
            _texts(location, name="Master thread", rank="0", type="thread")
            places += 1
    ElementTree.SubElement(root, "topologies")


def _texts(root: ElementTree.Element, **texts: str) -> None:
    for name, text in texts.items():
        ElementTree.SubElement(root, name).text = _text(text)


def _text(text: str) -> str:
    """Return text that XML can hold."""
    return "".join(c if c.isprintable() else "?" for c in text)
