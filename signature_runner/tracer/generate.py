"""Turns the table of MPI calls and one preprocessed mpi.h into the C text of the wrappers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from p3s.signature_runner.tracer import table
from p3s.signature_runner.tracer.table import Wrapper

_PROTOTYPE = re.compile(r"\bint\s+(P?MPI_[A-Za-z]\w*)\s*\(")
_DECLARATOR = re.compile(r"^(?P<type>.*?[\s*&])(?P<name>[A-Za-z_]\w*)\s*(?P<array>(\[[^\]]*\])*)$")
_WORD = re.compile(r"\b[A-Za-z_]\w*\b")


@dataclass(frozen=True)
class Parameter:
    """One parameter of a prototype: text before its name, its name, array brackets after it."""

    type: str
    name: str
    array: str

    def named(self, name: str) -> str:
        """Return the declaration with another name."""
        return f"{self.type}{name}{self.array}"


def _split(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for at, char in enumerate(text):
        depth += (char in "([") - (char in ")]")
        if char == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    parts.append(text[start:])
    return [" ".join(part.split()) for part in parts]


def _parameter(text: str, number: int) -> Parameter | None:
    if "(" in text or text == "...":
        return None
    match = _DECLARATOR.match(text)
    # A lone type name (unnamed parameter) has one word besides qualifiers.
    words = [word for word in _WORD.findall(text) if word not in ("const", "struct")]
    if match is None or len(words) < 2:
        return Parameter(text + " ", f"a{number}", "")
    return Parameter(match["type"], match["name"], match["array"] or "")


def prototypes(header: str) -> dict[str, list[Parameter]]:
    """Return name (with MPI_ or PMPI_) -> parameters of every int function of an mpi.h.

    ``header`` is the output of ``mpicc -E``. Functions with callback parameters are left out.
    """
    functions: dict[str, list[Parameter]] = {}
    for match in _PROTOTYPE.finditer(header):
        depth, at = 1, match.end()
        while depth and at < len(header):
            depth += (header[at] == "(") - (header[at] == ")")
            at += 1
        inside = header[match.end() : at - 1].strip()
        texts = [] if inside in ("", "void") else _split(inside)
        parameters = [_parameter(text, number) for number, text in enumerate(texts)]
        if all(parameter is not None for parameter in parameters):
            functions[match[1]] = [parameter for parameter in parameters if parameter is not None]
    return functions


def _export_function(name: str, declared: str, body: str) -> str:
    """Return a function under both of its names, MPI_X and PMPI_X.

    ``body`` sees ``outer``, true under the name MPI_X. PMPI_X must be caught too: the Fortran
    layer of Open MPI, part of that of MPICH, and tools linked into the program call it.
    """
    plain = (
        ""
        if declared == "void"
        else ", ".join(
            match[1] for match in re.finditer(r"(\w+)\s*(?:\[[^\]]*\]\s*)*(?:,|$)", declared)
        )
    )
    inner = "bool outer, void *ra, void *fa" + ("" if declared == "void" else f", {declared}")
    text = f"static int p3s_do_{name}({inner})\n{{\n{body}}}\n"
    for prefix, outer in (("MPI", "true"), ("PMPI", "false")):
        passed = f"{outer}, P3S_RA, P3S_FA" + (f", {plain}" if plain else "")
        text += (
            f'P3S_EXPORT int p3s_{prefix}_{name}({declared}) P3S_NAME("{prefix}_{name}");\n'
            f"int p3s_{prefix}_{name}({declared}) {{ return p3s_do_{name}({passed}); }}\n"
        )
    return text


def _buffers(names: list[str]) -> str:
    """Return the text that looks where a call's buffers are, empty for one without."""
    sent = next((name for name in ("buf", "sendbuf", "origin") if name in names), "NULL")
    received = next((name for name in ("recvbuf", "result") if name in names), "NULL")
    if sent == received == "NULL":
        return ""
    return f"    P3S_BUFFERS(&h, {sent}, {received});"


def _wrapper(name: str, op: str, row: Wrapper, parameters: list[Parameter]) -> str:
    names = row.args.split()
    declared = ", ".join(p.named(n) for p, n in zip(parameters, names, strict=True)) or "void"
    plain = ", ".join(names)
    passed = ", ".join(row.passed.get(name, name) for name in names)
    real = f"(outer ? p3s_next.{name} : p3s_real.{name})"
    if not row.traced:
        begin = (
            "    bool nested = p3s_nested(fa);\n"
            "    bool there = nested || p3s_gate(ra, fa);\n"
            f"    if (there) {{ {row.before} }}\n"
            "    if (nested || !there) p3s_go_in(ra, fa);\n"
        )
        return _passing(name, begin, declared, plain)
    nested = f"if (p3s_self.depth) {{ {row.nested} }}" if row.nested else ""
    lines = [
        "    struct p3s_here h;",
        f"    if (!p3s_enter(&h, P3S_OP_{op}, ra, fa)) {{ {nested} return {real}({plain}); }}",
        _buffers(names),
        f"    {row.before}" if row.before else "",
        f"    int rc = {real}({passed});",
        "    p3s_return(&h);",
        f"    if (rc == MPI_SUCCESS) {{ {row.after} }}",
        f"    {row.always}" if row.always else "",
        "    p3s_leave(&h);",
        "    return rc;",
    ]
    return _export_function(name, declared, "\n".join(line for line in lines if line) + "\n")


