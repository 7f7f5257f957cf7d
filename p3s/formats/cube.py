"""A profile for Cube (https://www.scalasca.org/software/cube-4.x): a .cubex file.

An uncompressed tar with anchor.xml (metrics, call paths, system) and, for each metric, an index of
call paths and their values, as pyCubexR documents it.
"""

from __future__ import annotations

import io
import struct
import tarfile
from collections.abc import Sequence
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

import numpy as np

from p3s.base.artefacts import write_bytes
from p3s.base.ops import COLLECTIVE, RECV, SEND, kind_of
from p3s.base.text import quote_word
from p3s.base.version import __version__
from p3s.formats.exported import ExportResult
from p3s.formats.profile import Node, Profile, profile_of
from p3s.formats.run import Run, plain

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Name for programs and for people, type, unit, what it is.
METRICS = (
    ("visits", "Visits", "UINT64", "occ", "Number of MPI calls"),
    ("time", "Time", "DOUBLE", "sec", "Time of all processes"),
    ("bytes_sent", "Bytes sent", "UINT64", "bytes", "Bytes of messages and collectives"),
    ("bytes_received", "Bytes received", "UINT64", "bytes", "Bytes of messages received"),
)
_INDEX, _DATA = b"CUBEX.INDEX", b"CUBEX.DATA"
_LITTLE_ENDIAN, _VERSION, _SPARSE = 1, 0, 1


def to_cube(run: Run, result: ExportResult) -> None:
    """Write the profile of a run as a .cubex file."""
    write_bytes(result.path, cubex(run, profile_of(run, result)))
    result.command = f"cube {quote_word(result.path)}"


def cubex(run: Run, profile: Profile) -> bytes:
    """Return the bytes of a .cubex file."""
    order = _depth_first(profile.nodes)
    locations = [rank for ranks in run.nodes.values() for rank in ranks]
    columns = (profile.visits, profile.time_s, profile.sent, profile.received)
    files = {"anchor.xml": _anchor(run, profile, order)}
    for number, ((_, _, dtype, _, _), values) in enumerate(zip(METRICS, columns, strict=True)):
        located = (np.rint(values) if dtype == "UINT64" else values)[:, locations]
        used = [i for i, node in enumerate(order) if located[node].any()] or [0]
        index = struct.pack("<iHBi", _LITTLE_ENDIAN, _VERSION, _SPARSE, len(used))
        files[f"{number}.index"] = _INDEX + index + np.array(used, dtype="<i4").tobytes()
        rows = located[[order[i] for i in used]]
        files[f"{number}.data"] = _DATA + _pack_rows(rows, dtype)
    return _tar(files)


def _pack_rows(rows: NDArray[np.float64], dtype: str) -> bytes:
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
    ordered: list[int] = []
    todo = below[-1][::-1]
    while todo:
        ordered.append(todo.pop())
        todo += below.get(ordered[-1], [])[::-1]
    return ordered


def _anchor(run: Run, profile: Profile, order: Sequence[int]) -> bytes:
    kind = "simulated" if run.simulated else "traced"
    xml = _Xml()
    xml.line('<?xml version="1.0" encoding="UTF-8"?>')
    xml.line('<cube version="4.4">')
    for key, value in (("Creator", f"P3S {__version__}"), ("P3S run", kind)):
        xml.line(f'<attr key="{key}" value={_quote_attribute(value)}/>')
    xml.line("<metrics>")
    for number, (name, title, dtype, unit, description) in enumerate(METRICS):
        xml.line(f'<metric id="{number}" type="EXCLUSIVE">')
        xml.tags(disp_name=title, uniq_name=name, dtype=dtype, uom=unit, val="", url="")
        xml.tags(descr=description)
        xml.line("</metric>")
    xml.line("</metrics>")
    _program(xml, profile.nodes, order)
    _system(xml, run)
    xml.line("</cube>")
    return "".join(xml.lines).encode()


class _Xml:
    """Lines of XML as Cube's own scanner takes them: not all XML, so no library writes it.

    Attributes are in double quotes, tags that hold nothing are opened and closed.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []

    def line(self, text: str) -> None:
        """Add a line."""
        self.lines.append(text + "\n")

    def tags(self, **texts: str) -> None:
        """Add a tag with a text for each."""
        for name, text in texts.items():
            self.line(f"<{name}>{escape(plain(text))}</{name}>")


def _program(xml: _Xml, nodes: Sequence[Node], order: Sequence[int]) -> None:
    regions: dict[tuple[str, str, int, bool], int] = {}
    xml.line("<program>")
    for number in order:
        node = nodes[number]
        key = (node.name, node.file, node.line, node.mpi)
        if key in regions:
            continue
        regions[key] = len(regions)
        where = f'mod={_quote_attribute(node.file)} begin="{node.line or -1}"'
        xml.line(f'<region id="{regions[key]}" {where} end="{node.line or -1}">')
        paradigm, role = ("mpi", _role(node.name)) if node.mpi else ("user", "function")
        xml.tags(name=node.name, mangled_name=node.name, paradigm=paradigm, role=role)
        xml.tags(url="", descr="")
        xml.line("</region>")
    open_nodes: list[int] = []
    for place, number in enumerate(order):
        node = nodes[number]
        while open_nodes and open_nodes[-1] != node.parent:
            open_nodes.pop()
            xml.line("</cnode>")
        open_nodes.append(number)
        callee = regions[node.name, node.file, node.line, node.mpi]
        xml.line(f'<cnode id="{place}" calleeId="{callee}">')
    xml.lines += ["</cnode>\n"] * len(open_nodes)
    xml.line("</program>")


def _role(op: str) -> str:
    kind = kind_of(op)
    if kind in (SEND, RECV):
        return "point2point"
    if kind == COLLECTIVE:
        return "barrier" if op.lower().endswith("barrier") else "coll_all2all"
    return "function"


def _system(xml: _Xml, run: Run) -> None:
    place = 0  # locations are numbered as they come, ranks of one node together
    xml.line("<system>")
    xml.line('<systemtreenode Id="0">')
    xml.tags(**{"name": "machine", "class": "machine"})
    for number, (host, ranks) in enumerate(run.nodes.items(), 1):
        xml.line(f'<systemtreenode Id="{number}">')
        xml.tags(**{"name": host, "class": "node"})
        for rank in ranks:
            xml.line(f'<locationgroup Id="{place}">')
            xml.tags(name=f"MPI Rank {rank}", rank=str(rank), type="process")
            xml.line(f'<location Id="{place}">')
            xml.tags(name="Master thread", rank="0", type="thread")
            xml.line("</location>")
            xml.line("</locationgroup>")
            place += 1
        xml.line("</systemtreenode>")
    xml.line("</systemtreenode>")
    xml.line("</system>")


def _quote_attribute(text: str) -> str:
    return '"' + escape(plain(text), {'"': "&quot;"}) + '"'
