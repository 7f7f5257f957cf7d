"""Where exports go: files and directories that appear under their name when they are complete."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from p3s.artefacts import reason, sync_directory
from p3s.errors import P3SError, UsageError


def check_free(target: Path, force: bool) -> None:
    """Raise UsageError when something is at the target and may not be replaced."""
    if not force and (target.exists() or target.is_symlink()):
        raise UsageError(f"{target}: is there already; choose another place with -o, or --force")
    if force and target.is_dir() and not (target / "export.json").is_file() \
            and any(target.iterdir()):
        raise UsageError(f"{target}: a directory that is no export; choose another place with -o")


@contextmanager
def new_directory(target: Path) -> Iterator[Path]:
    """Give an empty directory that takes the target's name in the end; P3SError if it cannot."""
    target = Path(os.path.abspath(target))
    staged: Path | None = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        staged = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        yield staged
        staged.chmod(0o755)
        _into_place(staged, target)
        staged = None
    except OSError as err:
        raise _cannot(target, err) from err
    finally:
        if staged is not None:
            shutil.rmtree(staged, ignore_errors=True)


def _into_place(staged: Path, target: Path) -> None:
    old: Path | None = None
    if target.is_symlink() or target.is_file():
        target.unlink()
    elif target.exists():
        old = Path(tempfile.mkdtemp(prefix=f".{target.name}.old.", dir=target.parent))
        os.rename(target, old / "it")
    try:
        os.rename(staged, target)
    except OSError:
        if old is not None:
            os.rename(old / "it", target)
        raise
    sync_directory(target.parent)
    if old is not None:
        shutil.rmtree(old, ignore_errors=True)


@contextmanager
def new_file(target: Path) -> Iterator[IO[str]]:
    """Give a text file that takes the target's name in the end; P3SError if it cannot."""
    target = Path(os.path.abspath(target))
    temporary: str | None = None
    try:
        if target.is_dir():
            raise UsageError(f"{target}: a directory; name a file with -o")
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        os.close(handle)
        with open(temporary, "w", encoding="utf-8", errors="backslashreplace",
                  buffering=1 << 20) as file:
            yield file
            file.flush()
            os.fchmod(file.fileno(), 0o644)
            os.fsync(file.fileno())
        os.replace(temporary, target)
        temporary = None
        sync_directory(target.parent)
    except OSError as err:
        raise _cannot(target, err) from err
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)


def _cannot(target: Path, err: OSError) -> P3SError:
    return P3SError(f"{target}: cannot be written: {reason(err)}; choose another place with -o")
