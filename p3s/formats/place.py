"""Where exports go: files and directories that appear under their name when they are complete."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from p3s.base import staging
from p3s.base.artefacts import reason, sync_directory
from p3s.base.errors import P3SError, UsageError


def check_free(target: Path, force: bool) -> None:
    """Raise UsageError when something is at the target and may not be replaced."""
    if not force and (target.exists() or target.is_symlink()):
        raise UsageError(f"{target}: is there already; choose another place with -o, or --force")
    if (
        force
        and target.is_dir()
        and not (target / "export.json").is_file()
        and any(target.iterdir())
    ):
        raise UsageError(f"{target}: a directory that is no export; choose another place with -o")


@contextmanager
def new_directory(target: Path) -> Iterator[Path]:
    """Give an empty directory that takes the target's name in the end; P3SError if it cannot."""
    target = Path(os.path.abspath(target))
    staged: Path | None = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        staged = staging.new_directory(target)
        yield staged
        _into_place(staged, target)
        staged = None
    except OSError as err:
        raise _cannot(target, err) from err
    finally:
        if staged is not None:
            staging.discard(staged)


def _into_place(staged: Path, target: Path) -> None:
    if target.is_symlink() or target.is_file():
        target.unlink()
    staging.put_in_place(staged, target)
    sync_directory(target.parent)


@contextmanager
def new_file(target: Path) -> Iterator[IO[str]]:
    """Give a text file that takes the target's name in the end; P3SError if it cannot."""
    target = Path(os.path.abspath(target))
    temporary: Path | None = None
    try:
        if target.is_dir():
            raise UsageError(f"{target}: a directory; name a file with -o")
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = staging.new_file(target)
        with (
            open(handle, "wb"),  # locked as long as it is open; whoever writes may ask for its name
            open(
                temporary, "w", encoding="utf-8", errors="backslashreplace", buffering=1 << 20
            ) as file,
        ):
            yield file
            file.flush()
            os.fsync(file.fileno())
            os.replace(temporary, target)
        temporary = None
        sync_directory(target.parent)
    except OSError as err:
        raise _cannot(target, err) from err
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def _cannot(target: Path, err: OSError) -> P3SError:
    return P3SError(f"{target}: cannot be written: {reason(err)}; choose another place with -o")
