"""The communication matrix as text, and how it is shaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from p3s.base.text import ends, plural
from p3s.signature.matrix import CommMatrix

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

BLOCKS, ASCII = " ░▒▓█", " .:+#"
#: Values that spread over more than this factor are shaded by their logarithm.
_WIDE = 50


def render(matrix: CommMatrix, what: str, width: int, shades: str = ASCII) -> str:
    """Return the matrix as text of at most ``width`` columns: rows send, columns receive.

    ``shades``: a character for nothing, then at least one for more and more.
    """
    values = matrix.values(what)
    lines = [totals(matrix)]
    if not len(values):
        return "\n".join([*lines, *_list_omitted(matrix)])
    total_width = max(len(f"{int(values.sum()):,}"), len("sent"))
    label_width = 2 * len(str(matrix.np - 1)) + 1
    room = max(width - label_width - total_width - 5, 8)
    stretch = 2 if 2 * matrix.np <= room else 1
    square, ranks = matrix.binned(what, min(room // stretch, 64))
    levels, logarithmic = shade_levels(square, len(shades) - 1)
    side = len(square)
    labels = [_range(k, ranks, matrix.np) for k in range(side)]
    label_width = max(max(map(len, labels)), 2)
    margin = " " * label_width
    bar = f"{margin} +{'-' * (side * stretch)}+"
    lines += [
        "",
        f"{margin}  to rank",
        f"{margin}  {_ruler(side, stretch, ranks)}".rstrip(),
        f"{bar} {'sent':>{total_width}}",
    ]
    for k, row in enumerate(levels.tolist()):
        cells = "".join(shades[level] * stretch for level in row)
        sent = f"{int(square[k].sum()):,}"
        lines.append(f"{labels[k]:>{label_width}} |{cells}| {sent:>{total_width}}")
    lines.append(bar)
    lines.append(_legend(square, levels, what, ranks, shades, logarithmic))
    return "\n".join([*lines, *_list_omitted(matrix)])


def shade_levels(square: Ints, levels: int) -> tuple[Ints, bool]:
    """Return (1 to ``levels`` for each value above 0, else 0; whether by logarithm)."""
    import numpy as np

    some = square[square > 0]
    out = np.zeros(square.shape, dtype=np.int64)
    if not len(some):
        return out, False
    low, high = float(some.min()), float(some.max())
    logarithmic = high > _WIDE * low
    if low == high:
        share = np.ones(len(some))
    elif logarithmic:
        share = np.log(some / low) / np.log(high / low)
    else:
        share = some / high
    out[square > 0] = np.clip(np.ceil(share * levels - 1e-9), 1, levels).astype(np.int64)
    return out, logarithmic


def _range(cell: int, ranks: int, size: int) -> str:
    first, last = cell * ranks, min((cell + 1) * ranks, size) - 1
    return str(first) if first == last else f"{first}-{last}"


def _ruler(side: int, stretch: int, ranks: int) -> str:
    """Return the first rank of columns, as many as have room."""
    line = [" "] * (side * stretch)
    free = 0
    for cell in range(side):
        name, at = str(cell * ranks), cell * stretch
        if at >= free and at + len(name) <= len(line):
            line[at : at + len(name)] = name
            free = at + len(name) + 1
    return "".join(line)


def _legend(
    square: Ints, levels: Ints, what: str, ranks: int, shades: str, logarithmic: bool
) -> str:
    parts = []
    for level in range(1, len(shades)):
        some = square[levels == level]
        if len(some):
            span = ends(int(some.min()), int(some.max()), ",")
            parts.append(f"{shades[level]} {span}")
    cell = "pair of ranks" if ranks == 1 else f"{ranks} x {ranks} ranks"
    scale = ", logarithmic" if logarithmic else ""
    return f"{what} per {cell}{scale}: {'; '.join(parts)}"


def totals(matrix: CommMatrix) -> str:
    """Return how many messages and bytes there are between how many pairs, as one line."""
    ranks = plural(matrix.np, "rank")
    messages = int(matrix.messages.sum())
    if not messages:
        return f"{ranks}: no point-to-point messages"
    pairs = len(matrix.messages)
    return (
        f"{ranks}: {plural(messages, 'message')} of {int(matrix.bytes.sum()):,} bytes in all,"
        f" between {plural(pairs, 'pair')} of ranks"
    )


def _list_omitted(matrix: CommMatrix) -> list[str]:
    lines = []
    if matrix.collective_calls:
        lines.append(
            f"not in the matrix: {plural(matrix.collective_calls, 'call')} of collectives, with"
            f" {matrix.collective_bytes:,} bytes as their callers state them"
        )
    return lines + [f"note: {note}" for note in matrix.notes]
