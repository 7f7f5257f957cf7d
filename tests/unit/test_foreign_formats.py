"""Files of other tools: what each is called, and the command that reads it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from captured_runs import check_runs

from p3s.base.artefacts import read_json
from p3s.base.errors import P3SError
from p3s.base.foreign_formats import FORMATS, ReadBy, format_of
from p3s.base.study import Study
from p3s.machine.topology.inside import read_inside
from p3s.machine.topology.read import read_fabric
from p3s.methods.baseline.read import read

SIMGRID = b"""<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
  <cluster id="c" prefix="n-" suffix="" radical="0-7" speed="1Gf" bw="125MBps" lat="50us"/>
</platform>
"""
#: First bytes of a file of each format, and its name.
SAMPLES = [
    (b"# by hand\n\nPARAMETER p\nPOINTS 4 8\n", "an Extra-P text file"),
    (b'{"params": {"p": 4}, "value": 1.5}\n', "a file of Extra-P's JSON Lines"),
    (b'{"value": 1.5, "params": {"p": 4}}\n', "a file of Extra-P's JSON Lines"),
    (b'{\n "parameters": ["p"],\n "measurements": {}}', "an Extra-P JSON file"),
    (b"# nodes\nSwitchName=s0 Nodes=n[0-3]\n", "a topology/tree file of Slurm"),
    (b"1\nfe80:0000\nhwloc\n3\n0001,1,1,,switch,\n", "a node file of netloc"),
    (SIMGRID, "a platform of SimGrid"),
    (
        b'<?xml version="1.0"?>\n<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n<topology version="2.0">',
        "a node file of hwloc",
    ),
    (b"\x03BOTF2\x00\x03\x02", "an OTF2 archive"),
]


@pytest.mark.parametrize(("head", "name"), SAMPLES)
def test_every_format_is_recognised(head: bytes, name: str) -> None:
    form = format_of(head)
    assert form is not None and form.name == name


def test_every_format_has_a_sample() -> None:
    assert {form.name for form in FORMATS} == {name for _, name in SAMPLES}


@pytest.mark.parametrize(
    "head",
    [
        b"n,seconds\n4,1.5\n",
        b"4 1.5\n8 0.75\n",
        b'{"schema": "p3s.times", "runs": []}',
        b'[{"n": 4, "seconds": 1.5}]',
        b'{"kind": "torus", "dims": [4, 4]}',
        b"",
        b"<" * 4096,
    ],
)
def test_what_is_no_format_of_others_is_not_called_one(head: bytes) -> None:
    assert format_of(head) is None


READERS: list[tuple[ReadBy, Callable[[Path], object]]] = [
    (ReadBy.TIMES, read),
    (ReadBy.NETWORK, lambda path: read_fabric(str(path), 1)),
    (ReadBy.NODE, read_inside),
    (ReadBy.TRACE, lambda path: check_runs(path.parent / "study", [path], None)),
    (ReadBy.OWN, lambda path: read_json(path, "p3s.machine")),
    (ReadBy.OWN, Study.open),
]


@pytest.mark.parametrize(("own", "reader"), READERS)
@pytest.mark.parametrize(("head", "name"), SAMPLES)
def test_every_reader_names_what_others_read(
    tmp_path: Path, own: ReadBy, reader: Callable[[Path], object], head: bytes, name: str
) -> None:
    file = tmp_path / "given"
    file.write_bytes(head)
    takes = next(form.reader for form in FORMATS if form.name == name)
    if takes is own:
        return
    with pytest.raises(P3SError) as raised:
        reader(file)
    cure = f"this command does not read; run: {takes.format(file=file)}"
    assert str(raised.value) == f"{file}: is {name}, which {cure}"


def test_a_directory_is_named_after_its_files(tmp_path: Path) -> None:
    (tmp_path / "database").mkdir()
    (tmp_path / "database" / "nodes.txt").write_bytes(
        b"1\nfe80:0000\nhwloc\n3\n0001,1,1,,switch,\n"
    )
    with pytest.raises(
        P3SError, match="is a node file of netloc, which this command does not read"
    ):
        check_runs(tmp_path / "study", [tmp_path / "database"], None)
    with pytest.raises(P3SError, match="is a node file of netloc"):
        Study.open(tmp_path / "database")
