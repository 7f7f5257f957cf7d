"""Reads files of one format that atheris chooses by the lines they reach; see fuzz_files.py.

    python benchmarks/fuzz_guided.py FOLDER FORMAT SECONDS SEED

FOLDER holds files of all formats, and is changed.
"""

from __future__ import annotations

import random
import sys
import tempfile
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))

with atheris.instrument_imports(include=["p3s"], enable_loader_override=False):
    import reading
    from mutations import mutate_bytes
    from outcomes import Outcome

#: Longest input.
MOST_BYTES = 1 << 18


class Bad(Exception):
    """A file was read badly: what it says."""


def main() -> None:
    """Read inputs until the time is over; a bad one ends the process with another code than 0."""
    name, seconds, seed = sys.argv[2:5]
    folder = Path(tempfile.mkdtemp(dir=Path.cwd()))
    (folder / "seeds").mkdir()
    files = reading.Files(Path(sys.argv[1]))
    with atheris.instrument_imports(include=["p3s"], enable_loader_override=False):
        reader = next(one for one in reading.READERS if one.name == name)
        path = files.root / reader.file  # readers import what they need
        whole, expected = path.read_bytes(), reader.read(path)
    (folder / "seeds" / "whole").write_bytes(whole)
    change = reading.MUTATE.get(path.suffix, mutate_bytes)

    def one(data: bytes) -> None:
        trial = files.trial(reader, 1, data, "", whole, expected)  # its digest fits
        if trial.outcome in (Outcome.CRASHED, Outcome.HUNG):
            raise Bad(f"{trial.outcome}: {trial.said}")

    def mutate(data: bytes, most: int, number: int) -> bytes:
        rng = random.Random(number)
        if rng.random() < 0.5:
            try:
                return change(rng, data)[0][:most]
            except Exception:
                pass
        return bytes(atheris.Mutate(data, most))

    words = [f"-max_total_time={seconds}", f"-seed={seed}", f"-max_len={MOST_BYTES}"]
    words += ["-handle_alrm=0", "-rss_limit_mb=0", f"-artifact_prefix={folder}/"]
    atheris.Setup([sys.argv[0], *words, str(folder / "seeds")], one, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
