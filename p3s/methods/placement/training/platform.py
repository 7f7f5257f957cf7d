"""What a platform of SimGrid says of its hosts, and of the network between them."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from p3s.base.artefacts import file_bytes
from p3s.base.errors import P3SError
from p3s.base.host.hosts import expand_hosts

_UNITS = {"bps": "bit/s", "Bps": "B/s"}
_SPEED = re.compile(r"([0-9.]+(?:[eE][+-]?\d+)?)([kMGT]?)(bps|Bps)")


def _root(path: Path) -> ElementTree.Element:
    try:
        text = file_bytes(path).decode("utf-8")
        if "<!ENTITY" in text:
            raise ValueError("it defines entities")
        root = ElementTree.fromstring(text)
    except (OSError, ValueError, ElementTree.ParseError) as err:
        why = err.strerror if isinstance(err, OSError) and err.strerror else str(err)
        raise P3SError(f"{path}: no platform of SimGrid ({why[:100]})") from err
    if root.tag != "platform":
        raise P3SError(f"{path}: no platform of SimGrid (its first element is {root.tag[:40]})")
    return root


def hosts_of(path: Path) -> tuple[str, ...]:
    """Return the names of all hosts, in the order of the file.

    Errors: P3SError where the file is no platform, or describes no host.
    """
    entries: list[str] = []
    for element in _root(path).iter():
        if element.tag == "host":
            entries.append(element.get("id", ""))
        elif element.tag == "cluster":
            prefix, radical, suffix = (element.get(k, "") for k in ("prefix", "radical", "suffix"))
            entries.append(f"{prefix}[{radical}]{suffix}")
    if not entries:
        raise P3SError(f"{path}: describes no host; add a cluster, or hosts")
    try:
        return tuple(expand_hosts(",".join(entries)))
    except P3SError as err:
        raise P3SError(f"{path}: {err}") from err


def network_of(path: Path) -> str:
    """Return the network of a platform as p3s --topology takes it, "" where that is not known.

    Known are a single cluster that is a fat tree or a torus with single cables, or has one switch
    (which is no limit). The links of a dragonfly are joined differently.
    """
    root = _root(path)
    clusters = [element for element in root.iter() if element.tag == "cluster"]
    if len(clusters) != 1 or any(element.tag == "host" for element in root.iter()):
        return ""
    kind, numbers = clusters[0].get("topology", "FLAT"), clusters[0].get("topo_parameters", "")
    speed = _speed(clusters[0].get("bw", ""))
    if kind == "TORUS":
        return f"torus:{numbers.replace(',', 'x')}{speed}"
    if kind == "FAT_TREE":
        return _fat_tree(numbers, speed)
    return ""


def _fat_tree(numbers: str, speed: str) -> str:
    parts = [[word.strip() for word in part.split(",")] for part in numbers.split(";")]
    if len(parts) != 4 or set(parts[3]) != {"1"} or parts[2][:1] != ["1"]:
        return ""
    down, above = parts[1], parts[2][1:]
    words = [word for pair in zip(down, above, strict=False) for word in pair]
    return f"fat-tree:{','.join([*words, down[-1]])}{speed}"


def _speed(text: str) -> str:
    match = _SPEED.fullmatch(text.strip())
    return f"@{float(match[1]):g}{match[2]}{_UNITS[match[3]]}" if match else ""
