"""What a message from the master to a worker or back takes: a measured table over its bytes.

Source: A. Castellanos Carrazana, UAB 2014, section 3.3, eq. 3.4 (its sum has one term per worker:
the printed one begins at 0 and would count the master).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from p3s.base.arrays import Floats
from p3s.base.errors import P3SError
from p3s.machine.machinefile import Machine


@dataclass(frozen=True)
class MessageTimes:
    """Seconds of a message over its bytes (ascending, never falling).

    library: the MPI it was measured with. hosts: of the two ranks. function: what was called:
    "blocking", "non-blocking" or "packed". The three are what the table is of: another library or
    pair of nodes needs another table.
    """

    nbytes: tuple[float, ...]
    seconds: tuple[float, ...]
    library: str = ""
    hosts: tuple[str, ...] = ()
    function: str = "blocking"

    def at(self, nbytes: npt.ArrayLike) -> Floats:
        """Return seconds, straight between points, on with the last slope, first point below."""
        x, y = np.asarray(self.nbytes), np.asarray(self.seconds)
        wanted = np.asarray(nbytes, dtype=np.float64)
        found = np.interp(wanted, x, y)
        if len(x) > 1:
            slope = (y[-1] - y[-2]) / (x[-1] - x[-2])
            found = np.where(wanted > x[-1], y[-1] + slope * (wanted - x[-1]), found)
        return np.asarray(found)

    def outside(self, nbytes: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Return where messages are smaller or larger than any that was measured."""
        wanted = np.asarray(nbytes, dtype=np.float64)
        return np.asarray((wanted < self.nbytes[0]) | (wanted > self.nbytes[-1]))

    def to_workers(self, nbytes: npt.ArrayLike, workers: int | None = None) -> float:
        """Return seconds until all workers were served one after the other (eq. 3.4).

        nbytes: of each worker's message, or of one for ``workers`` of them.
        """
        each = self.at(nbytes)
        return float(each.sum()) if workers is None else workers * float(each)


def message_times(
    nbytes: Sequence[float],
    seconds: Sequence[float],
    *,
    library: str = "",
    hosts: Sequence[str] = (),
    function: str = "blocking",
) -> MessageTimes:
    """Return the table of measured times, repeats of a size averaged and made never to fall.

    P3SError where there is none, or one is no time.
    """
    x, y = np.asarray(nbytes, dtype=np.float64), np.asarray(seconds, dtype=np.float64)
    if len(x) == 0 or len(x) != len(y) or not (np.isfinite(x) & (x >= 0) & (y > 0)).all():
        raise P3SError("times of messages: each needs its bytes and seconds above 0")
    sizes, where = np.unique(x, return_inverse=True)
    count = np.bincount(where).astype(np.float64)
    mean = np.bincount(where, weights=y) / count
    rising = never_falling(mean, count)
    return MessageTimes(
        tuple(sizes.tolist()), tuple(rising.tolist()), library, tuple(hosts), function
    )


def never_falling(values: Floats, weights: Floats) -> Floats:
    """Return the nearest sequence, in weighted squares, that never falls.

    Neighbours that fall are averaged until none do (Ayer et al. 1955).
    """
    blocks: list[tuple[float, float, int]] = []  # mean, weight, how many
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        blocks.append((value, weight, 1))
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (a, wa, na), (b, wb, nb) = blocks[-2:]
            blocks[-2:] = [((a * wa + b * wb) / (wa + wb), wa + wb, na + nb)]
    return np.repeat([b[0] for b in blocks], [b[2] for b in blocks])


def of_machine(machine: Machine, *, inside: bool = False) -> MessageTimes:
    """Return the table of a machine file: one-way times between its two ranks.

    inside: between two ranks of one host, where that was measured as well. P3SError where the file
    has no messages.
    """
    network = machine.network
    if network and inside and len(set(network["hosts"])) > 1:
        network = network.get("inside")
    if not network:
        raise P3SError(
            f"machine {machine.name}: has no times of messages; run p3s machine measure with a "
            "--launcher that starts two ranks"
        )
    sizes = network["sizes"]
    return message_times(
        sizes["bytes"],
        [1e-9 * ns for ns in sizes["one_way_ns"]],
        library=str(network.get("mpi", "")),
        hosts=[str(host) for host in network["hosts"]],
    )
