"""JSON artefacts: read checked, written whole or not at all.

What is written holds a digest of itself, and what was changed since is refused. A file without one
is read: those of earlier versions, and those that people write.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import re
import stat
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Generic, TypeVar

from p3s.base.errors import DamagedFile, Defect, OtherVersion, P3SError
from p3s.base.foreign_formats import ReadBy, refuse_foreign
from p3s.base.staging import new_file, unhide_path
from p3s.base.version import __version__

T = TypeVar("T")
#: Version of every JSON artefact of a study.
SCHEMA_VERSION = 1
#: Versions of those that are no longer the first.
VERSIONS = {"p3s.model": 3}


def _plain(value: Any) -> Any:
    """Turn numpy scalars, arrays and paths into what JSON knows."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


#: Deepest nesting of lists and objects in a file: an equation, and what is around it.
DEEPEST = 256
#: What may be no finite number, or more than 128 bits: looked at one by one, else not.
_UNUSUAL = re.compile(rb"\d{19}|[eE]\+?\d{3}")
_TEXT = re.compile(rb'"[^"]*"')
_NO_BRACKETS = bytes(set(range(256)) - set(b'[]{}"'))
#: Where the digest is: behind the version of the schema.
_DIGEST = re.compile(rb',\n "digest": "([0-9a-f]{32})"')
_VERSION_LINE = re.compile(rb'\n "schema_version": \d+')
#: A digest under another name: that of its key was damaged.
_LOST_DIGEST = re.compile(rb'\n "schema_version": \d+,\n "(?!digest")[^"]*": "[0-9a-f]{32}"')
_HEAD_BYTES = 512
#: What it was made from: file beside it -> digest of that file then.
_MADE_OF = "made_of"
_MADE_OF_TEXT = re.compile(rb'\n "made_of": (\{[^}]*\})')
#: The head with that, of a study of many counts.
_LONG_HEAD_BYTES = 1 << 16


def parse_json(data: bytes) -> Any:
    """Return what the text of a JSON file says.

    Raises ValueError for what is no JSON, NaN and infinities (1e400 is one), whole numbers of more
    than 128 bits, and lists in lists deeper than DEEPEST.
    """
    strict: dict[str, Any] = {"parse_constant": _reject_constant}
    if _UNUSUAL.search(data):
        strict |= {"parse_float": _finite, "parse_int": _parse_int}
    try:
        value = json.loads(data.decode("utf-8"), **strict)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if _is_deep(data):
        raise ValueError("it is nested too deeply")
    return value


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text:.20} is no finite number")
    return value


def _parse_int(text: str) -> int:
    if len(text) > 40 or abs(int(text)) >= 1 << 127:  # sums of what ranks count in 64 bits
        raise ValueError(f"{text:.20}... is no number of 128 bits")
    return int(text)


def _is_deep(data: bytes) -> bool:
    """Tell whether lists and objects are nested deeper than DEEPEST; ``data`` is JSON."""
    if b"\\" in data:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    brackets = _TEXT.sub(b"", data.translate(None, _NO_BRACKETS))
    for _ in range(DEEPEST):
        if not brackets:
            return False
        brackets = brackets.replace(b"[]", b"").replace(b"{}", b"")
    return bool(brackets)


