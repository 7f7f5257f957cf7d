"""What the core asks of threads; what it rests on is imported when it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from p3s.methods.threads.laws import ensure_threads, more_threads
from p3s.pipeline.teams import Laws, OverThreads

if TYPE_CHECKING:
    from p3s.base.progress import Progress
    from p3s.base.settings import Setting
    from p3s.base.study import Study
    from p3s.predict.surface import Surface


def _at(root: Study, setting: Setting, progress: Progress) -> Study:
    from p3s.methods.threads.surface import at_setting

    return at_setting(root, setting, progress)


def _laws(root: Study, progress: Progress, again: bool) -> Laws:
    from p3s.methods.threads import text

    file = ensure_threads(root, None, progress, again=again)
    return Laws(text.render(file, root), text.as_data(file), text.doubts(file))


def _surface(*given: Any, **named: Any) -> Surface:
    from p3s.methods.threads.surface import surface

    return surface(*given, **named)


OVER = OverThreads(more_threads, _at, _laws, _surface)
