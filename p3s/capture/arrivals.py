"""What ranks do to each other's windows: gathered from the origins, in the order of the targets."""

from __future__ import annotations

import functools
import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from p3s.capture.types import Call, Site

#: How an operation is synchronised: by all members, for a group, or by the origin alone.
FENCE, GROUP, PASSIVE = range(3)
#: What a message is for; the messages of one channel are of one purpose.
DATA, ANSWER, POSTED, COMPLETED = range(4)
#: Tags of these messages: from here to twice this, above what programs use.
_TAGS = 1 << 20

#: A window by what is the same in all captures: members, which communicator of them, call, number.
Key = tuple[tuple[int, ...], int, str, int]


@dataclass(frozen=True)
class Access:
    """One operation of an origin, or its wait for an answer of the target.

    interval: how many collectives that all members join the origin has made on the window before;
    epoch: of an operation for a group, how many earlier ones of the origin had this target, else
    -1. call: the origin's, as the capture has it; site: its place in the program.
    """

    origin: int
    target: int
    window: Key
    mode: int
    interval: int
    epoch: int
    call: Call
    site: Site


#: What lets an access in: the window, and the interval, or the origin and the number of its epoch.
_Opening = tuple[Key, int, int]


def _opening(access: Access) -> _Opening:
    if access.mode == GROUP:
        return access.window, access.origin, access.epoch
    return access.window, -1, access.interval


@dataclass
class Accesses:
    """All accesses of a run."""

    to: dict[int, list[Access]] = field(default_factory=lambda: defaultdict(list))
    by: dict[int, list[Access]] = field(default_factory=lambda: defaultdict(list))

    def add(self, access: Access) -> None:
        """Take the next access of its origin."""
        self.to[access.target].append(access)
        self.by[access.origin].append(access)


class Arrivals:
    """The accesses that have one rank as their target, each taken once."""

    def __init__(self, all_: Accesses, rank: int) -> None:
        self._waiting: dict[_Opening, list[Access]] = defaultdict(list)
        for access in all_.to.get(rank, ()):
            self._waiting[_opening(access)].append(access)
        self._own: dict[tuple[Key, int], dict[str, list[int]]] = {}
        for access in all_.by.get(rank, ()):
            sites = self._own.setdefault((access.window, access.interval), defaultdict(list))
            sites[access.site.key].append(access.target)

    def of_interval(self, window: Key, interval: int) -> list[Access]:
        """Return what comes by a fence, or without the target's doing, in an interval."""
        return self._in_order(self._waiting.pop((window, -1, interval), []), interval)

    def of_group(
        self, window: Key, epochs: Iterable[tuple[int, int]], interval: int
    ) -> list[Access]:
        """Return what comes after a MPI_Win_post; epochs: (origin, number of its epoch)."""
        came = [a for o, e in epochs for a in self._waiting.pop((window, o, e), ())]
        return self._in_order(came, interval)

    def _in_order(self, came: list[Access], interval: int) -> list[Access]:
        """Return accesses in an order that is alike on all ranks of a regular program.

        Place after place; of one place in the order of the rank's own targets there (who accesses
        its neighbours in some order is accessed by them in that order), then of the rest turn
        after turn, by origin.
        """
        if len(came) < 2:
            return came
        own = self._own.get((came[0].window, interval), {})
        sites: dict[str, list[Access]] = defaultdict(list)
        for access in came:
            sites[access.site.key].append(access)
        return [a for key in sorted(sites) for a in _as_own(sites[key], own.get(key, ()))]


def _as_own(came: Sequence[Access], targets: Sequence[int]) -> Iterator[Access]:
    """Yield the accesses of one place, those by the targets first."""
    of: dict[int, list[Access]] = defaultdict(list)
    for access in came:
        of[access.origin].append(access)
    for queue in of.values():
        queue.reverse()
    for target in targets:
        if of.get(target):
            yield of[target].pop()
    while any(of.values()):
        for origin in sorted(of):
            if of[origin]:
                yield of[origin].pop()


@functools.lru_cache(maxsize=1 << 16)
def tag_of(site: str, purpose: int) -> int:
    """Return the tag of the messages of one purpose that belong to a place in the program.

    An empty ``site``: of messages that begin and end at different places.
    """
    if not site:
        return _TAGS + purpose
    digest = hashlib.blake2s(f"{site} {purpose}".encode(), digest_size=4).digest()
    return _TAGS + 16 + int.from_bytes(digest, "little") % (_TAGS - 16)
