"""How many values a Parquet file says that it has, read without pyarrow.

pyarrow ends the process where what a damaged footer says of a column contradicts itself
(``RowGroupMetaData.column`` lets the exception of Arrow's C++ out), and only a column tells how
many entries its lists have. The footer is a Thrift structure in the compact protocol
(parquet.thrift: FileMetaData 4 row_groups, RowGroup 1 columns, ColumnChunk 3 meta_data,
ColumnMetaData 5 num_values).
"""

from __future__ import annotations

_MAGIC = b"PAR1"
_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = (
    0, 1, 2, 3, 7, 8, 9, 10, 11, 12,
)  # fmt: skip
_INTEGERS = (4, 5, 6)
#: Fields that lead to the number of values of a column.
_PATH = (4, 1, 3, 5)
_MOST_DEEP, _MOST_BYTES = 32, 10
_SHORT = 15


def values_of(data: bytes) -> int:
    """Return the values of all columns of a Parquet file, entries of lists each for itself.

    Raises ValueError where the footer is none.
    """
    if len(data) < 12 or data[-4:] != _MAGIC:
        raise ValueError("it is no Parquet file")
    size = int.from_bytes(data[-8:-4], "little")
    if size > len(data) - 12:
        raise ValueError("its footer is larger than the file")
    try:
        return _Footer(data[len(data) - 8 - size : -8]).structure(_PATH, 0)
    except IndexError:
        raise ValueError("its footer is cut off") from None


class _Footer:
    """Bytes that are read from front to back."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def structure(self, path: tuple[int, ...], depth: int) -> int:
        """Read a structure; return the sum of the numbers behind a path of fields."""
        if depth > _MOST_DEEP:
            raise ValueError("its footer is nested too deeply")
        found, field = 0, 0
        while (head := self._byte()) != _STOP:
            field = field + (head >> 4) if head >> 4 else self._number()
            wanted = path[1:] if path and path[0] == field else None
            found += self._value(head & 15, wanted, depth)
        return found

    def _value(self, kind: int, path: tuple[int, ...] | None, depth: int) -> int:
        """Read a value; return the sum behind the rest of a path, 0 where it is on none."""
        if kind in (_TRUE, _FALSE):
            return 0
        if kind in _INTEGERS:
            number = self._number()
            return max(number, 0) if path == () else 0
        if kind == _STRUCT:
            return self.structure(path or (), depth + 1)
        if kind in (_LIST, _SET):
            head = self._byte()
            size = head >> 4 if head >> 4 < _SHORT else self._varint()
            return sum(self._element(head & 15, path, depth) for _ in range(self._fits(size)))
        if kind == _MAP:
            size = self._fits(self._varint())
            kinds = self._byte() if size else 0
            for _ in range(size):
                self._element(kinds >> 4, None, depth)
                self._element(kinds & 15, None, depth)
            return 0
        self._skip({_BYTE: 1, _DOUBLE: 8}.get(kind) if kind != _BINARY else self._varint())
        return 0

    def _element(self, kind: int, path: tuple[int, ...] | None, depth: int) -> int:
        if depth > _MOST_DEEP:
            raise ValueError("its footer is nested too deeply")
        if kind in (_TRUE, _FALSE):  # in lists these are bytes
            self._skip(1)
            return 0
        return self._value(kind, path, depth + 1)

    def _fits(self, size: int) -> int:
        """Return how many elements a list has; each takes a byte at least."""
        if size > len(self._data) - self._at:
            raise ValueError("a list of its footer is longer than the footer")
        return size

    def _skip(self, size: int | None) -> None:
        if size is None:
            raise ValueError("its footer has a value of an unknown type")
        if self._fits(size):
            self._at += size

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _varint(self) -> int:
        number = 0
        for k in range(_MOST_BYTES):
            byte = self._byte()
            number |= (byte & 127) << 7 * k
            if byte < 128:
                return number
        raise ValueError("a number of its footer is too long")

    def _number(self) -> int:
        number = self._varint()
        return number >> 1 ^ -(number & 1)