def digest_of(data: bytes) -> str:
    """Return what tells whether bytes are still the same: 32 hexadecimal digits."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def add_digest(data: bytes) -> bytes:
    """Return the text of an artefact with its digest in it, in place of one it may have."""
    plain = _DIGEST.sub(b"", data[:_HEAD_BYTES], count=1) + data[_HEAD_BYTES:]
    at = _VERSION_LINE.search(plain)
    if at is None:
        return plain
    line = f',\n "digest": "{digest_of(plain)}"'.encode()
    return plain[: at.end()] + line + plain[at.end() :]


def stated_digest(path: Path) -> str:
    """Return the digest that a file holds of itself; empty where there is none."""
    match = _DIGEST.search(_head(path, _HEAD_BYTES))
    return match[1].decode() if match else ""


def is_of_others(path: Path, inputs: Iterable[Path]) -> bool:
    """Tell whether an artefact was made from files that had other content than these have now.

    What it does not name, and what has no digest, tells nothing.
    """
    match = _MADE_OF_TEXT.search(_head(path, _LONG_HEAD_BYTES))
    try:
        then = json.loads(match[1]) if match else {}
    except ValueError:
        return False  # damaged: reading it says so
    now = _digests(path, inputs) if then else {}
    return any(then.get(name, digest) != digest for name, digest in now.items())


#: A file server's clock may be ahead of this machine's, but not by an hour.
_AHEAD_NS = 3600 * 10**9


def is_stale(path: Path, inputs: Iterable[Path]) -> bool:
    """Tell whether an artefact is missing, older than one of its inputs, made from others, or from
    the future.

    The clock was wrong when that was written: whatever changes until then would look older. Inputs
    that are not there tell nothing.
    """
    inputs, changed = list(inputs), changed_ns(path)
    if not changed or changed > time.time_ns() + _AHEAD_NS:
        return True
    return any(changed_ns(each) > changed for each in inputs) or is_of_others(path, inputs)


def changed_ns(path: Path) -> int:
    """Return when a file was last written (as st_mtime_ns), 0 where it is not there."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _digests(path: Path, inputs: Iterable[Path]) -> dict[str, str]:
    """Return the digests of files by their place beside an artefact, of those that have one."""
    digests = {os.path.relpath(each, path.parent): stated_digest(each) for each in inputs}
    return {name: digest for name, digest in sorted(digests.items()) if digest}


def _head(path: Path, size: int) -> bytes:
    """Return the first bytes of a file, none where it cannot be read."""
    try:
        with plain_file(path) as file:
            return file.read(size)
    except OSError:
        return b""


def as_json(obj: dict[str, Any]) -> str:
    """Return an artefact as JSON text; numpy values become plain ones, NaN is a ValueError."""
    text = json.dumps(obj, indent=1, default=_plain, allow_nan=False, ensure_ascii=False)
    # Names may carry undecodable bytes (surrogates): keep them readable rather than fail.
    return text.encode("utf-8", "backslashreplace").decode("utf-8") + "\n"


def plain_file(path: Path) -> BinaryIO:
    """Open a file; OSError also where it is a pipe or a device, which may never end."""
    # Without O_NONBLOCK a pipe would wait for somebody to write into it.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(mode := os.fstat(handle).st_mode):
        os.close(handle)
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        raise OSError(errno.EINVAL, "it is a pipe or a device, not a file", str(path))
    return os.fdopen(handle, "rb")


def file_bytes(path: Path) -> bytes:
    """Return what a file holds; raises OSError as :func:`plain_file` does."""
    with plain_file(path) as file:
        return file.read()


def content_mark(path: Path) -> bytes:
    """Return a digest of what a file holds."""
    return hashlib.blake2b(file_bytes(path)).digest()


#: Name, size in bytes, age (st_mtime_ns) and number of files.
FilesIn = tuple[tuple[str, int, int, int], ...]


def files_in(directory: Path) -> FilesIn:
    """Return which files a directory has, by name; of another content one of these differs."""
    facts = []
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_file():
                about = entry.stat()
                facts.append((entry.name, about.st_size, about.st_mtime_ns, about.st_ino))
    return tuple(sorted(facts))


