"""What starts MPI: marked by its folder, and never run by two workers at a time.

Several workers have cores of their own, and no test waits for disks.
"""

from __future__ import annotations

import fcntl
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

os.environ.pop("COLUMNS", None)  # some shells export it, and text would be as wide
# Shells start what goes on in the background with Ctrl-C ignored, and programs keep to that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

#: Folders whose tests start real MPI programs.
STARTS_MPI = ("mpi", "e2e")


def pytest_configure() -> None:
    """Share the cores among workers: P3S starts no processes beside one that has a single core."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    number = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    cores = sorted(os.sched_getaffinity(0))
    if 1 < number <= len(cores):
        os.sched_setaffinity(0, cores[int(worker.removeprefix("gw")) % number :: number])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what starts MPI, and let it wait for others that do."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here) and item.path.relative_to(here).parts[0] in STARTS_MPI:
            item.add_marker("mpi")
        if item.get_closest_marker("mpi") and hasattr(item, "fixturenames"):
            item.fixturenames.insert(0, "alone_with_mpi")


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_disks() -> Iterator[None]:
    """Let fsync do nothing in this process: some 5 ms each, of which a command takes a dozen.

    What a machine that loses its power leaves on a disk is not tested.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _handle: None)
        yield


@pytest.fixture(scope="session")
def alone_with_mpi() -> Iterator[None]:
    """Hold the lock of this user's tests that start MPI: their ranks need all cores."""
    with open(Path(tempfile.gettempdir()) / f"p3s-tests-{os.getuid()}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the compiled examples; other programs may be put beside them."""
    from tracer_helpers import make_examples

    return make_examples(tmp_path_factory.mktemp("examples"))


@pytest.fixture(scope="session")
def named(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return what gives a study by its name (helpers/named_studies.py), made once, to be read."""
    from named_studies import STUDIES

    known: dict[str, Path] = {}

    def of(name: str) -> Path:
        if name not in known:
            known[name] = STUDIES[name](tmp_path_factory.mktemp(name.lower()))
        return known[name]

    return of
