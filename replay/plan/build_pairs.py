"""Which events are the two ends of each message between loaded ranks."""

from __future__ import annotations

import numpy as np

from p3s.replay.plan.build_blocks import Table
from p3s.replay.plan.build_traffic import Traffic
from p3s.replay.plan.loaded import Loaded
from p3s.replay.plan.logical import completers
from p3s.replay.plan.program import Pairing
from p3s.simulate.steps import Ints, Op

_BLOCKING = (Op.SEND, Op.SSEND, Op.BSEND, Op.RECV, Op.SENDRECV)


def pairing_of(table: Table, loaded: Loaded, traffic: Traffic) -> Pairing:
    """Return the messages both of whose ends are loaded.

    A request that no call completes is complete at the END. ``alone``: a receive or a wait that
    waits for this one message and nothing else (not a SENDRECV).
    """
    steps = loaded.steps
    sends = np.flatnonzero(traffic.send_in)
    receives = steps.to[sends]
    waiter = completers(steps)  # the last one that lists it
    times = np.bincount(steps.done, minlength=len(steps))
    end = (table.start[1:] - table.start[:-1] - 1)[traffic.process]

    def completed(at: Ints) -> Ints:
        """Return the events that complete the requests or calls of these steps."""
        by_wait = np.where(waiter[at] >= 0, table.main_at[waiter[at]], -1)
        by_wait = np.where(by_wait >= 0, by_wait, end[at])
        return np.where(np.isin(steps.op[at], _BLOCKING), table.main_at[at], by_wait)

    wait = waiter[receives]
    number = np.where(
        table.main_at[wait] >= 0,
        table.events["number"][table.start[traffic.process[wait]] + table.main_at[wait]],
        0,
    )
    single = (wait >= 0) & (steps.op[wait] == Op.WAIT) & (number == 1) & (times[receives] == 1)
    only = (steps.op[receives] == Op.SENDRECV) & ~traffic.send[receives]
    alone = single | only | (steps.op[receives] == Op.RECV)
    return Pairing(
        cls=loaded.message_class[sends],
        sender=traffic.process[sends],
        receiver=traffic.process[receives],
        sent=table.main_at[sends],
        sent_end=completed(sends),
        posted=table.main_at[receives],
        received=completed(receives),
        alone=alone.astype(np.int64),
    )
