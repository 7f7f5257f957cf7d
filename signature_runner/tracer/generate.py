"""Turns the table of MPI calls and one preprocessed mpi.h into the C text of the wrappers."""

from __future__ import annotations

import re
from dataclasses import dataclass

from signature_runner.tracer import table

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
    found: dict[str, list[Parameter]] = {}
    for match in _PROTOTYPE.finditer(header):
        depth, at = 1, match.end()
        while depth and at < len(header):
            depth += (header[at] == "(") - (header[at] == ")")
            at += 1
        inside = header[match.end() : at - 1].strip()
        texts = [] if inside in ("", "void") else _split(inside)
        parameters = [_parameter(text, number) for number, text in enumerate(texts)]
        if all(parameter is not None for parameter in parameters):
            found[match[1]] = [parameter for parameter in parameters if parameter is not None]
    return found


def _wrapper(name: str, op: str, row: table.Wrapper, parameters: list[Parameter]) -> str:
    names = row.args.split()
    declared = ", ".join(p.named(n) for p, n in zip(parameters, names, strict=True)) or "void"
    plain = ", ".join(names)
    passed = ", ".join(row.passed.get(name, name) for name in names)
    if not row.traced:
        return (
            f"P3S_EXPORT int MPI_{name}({declared})\n{{\n"
            f"    if (!p3s_real.{name}) p3s_late(P3S_RA);\n"
            f"    {row.before}\n    return PMPI_{name}({plain});\n}}\n"
        )
    lines = [
        f"P3S_EXPORT int MPI_{name}({declared})",
        "{",
        "    struct p3s_here h;",
        f"    if (!p3s_enter(&h, P3S_OP_{op}, P3S_RA, P3S_FA)) return PMPI_{name}({plain});",
        f"    {row.before}" if row.before else "",
        f"    int rc = PMPI_{name}({passed});",
        "    p3s_return(&h);",
        f"    if (rc == MPI_SUCCESS) {{ {row.after} }}",
        f"    {row.always}" if row.always else "",
        "    p3s_leave(&h);",
        "    return rc;",
        "}",
    ]
    return "\n".join(line for line in lines if line) + "\n"


_SPECIAL = """
P3S_EXPORT int MPI_Init(int *argc, char ***argv)
{
    struct p3s_here h;
    int rc;
    if (!p3s_init_enter(&h, P3S_RA, P3S_FA, &rc)) return rc;
    rc = PMPI_Init(argc, argv);
    p3s_init_done(&h, rc);
    return rc;
}

P3S_EXPORT int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    struct p3s_here h;
    int rc;
    if (!p3s_init_enter(&h, P3S_RA, P3S_FA, &rc)) return rc;
    rc = PMPI_Init_thread(argc, argv, required, provided);
    p3s_init_done(&h, rc);
    return rc;
}

P3S_EXPORT int MPI_Finalize(void)
{
    struct p3s_here h;
    if (p3s_enter(&h, P3S_OP_Finalize, P3S_RA, P3S_FA)) {
        p3s_finalize(&h);
        p3s_leave(&h);
    }
    return PMPI_Finalize();
}

/* Not an event: it only leaves the name of the call in the header. */
P3S_EXPORT int MPI_Abort(MPI_Comm comm, int code)
{
    struct p3s_here h;
    if (p3s_enter(&h, P3S_OP_Abort, P3S_RA, P3S_FA)) p3s_aborting(code);
    return PMPI_Abort(comm, code);
}
"""


def _jobs(known: dict[str, list[Parameter]]) -> list[tuple[str, str, table.Wrapper]]:
    """Return (function, op, row) of every wrapper this mpi.h allows, large-count twins too."""
    jobs: list[tuple[str, str, table.Wrapper]] = []
    for op, row in table.CALLS.items():
        for name in (op, op + "_c"):
            parameters = known.get("MPI_" + name)
            if parameters is None or "PMPI_" + name not in known:
                continue
            if len(row.args.split()) == len(parameters):
                jobs.append((name, op, row))
    return jobs


def generate(header: str) -> tuple[str, str]:
    """Return (p3s_generated.h, wrappers.c) for one preprocessed mpi.h."""
    known = prototypes(header)
    jobs = _jobs(known)
    special = ["Init", "Init_thread", "Finalize", "Abort"]
    functions = special + [name for name, _, _ in jobs]
    functions += [name for name in table.RUNTIME if "PMPI_" + name in known]
    functions = list(dict.fromkeys(functions))
    ops = ["Init", "Finalize", "Abort", *table.HALVES]
    ops = list(dict.fromkeys(ops + [op for _, op, _ in jobs]))
    include = [
        "/* Generated from signature_runner/tracer/table.py and the mpi.h in use. */",
        "#ifndef P3S_GENERATED_H",
        "#define P3S_GENERATED_H",
        "enum {",
        *(f"    P3S_OP_{op}," for op in ops),
        "    P3S_OP_COUNT",
        "};",
        "extern const char *const p3s_op_names[];",
        "struct p3s_real {",
        *(f"    __typeof__(&PMPI_{name}) {name};" for name in functions),
        "};",
        "extern struct p3s_real p3s_real;",
        "struct p3s_real_name { const char *name; size_t offset; };",
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
        "};",
        "const struct p3s_real_name p3s_real_names[] = {",
        *(f'    {{"PMPI_{name}", offsetof(struct p3s_real, {name})}},' for name in functions),
        "    {NULL, 0}",
        "};",
        _SPECIAL,
        *(_wrapper(name, op, row, known["MPI_" + name]) for name, op, row in jobs),
    ]
    return "\n".join(include), "\n".join(source)
