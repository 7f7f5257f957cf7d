"""The bug report tells what the machine is, and not who or where."""

from __future__ import annotations

import os
import pwd
import socket
from collections.abc import Sequence

import pytest
from commands import cli

from p3s.base.host import compiling
from p3s.base.version import __version__
from p3s.signature_runner import bug_report
from p3s.signature_runner.examine import FAIL, OK, Check

SECRET = "hunter2-hunter2"
ENVIRONMENT = {
    "USER": "alice",
    "LOGNAME": "alice",
    "HOME": "/data/people/alice smith",
    "HOSTNAME": "login7.cluster.example.org",
    "SLURM_JOB_NODELIST": "nid[0011-0012],gpu3",
    "SLURM_CLUSTER_NAME": "bigiron",
    "SLURM_JOB_ACCOUNT": "proj0815",
    "REGISTRY_TOKEN": SECRET,
    "OMP_NUM_THREADS": "4",
    "OMPI_MCA_orte_hnp_uri": "12;tcp://10.1.2.3:99",
    "LD_PRELOAD": "/data/people/alice smith/x/libmine.so",
    "UNRELATED": "what nobody asked for",
}
PRIVATE = ("alice", "smith", "people", "login7", "example.org", "nid0012", "gpu3", "bigiron")
PRIVATE = (*PRIVATE, "proj0815", SECRET, "10.1.2.3", "nobody asked", "fe80", "@", "fluid-secret")
DETAILS = (
    "at /data/people/alice smith/fluid-secret/bin/mpicc, ~alice/fluid-secret",
    f"said {SECRET} on node nid0012, login7 and login7.cluster.example.org",
    "alice@example.org has 10.1.2.3 and fe80::1:2:3:4 of gpu3.local, https://example.org/alice",
    "account proj0815 of bigiron in /scratch/fluid-secret:/scratch/Alice_runs",
)


@pytest.fixture
def somebody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Alice's environment, on a node of her cluster."""
    for name in os.environ:
        if name not in ("PATH", "PYTHONPATH", "TMPDIR"):
            monkeypatch.delenv(name)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


def found() -> Sequence[Check]:
    return [Check(f"check {i}", OK, text) for i, text in enumerate(DETAILS)]


@pytest.mark.usefixtures("somebody")
def test_nothing_private_is_in_the_report() -> None:
    text = bug_report.bug_report(found)
    assert [word for word in PRIVATE if word in text.lower()] == []
    names = {pwd.getpwuid(os.getuid()).pw_name} - {"root"}
    values = text.partition("Left out:")[0].split()
    assert not {*names, socket.gethostname()} - {"localhost"} & set(values)


@pytest.mark.usefixtures("somebody")
def test_the_report_has_what_a_maintainer_asks_for() -> None:
    text = bug_report.bug_report(found)
    for words in (f"p3s       {__version__}", "kernel ", "cores ", "numpy ", "mpi4py ", "check 3"):
        assert words in text
    assert "OMP_NUM_THREADS" in text and "[path]/bin/mpicc" in text
    lines = {
        line.split()[0]: line.split(maxsplit=1)[1] for line in text.splitlines() if "  " in line
    }
    assert lines["OMP_NUM_THREADS"] == "4" and "left out" in lines["OMPI_MCA_orte_hnp_uri"]
    assert "UNRELATED" not in text and "REGISTRY_TOKEN" not in text
    assert "Left out: " in text and "CONTRIBUTING.md" in text and "docs/security.md" in text


def test_a_report_is_made_where_the_checks_fail() -> None:
    def broken() -> Sequence[Check]:
        raise ZeroDivisionError("of\nall things")

    assert "failed: ZeroDivisionError: of all things" in bug_report.bug_report(broken)


def test_places_that_all_machines_have_stay() -> None:
    hide = bug_report.hider({"USER": "root", "HOME": "/"})
    same = "3.12 at /usr/bin/python3 and /lib64/libmpi.so.40, 4.1.4, as root; openmpi/mpich n 12:30"
    assert hide(same) == same
    assert hide("/usr/../home/bob/code, /home/bob/lib/libx.so") == "[path], [path]/lib/libx.so"


def test_the_command_prints_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from p3s.signature_runner import examine

    monkeypatch.setattr(examine, "checks", lambda words: [Check("mpi", FAIL, "no mpicc on PATH")])
    streams = cli("doctor --report")
    assert streams.out.startswith("P3S bug report\n") and "FAIL mpi  no mpicc" in streams.out
    assert streams.err.count("\n") == 1
    cli("doctor --report --json", code=2, err="not with --json")


def test_it_says_for_which_mpis_compiled_files_came(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no compiled C came with P3S" in bug_report.bug_report(found)
    here = [compiling.Library("openmpi", "5.0.11", frozenset({"MPI_Init"}))]
    monkeypatch.setattr(compiling, "libraries", lambda: here)
    assert "C for openmpi 5.0.11 came with P3S" in bug_report.bug_report(found)
