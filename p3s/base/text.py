"""Words that several stages share: numbers with their nouns, launcher commands, clocks."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import unicodedata
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from textwrap import wrap

#: Stand for a number, and for an interval, that is not known.
NOT_KNOWN, UNKNOWN = "–", "unknown"
#: What stands for a number in a launcher command; shells leave it as it is.
_PLACEHOLDER = re.compile(r"\{\w+(?:[-+*/]\d+)?\}", re.ASCII)


def text_width() -> int:
    """Return at how many columns text is wrapped: of COLUMNS or the terminal, 60 to 120; else 100.

    Tables keep their own width.
    """
    return min(max(shutil.get_terminal_size((100, 24)).columns, 60), 120)


def paragraph(text: str, first: int = 0, rest: int = 0) -> list[str]:
    """Return text as lines of :func:`text_width`, the first and the rest indented by columns."""
    return wrap(text, text_width(), initial_indent=" " * first, subsequent_indent=" " * rest)


def command_line(words: Sequence[str]) -> str:
    """Return words as a line that a shell takes apart again into just these.

    Placeholders that are words of their own, as {np}, stay as they are. Words with characters that
    cannot be printed are quoted as $'...' of bash and zsh.
    """
    return " ".join(word if _PLACEHOLDER.fullmatch(word) else quote_word(word) for word in words)


def quote_word(word: str | Path) -> str:
    """Return a word, or a path, as :func:`command_line` has it."""
    word = str(word)
    if word.isprintable():
        return shlex.quote(word)
    codes = (
        f"\\x{byte:02x}" if not 32 <= byte < 127 or chr(byte) in "\\'" else chr(byte)
        for byte in os.fsencode(word)
    )
    return f"$'{''.join(codes)}'"


def plural(number: float, noun: str, plural_noun: str = "") -> str:
    """Return a number with its noun: "1 call", "1,200 calls", "1 process" with ``plural_noun``."""
    return f"{number:,} {noun if number == 1 else plural_noun or noun + 's'}"


def join_words(words: Iterable[object], last: str = "and") -> str:
    """Return a list as people write one: "2, 4 and 8"."""
    *before, end = [str(word) for word in words] or [""]
    return f"{', '.join(before)} {last} {end}" if before else end


def processes(counts: int | Iterable[int]) -> str:
    """Return process counts with their noun: "1 process", "2, 4 and 8 processes"."""
    if isinstance(counts, int):
        return plural(counts, "process", "processes")
    numbers = list(counts)
    if len(numbers) == 1:
        return processes(numbers[0])
    return f"{join_words(f'{n:,}' for n in numbers)} processes"


def differing(one: Sequence[str], other: Sequence[str], limit: int = 80) -> tuple[str, str]:
    """Return two commands as text, whole where they differ; long equal ends become dots."""
    shorter = min(len(one), len(other))
    first = next((i for i in range(shorter) if one[i] != other[i]), shorter)
    last = next(
        (i for i in range(shorter - first) if one[-1 - i] != other[-1 - i]), shorter - first
    )

    def text(words: Sequence[str]) -> str:
        whole = command_line(words)
        if len(whole) <= limit:
            return whole
        middle = words[first : len(words) - last]
        parts = ["..." if first else "", shlex.join(middle), "..." if last else ""]
        return " ".join(filter(None, parts)) or "..."

    return text(one), text(other)


def mixed_clocks(units: Mapping[str, str]) -> str:
    """Return a note when work was measured with different clocks; units: by count."""
    counts_by_unit: dict[str, list[str]] = {}
    for count, unit in units.items():
        counts_by_unit.setdefault(unit, []).append(count)
    if len(counts_by_unit) < 2:
        return ""
    names = {"wall_ns": "wall time", "cpu_ns": "CPU time"}
    return (
        "work was measured in "
        + " and ".join(
            f"{names.get(unit, unit)} at {join_words(counts)} process{'es' * (counts != ['1'])}"
            for unit, counts in counts_by_unit.items()
        )
        + "; both count as time"
    )


def not_used(without: Sequence[int], back: str = "") -> str:
    """Return a note on traced counts that the user has left out of a model, "" when none are.

    ``back``: the command that takes them back.
    """
    if not without:
        return ""
    them = "it" if len(without) == 1 else "them"
    return f"traced at {processes(without)}, too, but left out of the model" + (
        f"; {back} takes {them} back" if back else ""
    )


def seconds(value: float | None) -> str:
    """Return a time with three figures and a fitting unit."""
    if value is None:
        return NOT_KNOWN
    if value == 0:
        return "0 s"
    for limit, factor, unit in ((1e-6, 1e9, "ns"), (1e-3, 1e6, "µs"), (1.0, 1e3, "ms")):
        if abs(value) < limit * 0.9995:
            return f"{figures(value * factor)} {unit}"
    return f"{figures(value)} s"


def size_text(nbytes: float) -> str:
    """Return a number of bytes in the unit that fits."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if nbytes >= factor:
            return f"{nbytes / factor:.4g} {unit}"
    return f"{nbytes:.0f} B"


