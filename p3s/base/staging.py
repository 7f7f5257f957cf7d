"""Hidden names for what is being written, beside the name that it takes when it is whole.

Whoever writes holds a lock that the system gives back however the process ends: what nobody holds
was left by a process that is gone, and the next one that writes there removes it. A file is locked
itself, a directory by a file beside it (NFS locks no directories). Where locks are not known
between machines (mount options of NFS and Lustre), those of another one count as held until nothing
has changed for a day.
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
from pathlib import Path

#: Seconds without a change after which what another machine has left is removed.
_STALE_S = 86400.0
_LOCK, _OLD = ".lock", ".old"
_NAME = re.compile(r"(\.(?P<name>.+)\.p3s-(?P<host>[0-9a-f]{4})[0-9a-f]{8})(?P<what>\.lock|\.old)?")
_TRIES = 8
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # linux/fcntl.h, linux/fs.h

#: Locks that this process holds, by the hidden names they are for.
_held: dict[Path, int] = {}
_swept: set[Path] = set()


def _host() -> str:
    """Return a mark of this machine."""
    return f"{zlib.crc32(socket.gethostname().encode()) & 0xFFFF:04x}"


def hidden_beside(path: Path) -> Path:
    """Return a name beside ``path`` that nothing has, for what is to take its place when whole."""
    return path.with_name(f".{path.name}.p3s-{_host()}{secrets.token_hex(4)}")


def shown(path: Path | str) -> str:
    """Return a path as people know it: with the names that hidden ones stand for."""
    parts = Path(path).parts
    found = [_NAME.fullmatch(part) for part in parts]
    names = [match["name"] if match else part for part, match in zip(parts, found, strict=True)]
    return str(Path(*names)) if parts else str(path)


def new_file(path: Path) -> tuple[int, Path]:
    """Make an empty file under such a name; return it open for writing, and locked, and the name.

    It stays this process's until it is closed: give it its name before. Its mode is what the umask
    leaves, as of any file the user makes. Raises OSError.
    """
    for _ in range(_TRIES):
        name = hidden_beside(path)
        handle = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        if _keep(handle, name):
            _sweep(path.parent, os.fstat(handle).st_mtime)
            return handle, name
        os.close(handle)
    raise OSError(errno.EAGAIN, "files vanish while they are made", str(path))


def new_directory(path: Path) -> Path:
    """Make an empty directory under such a name, this process's until it is released.

    Raises OSError.
    """
    name = _reserve(path)
    try:
        name.mkdir()
    except OSError:
        release(name)
        raise
    return name


def _reserve(path: Path) -> Path:
    """Return a hidden name that is locked by this process, of which nothing is there yet."""
    for _ in range(_TRIES):
        name = hidden_beside(path)
        lock = _beside(name, _LOCK)
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        if _keep(handle, lock):
            _held[name] = handle
            _sweep(path.parent, os.fstat(handle).st_mtime)
            return name
        os.close(handle)
    raise OSError(errno.EAGAIN, "files vanish while they are made", str(path))


def _keep(handle: int, name: Path) -> bool:
    """Lock a new file; False where somebody took it for left over before it was locked."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # no locks here: nobody will be able to take it for left over
        return True
    return os.fstat(handle).st_nlink > 0


def release(name: Path) -> None:
    """Give up a hidden directory, which has its own name by now, or is gone."""
    handle = _held.pop(name, None)
    if handle is not None:
        with suppress(OSError):
            _beside(name, _LOCK).unlink()
        os.close(handle)


def discard(name: Path) -> None:
    """Remove a hidden directory, if it is still there."""
    shutil.rmtree(name, ignore_errors=True)
    release(name)


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
        except OSError as error:
            # Another process was quicker, or has removed what was there.
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
                raise
            if not staged.exists():
                raise
        else:
            release(staged)
            return
    raise OSError(errno.EBUSY, "other processes replace it all the time", str(target))


@contextmanager
def alone(path: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Let one process at a time read ``path``, and write what follows from that.

    ``waiting`` is called once where another one is at it. The file with the lock is gone
    afterwards; where there are no locks, or none can be made, nobody waits.
    """
    handle = _lock_of(path, waiting)
    try:
        yield
    finally:
        if handle >= 0:
            with suppress(OSError):
                _lock_name(path).unlink()  # still locked: whoever waits for it looks for a new one
            with suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_UN)  # a child may have it open still
            os.close(handle)


def _lock_name(path: Path) -> Path:
    return path.with_name(f".{path.name}{_LOCK}")


def _lock_of(path: Path, waiting: Callable[[], None]) -> int:
    """Return the open file that is locked for a path, -1 where that is not possible."""
    told = False
    while True:
        try:
            handle = os.open(_lock_name(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError:
            return -1
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if not told:
                    told = True
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


def _replace(staged: Path, target: Path) -> None:
    if _exchange(staged, target):
        shutil.rmtree(staged, ignore_errors=True)
        return
    name = _reserve(target)
    old = _beside(name, _OLD)
    try:
        os.rename(target, old)
        try:
            os.rename(staged, target)
        except BaseException:
            os.rename(old, target)
            raise
        shutil.rmtree(old, ignore_errors=True)
    finally:
        release(name)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange the names of two directories at once; False where that is not possible."""
    import ctypes

    try:
        renameat2 = ctypes.CDLL(None).renameat2
    except (OSError, AttributeError):
        return False
    paths = os.fsencode(one), os.fsencode(other)
    done = renameat2(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_EXCHANGE)
    return bool(done == 0)


def _beside(name: Path, suffix: str) -> Path:
    return name.with_name(name.name + suffix)


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
    found: dict[str, re.Match[str]] = {}
    for entry in os.listdir(directory):
        match = _NAME.fullmatch(entry)
        if match:
            found[match[1]] = match
    for name, match in found.items():
        with suppress(OSError, StopIteration):
            _clear(directory / name, match, now)


def _clear(name: Path, match: re.Match[str], now: float) -> None:
    """Remove one thing that was left, with its lock, unless somebody holds it."""
    if name in _held:
        return
    lock, old = _beside(name, _LOCK), _beside(name, _OLD)
    held = next(path for path in (lock, name, old) if os.path.lexists(path))
    how = os.O_RDONLY if held.is_dir() else os.O_RDWR
    handle = os.open(held, how | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if match["host"] != _host() and now - _changed(name) < _STALE_S:
            return
        target = name.with_name(match["name"])
        if old.exists() and not target.exists():
            os.rename(old, target)
        for path in (old, name):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        lock.unlink(missing_ok=True)
    finally:
        os.close(handle)


def _changed(name: Path) -> float:
    """Return when something in a directory, or a file, changed last; 0 where it is not there."""
    times = [0.0]
    for path in (name, *(name.iterdir() if name.is_dir() else ())):
        with suppress(OSError):
            times.append(path.stat().st_mtime)
    return max(times)
