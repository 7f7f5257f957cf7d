"""A Slurm of its own with several nodes on this machine; everything in one directory."""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

PROGRAMS = ("srun", "sbatch", "scancel", "sinfo", "squeue")
#: Ranks of one machine share its cores, and shared memory is named after the machine: all nodes
#: are one.
OPEN_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_MCA_btl": "tcp,self",
    "OMPI_MCA_pml": "ob1",
}
DAEMONS = ("munged", "slurmctld", "slurmd")
TIMEOUT_S = 120.0
SBIN = "/usr/sbin:/sbin"

CONF = """ClusterName=p3s
SlurmctldHost=localhost(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={work}/munge/socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
StateSaveLocation={work}/state
SlurmdSpoolDir={work}/spool/%n
SlurmctldPidFile={work}/ctld.pid
SlurmdPidFile={work}/d.%n.pid
SlurmctldLogFile={work}/ctld.log
SlurmdLogFile={work}/d.%n.log
SlurmctldPort={controller}
FirstJobId={first}
MpiDefault=pmi2
SlurmdParameters=config_overrides
ReturnToService=2
MinJobAge=3600
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
{nodes}
PartitionName=p Nodes=n[0-{last}] Default=YES MaxTime=10 State=UP OverSubscribe=FORCE
"""


def missing() -> str:
    """Return why no Slurm can be started here, empty if one can."""
    if os.getuid() != 0:
        return "only root can start a Slurm of its own"
    for name in (*PROGRAMS, *DAEMONS):
        if _find(name) is None:
            return f"{name} is not installed"
    try:
        pwd.getpwnam("munge")
    except KeyError:
        return "there is no user munge"
    return ""


def _find(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:{SBIN}")


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


class Cluster:
    """Starts munged, slurmctld and the slurmds; ``env`` is what clients need."""

    def __init__(self, work: Path, nodes: int) -> None:
        self.work, self.nodes = work, nodes
        self.env = {"SLURM_CONF": str(work / "slurm.conf")}
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start everything and wait until all nodes are idle."""
        self._write()
        munge = self.work / "munge"
        user = pwd.getpwnam("munge")
        for path in [munge, *munge.iterdir()]:
            os.chown(path, user.pw_uid, user.pw_gid)
        files = [f"--{n}={munge / n}" for n in ("socket", "pid-file", "log-file", "seed-file")]
        self._daemon(
            "munged", "--foreground", "--force", f"--key-file={munge / 'key'}", *files, user="munge"
        )
        wait_for(lambda: (munge / "socket").exists(), "munged")
        self._daemon("slurmctld", "-D", "-f", self.env["SLURM_CONF"])
        for node in range(self.nodes):
            conf = str(self.work / f"c{node}" / "slurm.conf")
            self._daemon("slurmd", "-D", "-f", conf, "-N", f"n{node}", SLURM_CONF=conf)
        wait_for(self._idle, "slurmctld")

    def _write(self) -> None:
        ports = _free_ports(self.nodes + 1)
        rows = [
            f"NodeName=n{i} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs=8"
            " RealMemory=1000"
            for i, port in enumerate(ports[1:])
        ]
        # MPICH names its shared memory by the job: what a killed one of an earlier cluster has
        # left behind must not be met again.
        first = 1000 + secrets.randbelow(60_000_000)
        conf = CONF.format(
            first=first,
            work=self.work,
            controller=ports[0],
            nodes="\n".join(rows),
            last=self.nodes - 1,
        )
        self.work.chmod(0o755)  # munged goes through it as another user
        for name in ("munge", "state", "spool", *(f"spool/n{i}" for i in range(self.nodes))):
            (self.work / name).mkdir()
        (self.work / "munge" / "key").write_bytes(os.urandom(128))
        (self.work / "munge" / "key").chmod(0o400)
        for folder in (self.work, *(self.work / f"c{i}" for i in range(self.nodes))):
            folder.mkdir(exist_ok=True)
            (folder / "slurm.conf").write_text(conf)
            (folder / "cgroup.conf").write_text("CgroupPlugin=autodetect\nIgnoreSystemd=yes\n")
        for i in range(self.nodes):
            own = self.work / f"t{i}"  # slurmds of one machine must not share it
            own.mkdir()
            (self.work / f"c{i}" / "mpi.conf").write_text(f"PMIxCliTmpDirBase={own}\n")

    def _daemon(self, name: str, *words: str, user: str | None = None, **env: str) -> None:
        path = _find(name)
        assert path is not None
        with open(self.work / f"{name}.out", "ab") as out:
            self._running.append(
                subprocess.Popen(
                    [path, *words],
                    env={**os.environ, **self.env, **env},
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    start_new_session=True,
                    user=user,
                    group=user,
                    extra_groups=[] if user else None,
                )
            )

    def _idle(self) -> bool:
        sinfo = _find("sinfo")
        assert sinfo is not None
        done = subprocess.run(
            [sinfo, "-h", "-o", "%D %t"],
            env={**os.environ, **self.env},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        return done.stdout.split() == [str(self.nodes), "idle"]

    def stop(self) -> None:
        """End the jobs, then every process that was started, each by its own id."""
        if len(self._running) > 1:
            self._end_jobs()
        for process in reversed(self._running):
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
        for process in reversed(self._running):
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._running.clear()

    def _end_jobs(self) -> None:
        """What serves a step outlives its slurmd: no job may be left when that ends."""
        scancel = _find("scancel")
        assert scancel is not None
        with contextlib.suppress(subprocess.TimeoutExpired, RuntimeError):
            env = {**os.environ, **self.env}
            subprocess.run([scancel, "--user=root", "--signal=KILL"], env=env, timeout=TIMEOUT_S)
            subprocess.run([scancel, "--user=root"], env=env, timeout=TIMEOUT_S)
            wait_for(self._idle, "the end of the jobs")


@contextlib.contextmanager
def running(work: Path, nodes: int = 4) -> Iterator[Cluster]:
    """Start a cluster in a temporary directory of pytest's, and end it."""
    for folder in (work.parent, work.parent.parent):  # munged runs as another user
        folder.chmod(folder.stat().st_mode | 0o055)
    cluster = Cluster(work, nodes)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float = TIMEOUT_S) -> None:
    """Wait until something is so; fails the test when it takes too long."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what} did not come up within {timeout_s:g} s")
        time.sleep(0.1)
