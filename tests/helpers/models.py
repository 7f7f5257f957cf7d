"""Models for tests of what shows them: none, one phase, three hundred calls, hostile names."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import corpus

from p3s.laws.expr import num
from p3s.model.holdout import build_model
from p3s.model.law_types import SizeLaw
from p3s.model.reasons import Code, Reason
from p3s.model.types import NO_SHARE, Decision, Item, Model, NextCount, Share

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
def built(name: str) -> Model:
    """Return a fitted model."""
    programs = {
        "one-phase": (_one_phase, (2, 4, 8)),
        "turned": (_turned, (4, 9, 16, 25)),
        "jacobi2d": (corpus.jacobi2d(97, 61, 3), (2, 4, 6, 9, 12)),
        "ring": (corpus.ring(), (2, 4, 8, 16)),
        "cg": (corpus.cg(), (2, 4, 8, 16)),
        "halo3d": (corpus.halo3d(), (2, 4, 8)),
        "wavefront": (corpus.wavefront(), (4, 6, 9, 16)),
        "every-tenth": (corpus.every_tenth(), (2, 3, 5)),
    }
    program, counts = programs[name]
    return build_model([corpus.table(program, n) for n in counts], typed={3})


def empty() -> Model:
    """Return a model of a program without a call."""
    model = built("ring")
    first = model.phases[0]
    return replace(
        model,
        items=(),
        sites={},
        next=(),
        first_seen={},
        not_modelled=(),
        unmodelled_ops={},
        shares=dict.fromkeys(model.shares, NO_SHARE),
        phases=(replace(first, items=(), work=replace(first.work, places=())),),
    )


def one_phase() -> Model:
    """Return a model whose calls all lie outside loops."""
    return built("one-phase")


def turned() -> Model:
    """Return a model in which sizes, and roots, change from turn to turn."""
    return built("turned")


def many(calls: int = 300) -> Model:
    """Return a model of one phase with that many calls, no two with the same rule."""
    model = built("jacobi2d")
    loop = next(p for p in model.phases if p.parent is not None)
    first = next(model.items[i] for i in loop.items if model.items[i].kind == "send")
    added = range(len(model.items), calls)
    items = [copied(first, k) for k in added]
    return replace(
        model,
        items=(*model.items, *items),
        sites={**model.sites, **{f"copy{k}": (f"prog+0x{k:x}",) for k in added}},
        phases=tuple(
            replace(p, items=(*p.items, *added)) if p is loop else p for p in model.phases
        ),
    )


def copied(item: Item, k: int) -> Item:
    """Return a call like another, at a site and with a size of its own."""
    size = SizeLaw(expr=num(k), points=5, free=1)
    slot = replace(item.slots[0], elements=size)
    share = Share(events=1e-4, bytes=1e-4, time=1e-4)
    return replace(item, site=f"copy{k}", slots=(slot, *item.slots[1:]), share=share)


def hostile(name: str = "jacobi2d") -> Model:
    """Return a model with hostile text wherever a file or program can put a name."""
    model = built(name)
    words = [HOSTILE[k % len(HOSTILE)] for k in range(4 * len(model.items) + 100)]
    assert model.sites
    return replace(
        model,
        sites={
            f"{words[i]}#{i}": (
                words[i + 1],
                f"{words[i + 2]}:{words[i + 3]}:7",
                f"{words[i + 4]}+0x1f",
            )
            for i in range(len(model.items))
        },
        items=tuple(
            replace(
                item,
                site=f"{words[i]}#{i}",
                op="MPI_" + words[i + 5],
                why=(Reason(Code.PARAMETER_LAWS, name=words[i + 6]),),
                notes=(Reason(Code.PARAMETER_LAWS, name=words[i + 7]),),
            )
            for i, item in enumerate(model.items)
        ),
        phases=tuple(replace(phase, name=words[k + 8]) for k, phase in enumerate(model.phases)),
        grid=replace(model.grid, considered=((words[9], 1.5),)),
        next=tuple(
            NextCount(36, (6, 6), 1.0, (Decision(words[k], 0.1),)) for k in range(len(HOSTILE))
        ),
        work_unit=HOSTILE[3],
    )


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
