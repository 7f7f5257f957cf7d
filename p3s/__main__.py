"""Run the command line: the command ``p3s``, and ``python -m p3s``.

A Ctrl-C while the modules are imported ends the process at once, with the line and the exit code
that it has later: nothing has been started or written yet. So this imports nothing by itself that
the interpreter has not.
"""

from __future__ import annotations

# The functions without the enumerations of `signal`, which take long to import.
import _signal as signals  # type: ignore[import-not-found]
import gc
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import NoReturn

_INTERRUPTED = 130
#: New objects after which Python looks for unreachable cycles of them, of which commands make few:
#: with its own number, 700, a tenth of the time of `p3s model` went into that. Modules alone are
#: more than 100,000 of them.
_BETWEEN_COLLECTIONS = 200_000
_SAID = b"p3s: interrupted; what was finished before is kept\n"


def _leave(_number: int, _frame: FrameType | None) -> NoReturn:
    """End the process without a word from Python."""
    try:
        os.write(2, _SAID)
    finally:
        os._exit(_INTERRUPTED)


def rarely_collect() -> None:
    """Let Python look for unreachable cycles of objects as seldom as commands need."""
    gc.set_threshold(_BETWEEN_COLLECTIONS, *gc.get_threshold()[1:])


def main() -> NoReturn:
    """Run the command line of this process and exit."""
    rarely_collect()
    usual = signals.getsignal(signals.SIGINT)
    heard = usual is signals.default_int_handler  # else it is ignored, as in the background
    if heard:
        signals.signal(signals.SIGINT, _leave)
    from p3s.cli.main import main as run

    code = _INTERRUPTED
    try:
        if heard:
            signals.signal(signals.SIGINT, usual)
        code = run()
        gc.freeze()  # else the interpreter looks at all objects once more, and then ends
        if heard:  # all is said and written: what is left to do is the interpreter's
            signals.signal(signals.SIGINT, lambda _number, _frame: os._exit(code))
    except KeyboardInterrupt:  # before or after the command itself
        os.write(2, _SAID)
    sys.exit(code)


if __name__ == "__main__":
    main()
