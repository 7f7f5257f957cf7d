"""Do messages depend on the number of threads? The runs of all numbers beside one model."""

from __future__ import annotations

from dataclasses import dataclass

from p3s.model.compare import compare
from p3s.model.comparison import Summary
from p3s.model.types import Model
from p3s.parameters.derive import summary
from p3s.study import Study
from p3s.threads.settings import at_threads, base_of, threads_in, with_threads


@dataclass(frozen=True)
class ThreadCheck:
    """The messages of a run with other threads beside the model of the fewest.

    name: the setting; equal: whether messages, collectives and weights are all as the model says.
    """

    name: str
    threads: int
    n: int
    equal: bool
    summary: Summary


def check_messages(root: Study, rest: str, model: Model) -> list[ThreadCheck]:
    """Compare the runs of a setting at all numbers of threads with the model of the base's.

    rest: name of the input's own values, "" where there are none.
    """
    from p3s.characterize import load_table

    out = []
    for threads in threads_in(root):
        if threads == base_of(root):
            continue
        at = at_threads(root, rest, threads)
        for n in at.signature_counts():
            report = summary(compare(model, load_table(at.root, n)))
            name = with_threads(rest, threads)
            out.append(ThreadCheck(name, threads, n, report.all_equal, report))
    return out
