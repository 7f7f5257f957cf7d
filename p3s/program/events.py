"""The events of a rank in program order, from a scaled trace on disk."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np

from p3s.base.errors import P3SError

_COLUMNS = ("rank", "slot", "stage", "turn", "peer", "bytes", "repeat")


def events_of(scaled: Path, rank: int) -> list[tuple[str, int, int]]:
    """Return (operation, partner, bytes) of all events of a rank in the order of the program.

    scaled: a directory STUDY/scaled/npNNNNNN; the partner is -1 where there is none. Raises
    P3SError when the trace has no such rank or no order.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    from p3s.base.tables import known_tables, numbers, read_table
    from p3s.model.order.unfold import Unfolder
    from p3s.program.scaled import parts_of, read_order, scaled_head

    scaled = Path(scaled)
    order = read_order(scaled)
    if order.loops is None:
        raise P3SError(
            f"{scaled}: the order of events is not known: the traced runs had too many "
            "events to keep all sequences"
        )
    head = scaled_head(scaled)
    try:
        known, wanted = known_tables(head), dict.fromkeys(_COLUMNS, int)
        whole = (read_table(part, wanted, known) for part in parts_of(scaled, head))
        table = pa.concat_tables([t.filter(pc.equal(t["rank"], rank)) for t in whole])
    except (pa.ArrowException, OSError, ValueError) as err:
        why = " ".join(str(err).split())[:120]
        raise P3SError(f"{scaled}: damaged ({why}); run p3s scale again") from err
    if not len(table):
        raise P3SError(f"{scaled}: holds no rows of rank {rank}")
    columns = {name: numbers(table.column(name)).astype(np.int64) for name in _COLUMNS}
    items = order.items
    base = np.cumsum([0, *(len(it.slots) for it in items)])
    item = np.searchsorted(base, columns["slot"], side="right") - 1
    rows = SimpleNamespace(
        rank=columns["rank"],
        item=item,
        slot=columns["slot"] - base[item],
        stage=columns["stage"],
        turn=columns["turn"],
        repeat=columns["repeat"],
        peer=columns["peer"],
        grid=order,
    )
    sequence = Unfolder(items, order.loops, rows).sequence(rank)
    ops = [items[i].op for i in item.tolist()]
    return [(ops[k], int(columns["peer"][k]), int(columns["bytes"][k])) for k in sequence.tolist()]