class LastRead(Generic[T]):
    """Reads files, and returns what was read last where a file is still the same.

    Commands ask for the same file many times. ``read``: returns what nobody changes. ``files``:
    so many are remembered, those that were read last. ``mark``: by what a file, or a directory, is
    known to be the same. ``small``: whether what was read is small enough to be remembered.
    """

    def __init__(
        self,
        read: Callable[[Path], T],
        files: int = 1,
        mark: Callable[[Path], object] = content_mark,
        small: Callable[[T], bool] = lambda _: True,
    ) -> None:
        """Take what reads, checked."""
        self._read, self._files, self._mark, self._small = read, files, mark, small
        self._last: dict[str, tuple[object, T]] = {}

    def __call__(self, path: Path) -> T:
        """Return what is in a file; raises as the reader does."""
        path = Path(path)
        key = os.path.abspath(path)  # where others compute, paths are absolute
        try:
            mark = self._mark(path)
        except OSError:  # as the reader says it
            return self._read(path)
        remembered = self._last.get(key)
        if remembered is not None and remembered[0] == mark:
            return remembered[1]
        self._last.pop(key, None)
        content = self._read(path)
        self._remember(key, mark, content)
        return content

    def keep(self, path: Path, written: T) -> None:
        """Take what was just written for read: the same, checked, as the reader makes it."""
        self._remember(os.path.abspath(path), self._mark(Path(path)), written)

    def _remember(self, key: str, mark: object, content: T) -> None:
        self._last.pop(key, None)
        if self._small(content):
            while len(self._last) >= self._files:
                del self._last[next(iter(self._last))]
            self._last[key] = mark, content


def crc_of(path: Path) -> int:
    """Return the CRC-32 of a file, which tells whether it is still the same; 0 where it is gone."""
    try:
        return zlib.crc32(file_bytes(path))
    except OSError:
        return 0


def reason(err: OSError) -> str:
    """Return why the system refused, in its words: libraries put others around them."""
    if err.errno and err.errno != errno.EINVAL:  # which says nothing
        return os.strerror(err.errno)
    return err.strerror or str(err)


#: Errors of a disk that is full, of a quota among them.
_FULL = (errno.ENOSPC, errno.EDQUOT)


def cannot_be_written(path: Path, err: OSError) -> P3SError:
    """Return the error of a file or directory that cannot be written: why, and what to do."""
    full = err.errno in _FULL
    remedy = (
        "make room there, or choose another disk" if full else "choose a directory you can write to"
    )
    return P3SError(f"{unhide_path(path)}: cannot be written: {reason(err)}; {remedy}")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn what the system, or a library, says while ``path`` is written into that error."""
    try:
        yield
    except OSError as err:
        raise cannot_be_written(path, err) from err


def no_room(directory: Path, needed: int = 1 << 16) -> str:
    """Return ": why" if a file of so many bytes cannot be written there, else ""."""
    try:
        handle, name = new_file(directory / "probe")
        try:
            os.posix_fallocate(handle, 0, needed)
        finally:
            name.unlink()
            os.close(handle)
    except OSError as err:
        return f": {cannot_be_written(directory, err)}"
    return ""


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file so that its name always holds the old or the new content, never a torn one.

    Raises P3SError when the directory cannot be written.
    """
    path = Path(path)
    temporary: Path | None = None
    try:
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = new_file(path)
            with os.fdopen(handle, "wb") as out:
                out.write(data)
                out.flush()
                os.fsync(out.fileno())
                os.replace(temporary, path)  # closed, it would be nobody's
            temporary = None
            sync_directory(path.parent)
    finally:
        if temporary is not None:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)


def sync_directory(directory: Path) -> None:
    """Make a rename durable; file systems that cannot sync a directory are left alone."""
    try:
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)


def write_json(path: Path, obj: dict[str, Any], made_of: Iterable[Path] = ()) -> None:
    """Write one JSON artefact atomically (temporary file, fsync, rename).

    made_of: the artefacts it was made from; their digests are kept in it (:func:`is_of_others`).

    ``obj`` holds ``schema`` ("p3s.<noun>") and ``schema_version``; numpy scalars and arrays are
    written as plain numbers and lists. Raises P3SError when the place cannot be written and
    ValueError for NaN or infinity, which are never part of an artefact.
    """
    if "schema" not in obj or "schema_version" not in obj:
        raise ValueError(f"{path}: an artefact needs schema and schema_version")
    head = {key: obj[key] for key in ("schema", "schema_version")}
    if inputs := _digests(path, made_of):
        head[_MADE_OF] = inputs
    rest = {key: value for key, value in obj.items() if key != "digest"}
    write_bytes(path, add_digest(as_json({**head, **rest}).encode("utf-8")))