def figures(value: float) -> str:
    """Return three significant figures of a number, without an exponent."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    if abs(value) >= 99.95:
        return f"{value:.0f}"
    if abs(value) >= 9.995:
        return f"{value:.1f}"
    if 0 < abs(value) < 0.0995:
        return f"{value:.2g}"
    return f"{value:.2f}"


def interval(low: float | None, high: float | None) -> str:
    """Return an interval of times, or that it is not known."""
    if low is None or high is None:
        return UNKNOWN
    if low == high:
        return NOT_KNOWN
    return ends(seconds(low), seconds(high))


def ends(low: object, high: object, form: str = "") -> str:
    """Return the ends of a range, "2 to 8"; one of them where both read the same."""
    first, last = format(low, form), format(high, form)
    return first if first == last else f"{first} to {last}"


def span(low: float | None, high: float | None) -> str:
    """Return an interval of times for a narrow column: "4.82–6.06 s"."""
    if low is None or high is None or low == high:
        return interval(low, high)
    first, last = seconds(low), seconds(high)
    if first == last:
        return first
    if first.rpartition(" ")[2] == last.rpartition(" ")[2]:
        first = first.rpartition(" ")[0]
    return f"{first}–{last}"


def factor(value: float | None) -> str:
    """Return a speedup."""
    return NOT_KNOWN if value is None else f"{figures(value)}x"


def likely(chance: float) -> str:
    """Return a probability in per cent; no number of draws shows 0 or 100 %."""
    return (
        "over 99 %"
        if chance > 0.995
        else "under 1 %"
        if chance < 0.005
        else f"{100 * chance:.0f} %"
    )


def percent(value: float | None) -> str:
    """Return a share between 0 and 1 in per cent."""
    if value is None:
        return NOT_KNOWN
    if 0 < value < 0.0005:
        return "<0.1 %"
    return f"{100 * value:.1f} %"


def over(value: float, limit: float) -> str:
    """Return a share beside the limit that it is above, with as many digits as that takes."""
    digits = next((k for k in range(6) if f"{100 * value:.{k}f}" != f"{100 * limit:.{k}f}"), 6)
    return f"{100 * value:.{digits}f} % (limit {100 * limit:.0f} %)"


def visible(text: str, limit: int = 200) -> str:
    """Return text from a file with control and direction-changing characters made visible."""
    visible_text = _escape_unprintable(text[: limit + 1])
    return visible_text if len(text) <= limit else visible_text[:limit] + "…"


def one_line(text: str) -> str:
    """Return text as one printable line: control characters cannot reach the terminal."""
    return _escape_unprintable(" ".join(str(text).split()))


def _escape_unprintable(text: str) -> str:
    unprintable = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
    return "".join(
        char.encode("unicode_escape", "backslashreplace").decode("ascii")
        if unicodedata.category(char) in unprintable
        else char
        for char in text
    )


def align_columns(
    lines: Sequence[Sequence[str]],
    flush_left: Container[int] = (),
    *,
    indent: str = "",
    widths: Sequence[int] = (),
) -> list[str]:
    """Return lines of cells as text, columns ``flush_left`` flush left and all others flush right.

    ``widths``: of the columns [default: those of the widest cells].
    """
    wide = widths or [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        indent
        + "  ".join(
            cell.ljust(size) if i in flush_left else cell.rjust(size)
            for i, (cell, size) in enumerate(zip(line, wide, strict=True))
        ).rstrip()
        for line in lines
    ]


def table(
    rows: Sequence[Sequence[str]], head: Sequence[str], left: int = 1, *, words_last: bool = False
) -> str:
    """Lay out rows as a table: the first ``left`` columns left, all others right.

    ``words_last``: the last column holds words and is left, too. Cells become printable lines.
    """
    lines = [list(head), *[[one_line(cell) for cell in row] for row in rows]]
    return "\n".join(align_columns(lines, {*range(left), *([len(head) - 1] * words_last)}))
