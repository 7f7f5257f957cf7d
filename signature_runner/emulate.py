"""Runs a program under qemu-user, where executed instructions can be counted exactly."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from p3s.base.errors import P3SError
from p3s.signature_runner import build

# e_machine of an ELF file by the name the kernel gives the processor. Source: elf.h, uname(2).
_MACHINES = {"x86_64": 62, "aarch64": 183, "ppc64le": 21, "riscv64": 243, "s390x": 22}
_MAX_SCRIPTS = 4  # scripts whose interpreter is a script: the kernel's own limit

# What MPI libraries must not do in qemu: it has no process_vm_readv.
_NO_SINGLE_COPY = {
    "MPIR_CVAR_CH4_CMA_ENABLE": "0",
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
    "OMPI_MCA_smsc": "^cma",
}

# As recording.with_preload, but the preload is the guest's: qemu itself must not see it. qemu's -E
# splits at commas; the other variables reach the guest by inheritance.
_START = (
    'preload="$1${LD_PRELOAD:+:$LD_PRELOAD}"; unset LD_PRELOAD; qemu="$2"; plugin="$3"; shift 3;'
    ' exec "$qemu" -cpu max -E "LD_PRELOAD=$preload" -plugin "$plugin" "$@"'
)


def emulator() -> str:
    """Return the path of qemu-user for this machine's own programs.

    Errors: P3SError that says how to install it.
    """
    name = f"qemu-{platform.machine()}"
    path = shutil.which(name)
    if path is None:
        raise P3SError(
            f"{name}: not found; --work instructions runs the program in it: install qemu-user"
            " (Debian: apt install qemu-user), or use --work cpu"
        )
    return path


def _plugin(counter: Path, run_dir: Path) -> str:
    return f"{counter},dir={str(run_dir).replace(',', ',,')}"


def with_counter(
    tracer: Path, run_dir: Path, variables: Mapping[str, str], program: Sequence[str]
) -> list[str]:
    """Return the words that start a program under qemu, traced and with its instructions counted.

    Errors: P3SError when there is no qemu, or the program is not one of this machine's processor.
    """
    defaults = {n: value for n, value in _NO_SINGLE_COPY.items() if n not in os.environ}
    settings = [f"{name}={value}" for name, value in {**defaults, **variables}.items()]
    qemu, plugin = emulator(), _plugin(build.ensure_counter(), run_dir)
    shell = ["/bin/sh", "-c", _START, "sh", str(tracer), qemu, plugin]
    return ["/usr/bin/env", *settings, *shell, *native(program)]


def execute(preload: str, run_dir: Path, program: Sequence[str], env: dict[str, str]) -> None:
    """Become the program under qemu; ``env`` holds all variables but LD_PRELOAD.

    Errors: P3SError as with_counter; OSError when qemu does not start.
    """
    qemu, plugin = emulator(), _plugin(build.ensure_counter(), run_dir)
    words = native(program)
    options = ["-cpu", "max", "-E", f"LD_PRELOAD={preload}", "-plugin", plugin]
    os.execve(qemu, [qemu, *options, *words], {**_NO_SINGLE_COPY, **env})


def native(program: Sequence[str]) -> list[str]:
    """Return a program with its path in full and, if it is a script, its interpreter in front.

    qemu searches no PATH and runs no scripts. Errors: P3SError when the program is for another
    processor, or no program.
    """
    words = list(program)
    for _ in range(_MAX_SCRIPTS):
        path = shutil.which(words[0])
        if path is None:
            raise P3SError(f"{words[0]}: program not found; --work instructions needs its path")
        with open(path, "rb") as file:
            head = file.read(512)
        if not head.startswith(b"#!"):
            _check_machine(path, head)
            return [path, *words[1:]]
        words = [*_interpreter(path, head), path, *words[1:]]
    raise P3SError(f"{program[0]}: its interpreters are scripts themselves; name the program")


def _interpreter(path: str, head: bytes) -> list[str]:
    line = head[2:].partition(b"\n")[0].decode("utf-8", "replace").strip()
    name, _, argument = line.partition(" ")
    if os.path.basename(name) != "env":
        return [name, argument.strip()] if argument.strip() else [name]
    # env itself would start the interpreter outside of the emulator.
    words = shlex.split(argument)
    while words and (words[0] == "-S" or "=" in words[0]):
        words.pop(0)
    interpreter = shutil.which(words[0]) if words else None
    if interpreter is None:
        raise P3SError(f"{path}: its first line names an interpreter that is not there: {line}")
    return [interpreter, *words[1:]]


def _check_machine(path: str, head: bytes) -> None:
    required_machine = _MACHINES.get(platform.machine())
    if head[:4] != b"\x7fELF" or len(head) < 20:
        raise P3SError(
            f"{path}: neither a program nor a script with a #! line; --work instructions cannot"
            " run it, use --work cpu"
        )
    order = "<" if head[5] == 1 else ">"
    (machine,) = struct.unpack_from(f"{order}H", head, 18)
    if required_machine is not None and (machine != required_machine or head[4] != 2):
        raise P3SError(
            f"{path}: is made for another processor than {platform.machine()}; --work instructions"
            " runs this machine's own programs only"
        )
