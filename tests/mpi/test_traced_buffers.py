"""Where the buffers of messages are, and how they lie in memory: what the capture says of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from paths import PROGRAMS
from tracer_helpers import compile_c, the_mpi, trace

from p3s.capture.types import DEVICE_RECEIVED, DEVICE_SENT

pytestmark = [pytest.mark.mpi, pytest.mark.skipif(the_mpi() is None, reason="no usable MPI")]

FOLDER = PROGRAMS / "buffers"


def test_bytes_in_a_row_of_a_datatype(tmp_path: Path) -> None:
    program = compile_c(FOLDER / "layouts.c", tmp_path / "layouts")
    run = trace([str(program)], 2, tmp_path / "run")
    sent = [call for call in run.calls if call.op.startswith("MPI_Sendrecv")]
    assert len({call.tag for call in sent}) == 8
    assert all(call.block == call.tag for call in sent)


def test_memory_of_a_device(tmp_path: Path) -> None:
    library = compile_c(FOLDER / "cudart.c", tmp_path / "libcudart.so", "-shared", "-fPIC")
    program = compile_c(FOLDER / "device.c", tmp_path / "device", "-ldl")
    run = trace([str(program), str(library)], 2, tmp_path / "run")
    marks = {(call.op, call.tag): call.memory for call in run.calls if call.op != "MPI_Allreduce"}
    both = DEVICE_SENT | DEVICE_RECEIVED
    for tag, of_send, of_receive, of_exchange in (
        (1, 0, 0, 0),
        (2, DEVICE_SENT, 0, DEVICE_SENT),
        (3, 0, DEVICE_SENT, DEVICE_RECEIVED),  # a receive has one buffer
        (4, 0, 0, 0),
    ):
        assert marks["MPI_Isend", tag] == of_send
        assert marks["MPI_Irecv", tag] == of_receive
        assert marks["MPI_Sendrecv", tag] == of_exchange
    assert marks["MPI_Bcast", -1] == marks["MPI_Send_init", 5] == DEVICE_SENT
    assert marks["MPI_Barrier", -1] == marks["MPI_Waitall", -1] == 0
    reduced = [call.memory for call in run.calls if call.op == "MPI_Allreduce"]
    assert sorted(reduced) == [0, both]
