"""Rows of one-sided communication and of files: each event has its window's communicator."""

from __future__ import annotations

from dataclasses import replace

from p3s.signature_runner.tracer.wrapper import POSTED, Wrapper, names

_WINDOW = "P3S_WINDOW, P3S_HANDLE(win)"
_FILE = "P3S_FILE, P3S_HANDLE(file)"
_NOBODY = "P3S_NO_RANK"
_NOTHING = "0, p3s_mpi.type_null"


def _on(where: str, peer: str = _NOBODY, moved: str = _NOTHING) -> str:
    return f"p3s_on(&h, {where}, {peer}, {moved});"


def _asserting(peer: str) -> str:
    return f"p3s_sync(&h, P3S_HANDLE(win), {peer}, assert);"


def _closed(name: str, kind: str) -> Wrapper:
    return Wrapper(
        name,
        "p3s_closed(&h, o);",
        f"uint64_t was = P3S_HANDLE(*{name}); struct p3s_opened *o = p3s_closing({kind}, was);",
        f"if (rc != MPI_SUCCESS) p3s_not_closed({kind}, was, o);",
    )


def _one_sided() -> dict[str, Wrapper]:
    """Return what moves data: to or from ``target``, as many bytes as this rank passed."""
    origin = "origin count type"
    target = "target disp target_count target_type"
    result = "result result_count result_type"
    # What MPI_NO_OP does not send it still fetches, and then nobody looks at the origin's part.
    fetched = _on(_WINDOW, "target", "result_count, result_type")
    moved = _on(_WINDOW, "target", "count, type")
    one = _on(_WINDOW, "target", "1, type")
    out = {
        "Put": Wrapper(f"{origin} {target} win", moved),
        "Get": Wrapper(f"{origin} {target} win", moved),
        "Accumulate": Wrapper(f"{origin} {target} op win", moved),
        "Get_accumulate": Wrapper(f"{origin} {result} {target} op win", fetched),
        "Fetch_and_op": Wrapper("origin result type target disp op win", one),
        "Compare_and_swap": Wrapper("origin compare result type target disp win", one),
    }
    for name in ("Put", "Get", "Accumulate", "Get_accumulate"):
        row = out[name]
        out["R" + name.lower()] = Wrapper(f"{row.args} request", f"{row.after} {POSTED}")
    return out


def _windows() -> dict[str, Wrapper]:
    made = "p3s_opened(&h, comm, P3S_WINDOW, P3S_HANDLE(*win));"
    out = {
        name: Wrapper(args, made)
        for name, args in {
            "Win_create": "base size unit info comm win",
            "Win_allocate": "size unit info comm base win",
            "Win_allocate_shared": "size unit info comm base win",
            "Win_create_dynamic": "info comm win",
        }.items()
    }
    out["Win_free"] = _closed("win", "P3S_WINDOW")
    for name in ("Win_fence", "Win_lock_all"):
        out[name] = Wrapper("assert win", _asserting(_NOBODY))
    for name in ("Win_start", "Win_post"):
        out[name] = Wrapper(
            "group assert win", "p3s_sync_group(&h, P3S_HANDLE(win), group, assert);"
        )
    out["Win_lock"] = Wrapper("type target assert win", _asserting("target"))
    for name, args in {
        "Win_complete": "win",
        "Win_wait": "win",
        "Win_unlock_all": "win",
        "Win_flush_all": "win",
        "Win_flush_local_all": "win",
        "Win_sync": "win",
    }.items():
        out[name] = Wrapper(args, _on(_WINDOW))
    for name, args in {
        "Win_unlock": "target win",
        "Win_flush": "target win",
        "Win_flush_local": "target win",
    }.items():
        out[name] = Wrapper(args, _on(_WINDOW, "target"))
    out["Win_test"] = Wrapper("win flag", f"if (*flag) {_on(_WINDOW)} else p3s_poll(&h);")
    return out


def _moved(how: str, offset: str = "0") -> str:
    return f"p3s_file_moved(&h, file, {how}, {offset}, count, type);"


def _files() -> dict[str, Wrapper]:
    opened = "p3s_file_opened(&h, comm, name, mode, *file);"
    viewed = "p3s_file_view(&h, file, disp, etype, filetype);"
    closed = _closed("file", "P3S_FILE")
    out = {
        "File_open": Wrapper("comm name mode info file", opened),
        "File_close": replace(closed, after=f"{closed.after} p3s_file_closed(was);"),
        "File_delete": Wrapper("name info", "p3s_nowhere(&h);"),
        "File_set_view": Wrapper("file disp etype filetype rep info", viewed),
    }
    for name, args in {
        "File_set_size": "file size",
        "File_preallocate": "file size",
        "File_seek_shared": "file offset whence",
        "File_set_atomicity": "file flag",
        "File_sync": "file",
    }.items():
        out[name] = Wrapper(args, _on(_FILE))
    for name in names(
        "read read_all read_shared read_ordered write write_all write_shared write_ordered"
    ):
        moved = _moved(_pointer(name))
        out[f"File_{name}"] = Wrapper("file buf count type status", moved)
        if "ordered" not in name:
            out[f"File_i{name}"] = Wrapper("file buf count type request", f"{moved} {POSTED}")
    at = _moved("P3S_AT", "offset")
    for name in names("read_at read_at_all write_at write_at_all"):
        out[f"File_{name}"] = Wrapper("file offset buf count type status", at)
        out[f"File_i{name}"] = Wrapper("file offset buf count type request", f"{at} {POSTED}")
    for name in names("read_all write_all read_ordered write_ordered read_at_all write_at_all"):
        where = "file offset" if "_at_" in name else "file"
        moved = at if "_at_" in name else _moved(_pointer(name))
        out[f"File_{name}_begin"] = Wrapper(f"{where} buf count type", moved)
        out[f"File_{name}_end"] = Wrapper("file buf status", _on(_FILE))
    return out


def _pointer(name: str) -> str:
    """Return which pointer a call without an offset moves."""
    return "P3S_SHARED" if name.endswith(("_shared", "_ordered")) else "P3S_OWN"


def rows() -> dict[str, Wrapper]:
    """Return the wrappers of one-sided communication and MPI-IO."""
    return {**_one_sided(), **_windows(), **_files()}