def _sessions() -> Iterator[str]:
    """Yield the wrappers of the beginning and the end of a session."""
    yield _export_function(
        "Session_init",
        "MPI_Info info, MPI_Errhandler errhandler, MPI_Session *session",
        "    struct p3s_here h;\n"
        "    bool begun = p3s_active;\n"
        "    int rc, how = P3S_FORWARD;\n"
        "    bool inside = begun && p3s_enter(&h, P3S_OP_Init, ra, fa);\n"
        "    if (!begun && (how = p3s_init_enter(&h, ra, fa, &rc)) == P3S_REFUSE) return rc;\n"
        "    rc = (outer ? p3s_next.Session_init : p3s_real.Session_init)(info, errhandler,"
        " session);\n"
        "    if (inside) { p3s_return(&h); p3s_leave(&h); }\n"
        "    if (how == P3S_RECORD) p3s_session_first(&h, rc, session);\n"
        "    else if (inside && rc == MPI_SUCCESS) p3s_session_opened(*session);\n"
        "    return rc;\n",
    )
    yield _export_function(
        "Session_finalize",
        "MPI_Session *session",
        "    struct p3s_here h;\n"
        "    bool inside = p3s_enter(&h, P3S_OP_Finalize, ra, fa);\n"
        "    if (inside && p3s_session_closing(*session)) {\n"
        "        p3s_finalize(&h);\n"
        "        p3s_leave(&h);\n"
        "        inside = false;\n"
        "    }\n"
        "    int rc = (outer ? p3s_next.Session_finalize : p3s_real.Session_finalize)(session);\n"
        "    if (inside) { p3s_return(&h); p3s_leave(&h); }\n"
        "    return rc;\n",
    )


def _special() -> Iterator[str]:
    for name, declared, plain in (
        ("Init", "int *argc, char ***argv", "argc, argv"),
        (
            "Init_thread",
            "int *argc, char ***argv, int required, int *provided",
            "argc, argv, required, provided",
        ),
    ):
        yield _export_function(
            name,
            declared,
            "    struct p3s_here h;\n"
            "    int rc, how = p3s_init_enter(&h, ra, fa, &rc);\n"
            "    if (how == P3S_REFUSE) return rc;\n"
            f"    rc = (outer ? p3s_next.{name} : p3s_real.{name})({plain});\n"
            "    if (how == P3S_RECORD) p3s_init_done(&h, rc);\n"
            "    return rc;\n",
        )
    yield _export_function(
        "Finalize",
        "void",
        "    struct p3s_here h;\n"
        "    if (p3s_enter(&h, P3S_OP_Finalize, ra, fa)) {\n"
        "        p3s_finalize(&h);\n"
        "        p3s_leave(&h);\n"
        "    }\n"
        "    return (outer ? p3s_next.Finalize : p3s_real.Finalize)();\n",
    )
    # Not an event: it only leaves the name of the call in the header. Error handlers and signal
    # handlers call it inside another call, whose name stays there.
    yield _export_function(
        "Abort",
        "MPI_Comm comm, int code",
        "    struct p3s_here h;\n"
        "    p3s_enter(&h, P3S_OP_Abort, ra, fa);\n"
        "    p3s_aborting(code, ra);\n"
        "    return (outer ? p3s_next.Abort : p3s_real.Abort)(comm, code);\n",
    )
    # Arguments after the level cannot be passed on; MPI libraries ignore the call altogether.
    for prefix, real in (("MPI", "p3s_next"), ("PMPI", "p3s_real")):
        yield (
            f"P3S_EXPORT int p3s_{prefix}_Pcontrol(const int level, ...)"
            f' P3S_NAME("{prefix}_Pcontrol");\n'
            f"int p3s_{prefix}_Pcontrol(const int level, ...)\n{{\n"
            "    if (!p3s_real.Pcontrol) p3s_late(P3S_RA);\n"
            "    if (p3s_gate(P3S_RA, P3S_FA)) { p3s_pcontrol(level); p3s_self.depth = 0; }\n"
            f"    return {real}.Pcontrol(level);\n}}\n"
        )


