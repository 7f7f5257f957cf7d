"""Text without what tells who and where: names of users and hosts, private paths, secrets."""

from __future__ import annotations

import os
import pwd
import re
import socket
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from p3s.base.errors import P3SError
from p3s.base.host.hosts import expand_hosts

HIDDEN_PATH, HIDDEN_USER, HIDDEN_HOST, HIDDEN_SECRET = "[path]", "[user]", "[host]", "[secret]"
HIDDEN_ADDRESS = "[address]"

#: Folders that are alike on all machines; paths elsewhere tell of people and projects.
_COMMON = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/dev", "/proc", "/sys")
#: Names of files in such folders are those of tools.
_TOOLS = ("bin", "sbin", "lib", "lib64")
_PATH = re.compile(r"(?<![\w.\]-])(?:~\w*|\[path\])?/[^\s:;,'\"()<>=]*|\[path\]")
_MAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)*")
_NUMBERS = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.])")
_HEXADECIMAL = re.compile(r"(?<![\w:])(?:[0-9a-fA-F]{0,4}:){3,7}[0-9a-fA-F]{1,4}(?![\w:])")
_SECRET = re.compile(r"TOKEN|SECRET|PASS|KEY|CREDENTIAL|AUTH|COOKIE")
_SECRET_FROM = 6  # shorter values are words such as "yes"
_NO_USERS = ("", "root")
_NO_HOSTS = ("", "localhost")
_HOSTS = ("HOSTNAME", "HOST", "SLURMD_NODENAME", "SLURM_SUBMIT_HOST", "PBS_O_HOST", "LSB_SUB_HOST")
_HOST_LISTS = ("SLURM_JOB_NODELIST", "SLURM_NODELIST")
_CLUSTERS = ("SLURM_CLUSTER_NAME", "SLURM_JOB_ACCOUNT", "SLURM_CLUSTERS")


def hider(environment: Mapping[str, str] | None = None) -> Callable[[str], str]:
    """Return a function that hides in a text what tells who and where, or is secret.

    Names are those of this process's user, of this host and of the job's nodes; paths are hidden
    but for those that all machines have, and for the names of tools; so are addresses of mail and
    network, and the values of variables that are named as secrets are. ``root`` is no name.
    """
    env = os.environ if environment is None else environment
    known = [
        *((_words(name, any_case=True), HIDDEN_USER) for name in _users(env)),
        *((_words(name, r"(?:\.[\w-]+)*"), HIDDEN_HOST) for name in _hosts(env)),
    ]
    literal = [(value, HIDDEN_SECRET) for value in _secrets(env)]
    literal += [(home, HIDDEN_PATH) for home in _homes(env)]

    def hide(text: str) -> str:
        for value, label in literal:
            text = text.replace(value, label)
        text = _MAIL.sub(HIDDEN_ADDRESS, _PATH.sub(_without_place, text))
        for pattern, label in known:
            text = pattern.sub(label, text)
        return _HEXADECIMAL.sub(HIDDEN_ADDRESS, _NUMBERS.sub(HIDDEN_ADDRESS, text))

    return hide


def _without_place(match: re.Match[str]) -> str:
    """Return a path without where it is, unless all machines have that place."""
    path = match[0]
    plain = os.path.normpath(path)
    if any(plain == folder or plain.startswith(f"{folder}/") for folder in _COMMON):
        return path
    folder, name = os.path.split(plain)
    if name and os.path.basename(folder) in _TOOLS:
        return f"{HIDDEN_PATH}/{os.path.basename(folder)}/{name}"
    return HIDDEN_PATH if plain != "/" else path


def _words(name: str, behind: str = "", *, any_case: bool = False) -> re.Pattern[str]:
    flags = re.IGNORECASE if any_case else re.NOFLAG
    return re.compile(rf"(?<![A-Za-z0-9]){re.escape(name)}{behind}(?![A-Za-z0-9])", flags)


def _longest_first(found: Iterable[str], but: tuple[str, ...] = ("",)) -> list[str]:
    return sorted({each for each in found if each not in but}, key=lambda each: (-len(each), each))


def _users(env: Mapping[str, str]) -> list[str]:
    """Return the names of the user: of the account, and the person's."""
    found = [env.get("USER", ""), env.get("LOGNAME", "")]
    with suppress(KeyError):  # a number without an entry, as in containers
        entry = pwd.getpwuid(os.getuid())
        found += [entry.pw_name, entry.pw_gecos.partition(",")[0]]
    return _longest_first(found, _NO_USERS)


def _hosts(env: Mapping[str, str]) -> list[str]:
    """Return the names of this host, of its cluster and of the nodes of its job."""
    full = [socket.gethostname(), os.uname().nodename, *(env.get(name, "") for name in _HOSTS)]
    for name in _HOST_LISTS:
        with suppress(P3SError):
            full += expand_hosts(env[name]) if env.get(name) else []
    short = [name.partition(".")[0] for name in full]
    return _longest_first([*full, *short, *(env.get(name, "") for name in _CLUSTERS)], _NO_HOSTS)


def _secrets(env: Mapping[str, str]) -> list[str]:
    named = (value for name, value in env.items() if _SECRET.search(name.upper()))
    return _longest_first(value for value in named if len(value) >= _SECRET_FROM)


def _homes(env: Mapping[str, str]) -> list[str]:
    homes = [home for home in (env.get("HOME", ""), os.path.expanduser("~")) if home]
    folders = [each for home in homes for each in (home.rstrip("/"), os.path.realpath(home))]
    return _longest_first(folders, ("", "/", "."))
