"""Which node each rank of the full run lives on: block, cyclic, or as a file says."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from p3s.base.arrays import Ints, starts
from p3s.base.errors import P3SError

BLOCK = "block"
CYCLIC = "cyclic"
RANK_FILE = "rank file"

#: `rank 3=node7 slot=0:1` (Open MPI, mpirun(1) "Rankfiles"; PRRTE for version 5).
_RANKFILE_LINE = re.compile(r"rank\s+(\d+)\s*=\s*(\S+?)\s*(?:slots?\s*=\s*(.*))?$", re.IGNORECASE)
#: One slot, or one core of a socket; others may be for several ranks.
_ONE_SLOT = re.compile(r"\d+(?::\d+)?")
#: A host relative to the allocation: the node with this number.
_RELATIVE = re.compile(r"\+n(\d+)$", re.IGNORECASE)
#: `node7:4` of an MPICH host list: the next four ranks.
_COUNTED = re.compile(r"(\S+):([1-9][0-9]{0,8})")
#: Columns of a table with a rank and a host.
_TWO = 2


@dataclass(frozen=True)
class RankMap:
    """Nodes of the ranks of the full run.

    ``node_of``, ``slot_of``: node of each rank and its place among the ranks there, ascending.
    ``names``: host name of each node, "" where nobody has said it, "+n7" for the eighth node of
    whatever there is. ``kind``: block, cyclic or rank file. The ranks of one node are called a
    range, also when they do not follow each other.
    """

    kind: str
    node_of: Ints
    slot_of: Ints
    names: tuple[str, ...]

    @property
    def n(self) -> int:
        """Number of ranks."""
        return len(self.node_of)

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return len(self.names)

    @property
    def sizes(self) -> Ints:
        """Number of ranks on each node."""
        return np.bincount(self.node_of, minlength=self.nodes)

    def ranks_of(self, node: int) -> Ints:
        """Return the ranks on a node, in the order of their slots."""
        return np.flatnonzero(self.node_of == node)

    def named(self, names: tuple[str, ...]) -> RankMap:
        """Return the same with host names for the nodes."""
        return RankMap(self.kind, self.node_of, self.slot_of, names)


def block(n: int, cores: int) -> RankMap:
    """Return consecutive ranks on each node, ``cores`` of them."""
    _check(n, cores)
    return rank_map(BLOCK, np.arange(n, dtype=np.int64) // cores)


def cyclic(n: int, cores: int) -> RankMap:
    """Return one rank after the other on the next node, on as few nodes of ``cores`` as hold n."""
    _check(n, cores)
    return rank_map(CYCLIC, np.arange(n, dtype=np.int64) % -(-n // cores))


def mapping_of(kind: str, n: int, cores: int, rank_file: Path | None = None) -> RankMap:
    """Return the mapping of this name; a rank file has the say if there is one.

    Errors: P3SError for an unknown name, or what the rank file cannot say.
    """
    if rank_file is not None:
        return read_rank_file(rank_file, n)
    if kind == BLOCK:
        return block(n, cores)
    if kind == CYCLIC:
        return cyclic(n, cores)
    raise P3SError(f"mapping {kind!r} is not known; it is {BLOCK} or {CYCLIC}, or a rank file")


def read_rank_file(path: Path, n: int) -> RankMap:
    """Read which host each of ``n`` ranks is on.

    Formats, told apart by line: Open MPI rankfile (``rank 3=node7 slot=0:1``, ``+n7`` for the
    eighth node), ``3 node7``, and a plain list with one host a line, the first for rank 0
    (``node7:4``, as MPICH has it: for the next four). What follows # is a comment. Slots are those
    of the order of ranks; ranks from ``n`` on are not looked at. Errors: P3SError, in one line,
    for what is not of this form, ranks that are there twice, missing ones, two in one slot.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as err:
        why = err.strerror if isinstance(err, OSError) else "it is not text"
        raise P3SError(f"{path}: cannot be read ({why})") from err
    hosts: dict[int, str] = {}
    rank_at_slot: dict[tuple[str, str], int] = {}
    plain = 0
    numbered = False
    for number, line in enumerate(lines, 1):
        text = line.split("#", 1)[0].strip()
        if not text:
            continue
        words = text.split()
        if match := _RANKFILE_LINE.match(text):
            rank, host = int(match[1]), match[2]
            numbered = True
        elif len(words) == _TWO and words[0].isdigit():
            rank, host = int(words[0]), words[1]
            numbered = True
        elif len(words) == 1 and "=" not in text:
            host, times = _parse_host(words[0])
            rank = plain + times - 1
            hosts.update(dict.fromkeys(range(plain, min(rank, n)), host))
            plain += times
        else:
            raise P3SError(
                f"{path}, line {number}: {text[:60]!r} is neither `rank R=HOST slot=S`, "
                "`R HOST` nor a host name"
            )
        if numbered and plain:
            raise P3SError(
                f"{path}, line {number}: lines with and without a rank are mixed; "
                "give every line its rank, or none"
            )
        if rank in hosts:
            both = f"on {hosts[rank]} and on {host}" if hosts[rank] != host else "there twice"
            raise P3SError(f"{path}, line {number}: rank {rank} is {both}")
        hosts[rank] = host
        if match and _ONE_SLOT.fullmatch(slot := (match[3] or "").strip()):
            other = rank_at_slot.setdefault((host, slot), rank)
            if other != rank:
                raise P3SError(
                    f"{path}, line {number}: ranks {other} and {rank} have slot {slot} of {host}; "
                    "give each its own"
                )
    return _from_hosts(path, hosts, n)


