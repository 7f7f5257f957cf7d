"""When absent partners act: the schedule of timed black holes."""

from __future__ import annotations

from p3s.simulate.network import Network
from p3s.simulate.simulate import simulate
from p3s.simulate.steps import Floats, Ints, Steps


def schedule(
    steps: Steps,
    node_of: Ints,
    network: Network,
    *,
    distance: Ints | None = None,
    collective_ns: Floats | None = None,
) -> Floats:
    """Return when each step begins, in ns after the begin of the section.

    A send: when the message is given to MPI; a nonblocking receive: when it is posted. Arguments
    and errors as in ``simulate``.
    """
    found = simulate(steps, node_of, network, distance=distance, collective_ns=collective_ns)
    return found.begin_ns
