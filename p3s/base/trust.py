"""Whose commands a study holds: this user's own are signed with a key that nobody else can read.

The command of a study is run again by ``p3s validate``, so a study from somebody else is a program.
What this user runs or allows is signed (HMAC-SHA256) with a key in the user's configuration:
copies of her studies keep working on all machines that share her home, other studies are asked for.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from p3s.base.errors import P3SError
from p3s.base.host.compiling import cache_dir, explain_unsafe
from p3s.base.settings import fill_parameters, parent_of, sources
from p3s.base.study import Study

_KEY = "key"
_KEY_BYTES = 32
#: Changes with what a signature covers.
_VERSION = 1
#: Entry of study.json: signatures of commands that the user has allowed.
_ALLOWED = "allowed"
_MOST_ALLOWED = 100


# ---- the key ------------------------------------------------------------------------------------
def config_dir() -> Path:
    """Return the directory of the user's configuration: $XDG_CONFIG_HOME/p3s or ~/.config/p3s."""
    home = os.environ.get("XDG_CONFIG_HOME", "")
    base = Path(home) if os.path.isabs(home) else Path.home() / ".config"
    return base / "p3s"


def user_key() -> bytes:
    """Return the user's key (32 bytes), made where there is none.

    It is in her configuration, or in the private cache where that cannot be written. Errors:
    P3SError when it, or its directory, is another user's or open to others.
    """
    folder = config_dir()
    with contextlib.suppress(OSError):
        return _key_in(folder)
    try:
        return _key_in(cache_dir())
    except OSError as err:
        raise P3SError(
            f"{folder}: cannot be written: {err.strerror}; set XDG_CONFIG_HOME to a directory of "
            "yours"
        ) from err


def _key_in(folder: Path) -> bytes:
    folder.mkdir(parents=True, mode=0o700, exist_ok=True)
    if why := explain_unsafe(os.lstat(folder), directory=True):
        raise P3SError(f"{folder}: {why}; chmod go-w it, or remove it")
    path = folder / _KEY
    with contextlib.suppress(FileNotFoundError):
        return _read_key(path)
    _make_key(path)
    return _read_key(path)


def _read_key(path: Path) -> bytes:
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        facts = os.fstat(handle)
        key = os.read(handle, _KEY_BYTES + 1)
    finally:
        os.close(handle)
    if why := explain_unsafe(facts):
        raise P3SError(f"{path}: {why}; remove it, and P3S makes another")
    if facts.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise P3SError(f"{path}: can be read by others; remove it, and P3S makes another")
    if len(key) != _KEY_BYTES:
        raise P3SError(f"{path}: is no key; remove it, and P3S makes another")
    return key


def _make_key(path: Path) -> None:
    """Make a key; of several processes that do at the same time, the first has made it."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(secrets.token_bytes(_KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, path)  # unlike a rename it never replaces the key of another process
        except FileExistsError:
            return
        except OSError:  # a file system without links
            os.rename(draft, path)
    finally:
        draft.unlink(missing_ok=True)


# ---- signatures ---------------------------------------------------------------------------------
def sign(words: Sequence[str], directory: str, mpicc: str = "") -> str:
    """Return the signature of a command and where it is run; empty where the user has no key.

    ``mpicc``: compiler wrapper that is to be asked which MPI it belongs to.
    """
    try:
        return _signature(user_key(), words, directory, mpicc)
    except P3SError:
        return ""


def is_signed(signature: Any, words: Sequence[str], directory: str, mpicc: str = "") -> bool:
    """Tell whether this user has signed a command. Errors: P3SError as user_key."""
    if not isinstance(signature, str) or not signature.isascii():
        return False
    return hmac.compare_digest(_signature(user_key(), words, directory, mpicc), signature)


def _signature(key: bytes, words: Sequence[str], directory: str, mpicc: str) -> str:
    covered = [_VERSION, "command", list(words), directory, mpicc]
    # Escaped, words keep bytes that are not UTF-8.
    return hmac.new(key, json.dumps(covered).encode("ascii"), hashlib.sha256).hexdigest()


# ---- studies ------------------------------------------------------------------------------------
def is_own(study: Study, words: Sequence[str], directory: str) -> bool:
    """Tell whether this user has run, or allowed, a command of a study in a directory.

    At a value of a parameter that was not traced: whether she has run it at another value.
    Errors: P3SError as user_key.
    """
    allowed = study.manifest().get(_ALLOWED)
    signatures = allowed[:_MOST_ALLOWED] if isinstance(allowed, list) else []
    if any(is_signed(signature, words, directory) for signature in signatures):
        return True
    if any(_has_run(each, words, directory) for each in (study, *_moved_from(study))):
        return True
    return any(
        _has_run(other, _build_command(study, other), directory)
        for other in sources(study)
        if _build_command(study, study) == list(words)
    )


def is_made_here(study: Study) -> bool:
    """Tell whether this user has run, or allowed, a study's command where its runs were started."""
    with contextlib.suppress(P3SError):  # no command, or no key
        words = study.command()
        runs = [
            r for each in (study, *_moved_from(study)) for r in (*each.runs(), *each.timed_runs())
        ]
        places = [os.getcwd(), *(str(run.info.get("directory") or "") for run in runs)]
        return any(is_own(study, words, place) for place in dict.fromkeys(places))
    return False


def _has_run(study: Study, words: Sequence[str], directory: str) -> bool:
    """Tell whether this user has made a run of a study with a command in a directory."""
    return any(
        _same_place(where, directory) and is_signed(run.info.get("signed"), words, where)
        for run in (*study.runs(), *study.timed_runs())
        for where in (str(run.info.get("directory") or directory),)
    )


def _build_command(study: Study, other: Study) -> list[str]:
    """Return the command of the study with parameters that ``study`` lies in, at another's values;
    nothing where it lies in none."""
    parent, place = parent_of(study), parent_of(other)
    if parent is None or place is None or place[0].root != parent[0].root:
        return []
    return fill_parameters(parent[0].command(), place[1])


def _same_place(one: str, other: str) -> bool:
    """Tell whether two names are of one directory: homes have other names on other nodes."""
    try:
        return one == other or os.path.samefile(one, other)
    except (OSError, ValueError):
        return False


def _moved_from(study: Study) -> list[Study]:
    """Return the study that one of another machine, or of other threads, was made from."""
    manifest = study.manifest()
    up = manifest.get("traces") or manifest.get("moved_from")
    return [Study(Path(os.path.normpath(study.root / up)))] if isinstance(up, str) else []


def allow(study: Study, words: Sequence[str], directory: str) -> None:
    """Remember in study.json that the user allows a command; a study that is only read forgets."""
    with contextlib.suppress(P3SError):
        entry = study.manifest().get(_ALLOWED)
        signatures = (
            [each for each in entry if isinstance(each, str)] if isinstance(entry, list) else []
        )
        if signature := sign(words, directory):
            study.update(**{_ALLOWED: [*signatures[-_MOST_ALLOWED + 1 :], signature]})
