"""Models for tests of what shows them: none, one phase, three hundred calls, hostile names."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import corpus

from p3s.model.fit import build_model

HOSTILE = [
    "</script><script>alert(1)</script>",
    "\"'><svg onload=alert(1)>",
    "{{ 7*7 }}{% raw %}",
    "\x1b[31mred\x1b]0;title\x07",
    "abc\u202egnp.exe",
    "\ud800lone",
    "a\x00b\nc\rd",
    "\\input{/etc/passwd}",
    "\\end{longtable}\\immediate\\write18{id}",
    "$x^2_3 & 50% #1 {~}",
    '"""\nraise SystemExit(7)\n#',
    "'+__import__('os').system('id')+'",
    "\u00e9\u4e2d\U0001f600",
    "x" * 5000,
    "class",
    "",
    "%s %d {0}",
]


def _one_phase(rec: Any) -> None:
    rec("Bcast", nbytes=80, root=0)
    rec("Sendrecv", peer=(rec.rank + 1) % rec.n, nbytes=8 * (1001 // rec.n))


def _turned(rec: Any) -> None:
    dim = int(rec.n**0.5)
    c0, c1 = divmod(rec.rank, dim)
    for _ in range(2):
        for t in range(dim - 1):
            rows = 25 // dim + ((c1 - t) % dim < 25 % dim)
            size = 40 * rows * (31 // dim + (c0 < 31 % dim))
            rec("Isend", peer=c0 * dim + (c1 + 1) % dim, nbytes=size)
            rec("Irecv", peer=c0 * dim + (c1 - 1) % dim, nbytes=size)
            rec("Waitall", nbytes=2)
        for t in range(4):
            rec("Bcast", nbytes=8 * (100 >> t), root=t)


@cache
def _built(name: str) -> Any:
    programs = {
        "one-phase": (_one_phase, (2, 4, 8)),
        "turned": (_turned, (4, 9, 16, 25)),
        "jacobi2d": (corpus.jacobi2d(97, 61, 3), (2, 4, 6, 9, 12)),
        "ring": (corpus.ring(), (2, 4, 8, 16)),
        "cg": (corpus.cg(), (2, 4, 8, 16)),
        "halo3d": (corpus.halo3d(), (2, 4, 8)),
        "wavefront": (corpus.wavefront(), (4, 6, 9, 16)),
    }
    program, counts = programs[name]
    return build_model([corpus.table(program, n) for n in counts])


def built(name: str) -> dict[str, Any]:
    """Return a fitted model, a copy of one's own."""
    model: dict[str, Any] = copy.deepcopy(_built(name))
    return model


def empty() -> dict[str, Any]:
    """Return a model of a program without a call."""
    model = built("ring")
    model.update(
        items=[],
        sites={},
        next=[],
        first_seen={},
        not_modelled=[],
        unmodelled_ops={},
        shares={v: dict.fromkeys(s, 0.0) for v, s in model["shares"].items()},
    )
    first = model["phases"][0]
    model["phases"] = [{**first, "items": [], "work": {**first["work"], "places": []}}]
    return model


def one_phase() -> dict[str, Any]:
    """Return a model whose calls all lie outside loops."""
    return built("one-phase")


def turned() -> dict[str, Any]:
    """Return a model in which sizes, and roots, change from turn to turn."""
    return built("turned")


def many(calls: int = 300) -> dict[str, Any]:
    """Return a model of one phase with that many calls, no two with the same rule."""
    model = built("jacobi2d")
    k = next(p["phase"] for p in model["phases"] if p["parent"] is not None)
    first = next(i for i in model["phases"][k]["items"] if model["items"][i]["kind"] == "send")
    while len(model["items"]) < calls:
        item = copy.deepcopy(model["items"][first])
        item["site"] = f"copy{len(model['items'])}"
        item["slots"][0]["elements"] = {
            "expr": ["num", len(model["items"]), 1],
            "points": 5,
            "free": 1,
        }
        item["share"] = {"events": 1e-4, "bytes": 1e-4, "time": 1e-4}
        model["sites"][item["site"]] = [f"prog+0x{len(model['items']):x}"]
        model["phases"][k]["items"].append(len(model["items"]))
        model["items"].append(item)
    return model


def hostile(name: str = "jacobi2d") -> dict[str, Any]:
    """Return a model with hostile text wherever a file or program can put a name."""
    model = built(name)
    words = [HOSTILE[k % len(HOSTILE)] for k in range(4 * len(model["items"]) + 100)]
    old = dict(model["sites"])
    model["sites"] = {}
    for i, item in enumerate(model["items"]):
        item["site"] = f"{words[i]}#{i}"
        model["sites"][item["site"]] = [
            words[i + 1],
            f"{words[i + 2]}:{words[i + 3]}:7",
            f"{words[i + 4]}+0x1f",
        ]
        item["op"] = "MPI_" + words[i + 5]
        item["why"] = [words[i + 6]]
        item["notes"] = [words[i + 7]]
    assert old
    for k, phase in enumerate(model["phases"]):
        phase["name"] = words[k + 8]
        phase["trips"] = {"reason": words[k + 3]}
    model["grid"]["considered"] = [[words[9], 1.5]]
    model["next"] = [{"n": 36, "dims": [6, 6], "why": words[k]} for k in range(len(HOSTILE))]
    model["work_unit"] = HOSTILE[3]
    return model


ALL = {
    "empty": empty,
    "one-phase": one_phase,
    "300-calls": many,
    "hostile": hostile,
    "turned": turned,
    "jacobi2d": lambda: built("jacobi2d"),
    "ring": lambda: built("ring"),
    "cg": lambda: built("cg"),
    "halo3d": lambda: built("halo3d"),
    "wavefront": lambda: built("wavefront"),
}