def _parse_host(word: str) -> tuple[str, int]:
    """Return the host of a line, and how many ranks it is for."""
    match = _COUNTED.fullmatch(word)
    return (match[1], int(match[2])) if match else (word, 1)


def _from_hosts(path: Path, hosts: dict[int, str], n: int) -> RankMap:
    missing = [rank for rank in range(n) if rank not in hosts]
    if missing:
        last = f" to {missing[-1]}" if len(missing) > 1 else ""
        raise P3SError(f"{path}: no host for rank {missing[0]}{last}; {n} ranks need {n} lines")
    host_of_rank = [hosts[rank] for rank in range(n)]
    relative = [_RELATIVE.match(host) for host in host_of_rank]
    if any(relative):
        if not all(relative):
            raise P3SError(f"{path}: hosts are named and relative (+n0); use one of the two")
        numbers = [int(match[1]) for match in relative if match]
        order = sorted(set(numbers))
        node_of = np.searchsorted(order, numbers).astype(np.int64)
        return rank_map(RANK_FILE, node_of, tuple(f"+n{number}" for number in order))
    number_of: dict[str, int] = {}
    for host in host_of_rank:
        number_of.setdefault(host, len(number_of))
    node_of = np.array([number_of[host] for host in host_of_rank], dtype=np.int64)
    return rank_map(RANK_FILE, node_of, tuple(number_of))


def rank_map(kind: str, node_of: Ints, names: tuple[str, ...] = ()) -> RankMap:
    """Return where the ranks are from the node of each; slots are in the order of ranks.

    ``names``: of all nodes, also those without a rank; none: as many as there are up to the last.
    """
    nodes = max(int(node_of.max()) + 1, len(names))
    order = np.argsort(node_of, kind="stable")
    begin = starts(np.bincount(node_of, minlength=nodes))
    slot = np.empty(len(node_of), dtype=np.int64)
    slot[order] = np.arange(len(node_of)) - begin[node_of[order]]
    return RankMap(kind, node_of, slot, names or ("",) * nodes)


def _check(n: int, cores: int) -> None:
    if n < 1:
        raise P3SError(f"{n} ranks: there must be at least one")
    if cores < 1:
        raise P3SError(f"cores per node: {cores} is smaller than 1")
