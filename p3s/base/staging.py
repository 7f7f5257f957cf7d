"""Hidden names for what is being written, beside the name that it takes when it is whole.

A hidden name says which process writes there, on which machine. What a process that is gone has
left is removed by the next one that writes in the directory; what one of another machine has left
when nothing has changed for a day.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import shutil
import socket
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

#: Seconds without a change after which what another machine has left is removed.
_STALE_S = 86400.0
_OLD = ".old"
_NAME = re.compile(
    r"(\.(?P<name>.+)\.p3s-(?P<host>[0-9a-f]{4})(?P<pid>[0-9a-f]{8})[0-9a-f]*)(?:\.old|\.lock)?"
)
_TRIES = 8
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # linux/fcntl.h, linux/fs.h

_swept: set[Path] = set()


@cache
def _host() -> str:
    """Return a mark of this machine; containers that number processes anew count as others."""
    numbering = ""
    with suppress(OSError):
        numbering = os.readlink("/proc/self/ns/pid")
    return f"{zlib.crc32(f'{socket.gethostname()} {numbering}'.encode()) & 0xFFFF:04x}"


def hidden_beside(path: Path) -> Path:
    """Return a name beside ``path`` that nothing has, for what is to take its place when whole."""
    return path.with_name(
        f".{path.name}.p3s-{_host()}{os.getpid() & 0xFFFFFFFF:08x}{secrets.token_hex(4)}"
    )


def unhide_path(path: Path | str) -> str:
    """Return a path as people know it: with the names that hidden ones stand for."""
    parts = Path(path).parts
    matches = [_NAME.fullmatch(part) for part in parts]
    names = [match["name"] if match else part for part, match in zip(parts, matches, strict=True)]
    return str(Path(*names)) if parts else str(path)


def new_file(path: Path) -> tuple[int, Path]:
    """Make an empty file under such a name; return it open for writing, and the name.

    Its mode is what the umask leaves, as of any file the user makes. Raises OSError.
    """
    name = hidden_beside(path)
    handle = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    _sweep(path.parent, os.fstat(handle).st_mtime)
    return handle, name


def new_directory(path: Path) -> Path:
    """Make an empty directory under such a name; raises OSError."""
    name = hidden_beside(path)
    name.mkdir()
    _sweep(path.parent, name.stat().st_mtime)
    return name


def discard(name: Path) -> None:
    """Remove a hidden directory, if it is still there."""
    shutil.rmtree(name, ignore_errors=True)


def put_in_place(staged: Path, target: Path) -> None:
    """Give a directory its name; what has had it is removed when the new one is there.

    At no time there is neither of them, but where the file system cannot exchange names: then an
    earlier one that was put aside comes back with the next sweep. Raises OSError.
    """
    for _ in range(_TRIES):
        try:
            if os.path.lexists(target):
                _replace(staged, target)
            else:
                os.rename(staged, target)
            return
        except OSError as error:
            # Another process was quicker, or has removed what was there.
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
                raise
            if not staged.exists():
                raise
    raise OSError(errno.EBUSY, "other processes replace it all the time", str(target))


def _replace(staged: Path, target: Path) -> None:
    if _exchange(staged, target):
        shutil.rmtree(staged, ignore_errors=True)
        return
    name = hidden_beside(target)
    old = name.with_name(name.name + _OLD)
    os.rename(target, old)
    try:
        os.rename(staged, target)
    except BaseException:
        os.rename(old, target)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange the names of two directories at once; False where that is not possible."""
    import ctypes

    try:
        renameat2 = ctypes.CDLL(None).renameat2
    except (OSError, AttributeError):
        return False
    paths = os.fsencode(one), os.fsencode(other)
    status = renameat2(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_EXCHANGE)
    return bool(status == 0)


# ---- one process at a time ----------------------------------------------------------------------


@contextmanager
def alone(path: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Let one process at a time read ``path``, and write what follows from that.

    ``waiting`` is called once where another one is at it. The file with the lock is gone
    afterwards; where there are no locks, or none can be made, nobody waits.
    """
    lock = path.with_name(f".{path.name}.lock")
    handle = _open_lock(lock, waiting)
    try:
        yield
    finally:
        if handle >= 0:
            with suppress(OSError):
                lock.unlink()  # still locked: whoever waits for it looks for a new one
            with suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_UN)  # a child may have it open still
            os.close(handle)


def _open_lock(lock: Path, waiting: Callable[[], None]) -> int:
    """Return an open file that is locked, -1 where that is not possible."""
    announced = False
    while True:
        try:
            handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError:
            return -1
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if not announced:
                    announced = True
                    waiting()
                fcntl.flock(handle, fcntl.LOCK_EX)
            if os.fstat(handle).st_nlink:
                return handle
        except OSError:
            os.close(handle)
            return -1
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)  # removed by the one that had it


# ---- what others have left -----------------------------------------------------------------------


def _sweep(directory: Path, now: float) -> None:
    """Sweep a directory once; ``now``: the time by its own file system's clock."""
    if directory not in _swept:
        _swept.add(directory)
        with suppress(OSError):
            sweep(directory, now)


def sweep(directory: Path, now: float) -> None:
    """Remove what processes that are gone have left in a directory; what is put aside comes back.

    Raises OSError when the directory cannot be read.
    """
    for entry in os.listdir(directory):
        match = _NAME.fullmatch(entry)
        if match is None or _is_written(directory / entry, match, now):
            continue
        with suppress(OSError):
            _clear(directory / entry, directory / match["name"])


def _is_written(name: Path, match: re.Match[str], now: float) -> bool:
    """Tell whether the process that made a hidden name may still be there."""
    if match["host"] == _host():
        return os.path.exists(f"/proc/{int(match['pid'], 16)}")
    return now - _find_last_change(name) < _STALE_S


def _clear(leftover: Path, target: Path) -> None:
    """Remove one leftover; give it its name back where it was put aside."""
    if leftover.name.endswith(_OLD) and not target.exists():
        os.rename(leftover, target)
    elif leftover.is_dir() and not leftover.is_symlink():
        shutil.rmtree(leftover, ignore_errors=True)
    else:
        leftover.unlink(missing_ok=True)


def _find_last_change(name: Path) -> float:
    """Return when something in a directory, or a file, changed last; 0 where it is not there."""
    times = [0.0]
    for path in (name, *(name.iterdir() if name.is_dir() else ())):
        with suppress(OSError):
            times.append(path.stat().st_mtime)
    return max(times)
