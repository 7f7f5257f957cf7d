"""The sets of features of Jain et al., SC13, with those that counters or packets tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from p3s.base.arrays import Floats, Ints
from p3s.base.errors import P3SError
from p3s.machine.topology.fabric import Fabric
from p3s.methods.placement.links import link_features, network_links, outliers
from p3s.methods.placement.phases import Traffic
from p3s.program.mapping import RankMap

#: What only counters tell, of a run or of the packet simulation.
COUNTED = ("avg buffer", "avg buffer AO", "avg buffer TO", "avg delay AO", "avg delay TO")

#: The sets of features that predict best together (table 3 of the source).
HYBRIDS: Mapping[str, tuple[str, ...]] = {
    "H1": ("avg bytes", "max bytes", "max FIFO"),
    "H2": ("avg bytes", "max bytes", "sum dilation AO", "max FIFO"),
    "H3": ("avg bytes", "max bytes", "avg buffer", "max FIFO"),
    "H4": ("avg bytes", "max bytes", "avg buffer TO"),
    "H5": ("avg bytes TO", "avg buffer TO", "avg delay AO", "sum hops AO", "max FIFO"),
    "H6": (
        "avg bytes TO",
        "avg buffer AO",
        "avg delay TO",
        "avg delay AO",
        "sum hops AO",
        "max FIFO",
    ),
}


@dataclass(frozen=True, eq=False)
class Counters:
    """What the directed links of a network have counted in one run.

    ``nbytes``: sent on each; ``received``: packets that came over it, ``buffered``: those of them
    that had to wait for their next link.
    """

    nbytes: Floats
    received: Ints
    buffered: Ints


def counted_features(
    traffic: Traffic, placed: RankMap, fabric: Fabric, counters: Counters
) -> dict[str, float]:
    """Return all features; what links have carried is what the counters say.

    A link that received nothing delays nothing.
    """
    nbytes, received, buffered = (
        np.asarray(x, dtype=np.float64)[network_links(fabric)]
        for x in (counters.nbytes, counters.received, counters.buffered)
    )
    return {
        **link_features(traffic, placed, fabric),
        "avg bytes": float(nbytes.mean()) if len(nbytes) else 0.0,
        "max bytes": float(nbytes.max(initial=0.0)),
        **outliers("avg bytes", nbytes),
        "avg buffer": float(buffered.mean()) if len(buffered) else 0.0,
        **outliers("avg buffer", buffered),
        **outliers("avg delay", buffered / np.maximum(received, 1.0)),
    }


def chosen(values: Mapping[str, float], hybrid: str) -> dict[str, float]:
    """Return the features of a hybrid set.

    Errors: P3SError for an unknown set, or one that needs counters where there are none.
    """
    if hybrid not in HYBRIDS:
        raise P3SError(f"{hybrid} is no set of features; there are {', '.join(HYBRIDS)}")
    missing = [name for name in HYBRIDS[hybrid] if name not in values]
    if missing:
        raise P3SError(
            f"{hybrid} needs {missing[0]}, which only counters or the packet simulation tell; "
            "simulate packets, or take H1 or H2"
        )
    return {name: values[name] for name in HYBRIDS[hybrid]}