def _is_whole(data: bytes, digest_known: bool) -> bool:
    """Tell whether a file is as its digest says; one without is, unless the key alone is gone."""
    head = data[:_HEAD_BYTES]
    if not digest_known:
        return _LOST_DIGEST.search(head) is None
    return _DIGEST.search(head) is not None and add_digest(data) == data


def unusable(path: Path, why: object, remedy: str) -> DamagedFile:
    """Return the error of a file with a content that cannot be: damaged, or P3S wrote it so.

    remedy: the command that makes a damaged file again.
    """
    text = " ".join(str(why).split())[:120]
    try:
        as_written = _is_whole(file_bytes(path), digest_known=True)
    except OSError:
        as_written = False
    if not as_written:
        return DamagedFile(f"{path}: damaged ({text}); {remedy}")
    return Defect(
        f"{path}: cannot be used ({text}), though it is as p3s wrote it; this is a bug in p3s "
        f"{__version__}: please report it with the output of p3s doctor --report"
    )


def _reject_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


#: The command that writes an artefact.
_MADE_BY = {
    "p3s.phases": "p3s phases",
    "p3s.model": "p3s model",
    "p3s.compute": "p3s model",
    "p3s.scaled": "p3s scale",
    "p3s.comms": "p3s scale",
    "p3s.order": "p3s scale",
    "p3s.replay": "p3s replay",
    "p3s.prediction": "p3s predict",
    "p3s.weak": "p3s predict --weak",
}


def _advice_for(schema: str) -> str:
    """Return what to do about a file that cannot be used."""
    return f"; {_MADE_BY[schema]} writes it" if schema in _MADE_BY else ""


def schema_of(path: Path) -> str:
    """Return what a JSON file says it is, "" where it says nothing or is none."""
    try:
        schema = parse_json(file_bytes(path)).get("schema")
    except (OSError, ValueError, AttributeError):
        return ""
    return schema if isinstance(schema, str) else ""


def read_json(path: Path, schema: str, needed: int | None = None) -> dict[str, Any]:
    """Read one JSON artefact and check what it is.

    needed: its schema version, where that is not the one in :data:`VERSIONS`.

    Raises P3SError, in one line, when the file is absent, damaged, of another schema or of
    another schema version.
    """
    path = Path(path)
    try:
        data = file_bytes(path)
        obj = parse_json(data)
    except FileNotFoundError as err:
        raise P3SError(f"{path}: not there{_advice_for(schema)}") from err
    except OSError as err:
        raise P3SError(f"{path}: cannot be read: {reason(err)}") from err
    except ValueError as err:
        refuse_foreign(path, ReadBy.OWN, data)
        why = " ".join(str(err).split())[:120]
        raise DamagedFile(
            f"{path}: damaged, not a {schema} file ({why}){_advice_for(schema)}"
        ) from err
    if not isinstance(obj, dict) or obj.get("schema") != schema:
        refuse_foreign(path, ReadBy.OWN, data)
        stated = obj.get("schema") if isinstance(obj, dict) else type(obj).__name__
        raise P3SError(
            f"{path}: is not a {schema} file (schema: {stated!r:.60}){_advice_for(schema)}"
        )
    version = obj.get("schema_version")
    needed = VERSIONS.get(schema, SCHEMA_VERSION) if needed is None else needed
    if version != needed or isinstance(version, bool):
        raise OtherVersion(
            f"{path}: {schema} version {version!r:.20}, but p3s {__version__} "
            f"reads version {needed}; use the p3s that wrote it or start a new study"
        )
    if not _is_whole(data, "digest" in obj):
        raise DamagedFile(
            f"{path}: damaged, or changed since p3s wrote it{_advice_for(schema)}; a change that"
            " is meant is read once the line with the digest is deleted"
        )
    obj.pop("digest", None)
    obj.pop(_MADE_OF, None)
    return obj