def _jobs(declared: dict[str, list[Parameter]]) -> list[tuple[str, str, Wrapper]]:
    """Return (function, op, row) of every wrapper this mpi.h allows, large-count twins too."""
    jobs: list[tuple[str, str, Wrapper]] = []
    for op, row in table.CALLS.items():
        for name in (op, op + "_c"):
            parameters = declared.get("MPI_" + name)
            if parameters is None or "PMPI_" + name not in declared:
                continue
            if len(row.args.split()) == len(parameters):
                jobs.append((name, op, row))
    return jobs


def _guard(name: str, parameters: list[Parameter]) -> str:
    """Return a wrapper that records nothing, around a call inside which MPI may be called."""
    names = [f"a{number}" for number in range(len(parameters))]
    declared = ", ".join(p.named(n) for p, n in zip(parameters, names, strict=True)) or "void"
    return _passing(
        name, "    p3s_nested(fa);\n    p3s_go_in(ra, fa);\n", declared, ", ".join(names)
    )


def _passing(name: str, begin: str, declared: str, plain: str) -> str:
    """Return a wrapper that is no event: it begins with some text, then passes the call on."""
    return _export_function(
        name,
        declared,
        f"    if (!p3s_real.{name}) p3s_late(ra);\n{begin}"
        f"    int rc = (outer ? p3s_next.{name} : p3s_real.{name})({plain});\n"
        "    p3s_self.depth--;\n"
        "    return rc;\n",
    )


def _declare_real(prefix: str, name: str, wrapped: bool) -> str:
    """Return the declaration of a real function, which the linker renames if it is wrapped."""
    real = f"__real_{prefix}_{name}" if wrapped else f"{prefix}_{name}"
    return f'extern const char p3s_linked_{prefix}_{name} __asm__("{real}");'


def generate(header: str) -> tuple[str, str]:
    """Return (p3s_generated.h, wrappers.c) for one preprocessed mpi.h."""
    declared = prototypes(header)
    jobs = _jobs(declared)
    special = ["Init", "Init_thread", "Finalize", "Abort", "Pcontrol"]
    sessions = ["Session_init", "Session_finalize"] if "MPI_Session_init" in declared else []
    special += sessions
    functions = special + [name for name, _, _ in jobs]
    guards = [
        name
        for name in table.GUARDED
        if "MPI_" + name in declared and "PMPI_" + name in declared and name not in functions
    ]
    functions += guards
    wrapped = set(functions)
    functions += [name for name in table.RUNTIME if "PMPI_" + name in declared]
    functions = list(dict.fromkeys(functions))
    ops = ["Init", "Finalize", "Abort", *table.HALVES]
    ops = list(dict.fromkeys(ops + [op for _, op, _ in jobs]))
    include = [
        "/* Generated from signature_runner/tracer/table.py and the mpi.h in use. */",
        "#ifndef P3S_GENERATED_H",
        "#define P3S_GENERATED_H",
        "enum {",
        *(f"    P3S_OP_{op}," for op in ops),
        *(f"    P3S_OP_POSIX_{name}," for name in table.POSIX),
        "    P3S_OP_COUNT",
        "};",
        "extern const char *const p3s_op_names[];",
        "struct p3s_real {",
        *(f"    __typeof__(&PMPI_{name}) {name};" for name in functions),
        "};",
        "extern struct p3s_real p3s_real, p3s_next;",
        "struct p3s_real_name { const char *name; size_t offset; const void *inner, *outer; };",
        "extern const struct p3s_real_name p3s_real_names[];",
        *(f"#define P3S_HAVE_{name} 1" for name in functions),
        *(f"#define PMPI_{name} p3s_real.{name}" for name in functions),
        "#endif",
        "",
    ]
    source = [
        "/* Generated from signature_runner/tracer/table.py and the mpi.h in use. */",
        '#include "p3s_tracer.h"',
        "const char *const p3s_op_names[] = {",
        *(f'    "MPI_{op}",' for op in ops),
        *(f'    "POSIX_{name}",' for name in table.POSIX),
        "};",
        "#ifdef P3S_ARCHIVE",
        *(_declare_real(p, name, name in wrapped) for name in functions for p in ("MPI", "PMPI")),
        "#define P3S_LINKED(name) &p3s_linked_PMPI_##name, &p3s_linked_MPI_##name",
        "#else",
        "#define P3S_LINKED(name) NULL, NULL",
        "#endif",
        "const struct p3s_real_name p3s_real_names[] = {",
        *(
            f'    {{"PMPI_{name}", offsetof(struct p3s_real, {name}), P3S_LINKED({name})}},'
            for name in functions
        ),
        "    {NULL, 0, NULL, NULL}",
        "};",
        *_special(),
        *(_sessions() if sessions else ()),
        *(_wrapper(name, op, row, declared["MPI_" + name]) for name, op, row in jobs),
        *(_guard(name, declared["MPI_" + name]) for name in guards),
    ]
    return "\n".join(include), "\n".join(source)
