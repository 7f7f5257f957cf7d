"""Tables of LEB128 numbers are the same with and without the compiled reader."""

from __future__ import annotations

import numpy as np
import pytest

from p3s.base.errors import P3SError
from p3s.base.host.compiling import c_compiler
from p3s.capture import events

try:
    c_compiler("a test")
except P3SError:
    pytest.skip("no C compiler", allow_module_level=True)

COLUMNS = 5


def numbers(rng: np.random.Generator, rows: int) -> np.ndarray:
    """Return a table of numbers of all lengths, one to ten bytes."""
    bits = rng.integers(0, 65, (rows, COLUMNS)).astype(np.uint64)
    value = rng.integers(0, 1 << 63, bits.shape, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    return np.where(bits == 0, np.uint64(0), value >> (np.uint64(64) - np.maximum(bits, 1)))


def library():
    found = events._library()
    assert found is not None
    return found


@pytest.mark.parametrize("rows", [0, 1, 7, 5000])
def test_both_readers_read_what_was_written(rows):
    table = numbers(np.random.default_rng(rows), rows)
    payload = events.encode(table)[0].tobytes()
    assert np.array_equal(events._in_c(library(), payload, COLUMNS), table.T)
    assert np.array_equal(events._in_numpy(payload, COLUMNS), table.T)
    assert np.array_equal(events.decode(payload, COLUMNS), table.T)


@pytest.mark.parametrize("seed", range(200))
def test_both_readers_say_the_same_of_damage(seed):
    rng = np.random.default_rng(seed)
    raw = events.encode(numbers(rng, 40))[0]
    raw[rng.integers(0, len(raw), 6)] ^= rng.integers(0, 256, 6, dtype=np.uint8)
    payload = raw[: len(raw) - int(rng.integers(0, 2))].tobytes()

    def said(read) -> str | list:
        try:
            return read().tolist()
        except ValueError as err:
            return str(err)

    ours = said(lambda: events._in_c(library(), payload, COLUMNS))
    assert ours == said(lambda: events._in_numpy(payload, COLUMNS))


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (b"\x80" * 9 + b"\x01" + b"\x00" * 4, None),
        (b"\x80" * 9 + b"\x02" + b"\x00" * 4, "more than 64 bits"),
        (b"\x80" * 10 + b"\x00" + b"\x00" * 4, "more than ten bytes"),
        (b"\x00" * 6, "a row is cut off"),
        (b"\x00" * 4 + b"\x80", "a number is cut off"),
    ],
)
def test_numbers_that_are_too_long_are_refused(payload, why):
    for read in (
        lambda: events._in_c(library(), payload, COLUMNS),
        lambda: events._in_numpy(payload, COLUMNS),
    ):
        if why is None:
            assert read()[0, 0] == 1 << 63
        else:
            with pytest.raises(ValueError, match=why):
                read()


def test_long_tables_are_read_without_a_compiler(monkeypatch):
    table = numbers(np.random.default_rng(1), 4000)
    payload = events.encode(table)[0].tobytes()
    assert len(payload) > events._LONG
    monkeypatch.setattr(events, "_library", lambda: None)
    assert np.array_equal(events.decode(payload, COLUMNS), table.T)
