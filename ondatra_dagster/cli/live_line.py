"""The last line of a terminal, which says what is being done now and changes while it is. Nothing on a pipe.

What it says is its caller's: a function that is asked once a second, and less often where it takes long.
"""

import shutil
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TextIO

from ondatra_dagster.cli.width import beginning

BLANK = "\r\x1b[2K"  # back to the line's begin, and wipe it
EVERY_SECONDS = 1.0
REST = 20.0  # times as long as a look took, before the next one


class LiveLine:
    """Draws while something is shown; takes itself away for lines that stay."""

    def __init__(self, stream: TextIO, *, every_seconds: float = EVERY_SECONDS) -> None:
        self._stream = stream
        self._every_seconds = every_seconds
        self._is_live = stream.isatty()
        self._told: Callable[[], str] | None = None
        self._drawing = threading.RLock()
        self._change = threading.Event()
        self._thread: threading.Thread | None = None

    def show(self, told: Callable[[], str]) -> None:
        """Say this from now on, anew each second."""
        if not self._is_live:
            return
        with self._drawing:
            self._told = told
        if self._thread is None:
            self._thread = threading.Thread(target=self._draw_on, name="live-line", daemon=True)
            self._thread.start()
        self._change.set()

    def clear(self) -> None:
        """Say nothing more."""
        with self._drawing:
            self._told = None
            self._wipe()

    def __enter__(self) -> None:
        """While a line is written that stays, nothing is drawn."""
        self._drawing.acquire()
        self._wipe()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._drawing.release()

    def _draw_on(self) -> None:
        while True:
            is_shown = self._told is not None
            self._change.wait(max(self._every_seconds, self._draw() * REST) if is_shown else None)
            self._change.clear()

    def _draw(self) -> float:
        """Draw once; how long it took to know what."""
        told = self._told
        if told is None:
            return 0.0
        began = time.monotonic()
        text = _asked(told)
        took = time.monotonic() - began
        with self._drawing:
            if self._told is told:  # else it is over, and was wiped
                columns = shutil.get_terminal_size().columns
                self._stream.write(BLANK + beginning(text, columns - 1))
                self._stream.flush()
        return took

    def _wipe(self) -> None:
        if self._is_live:
            self._stream.write(BLANK)
            self._stream.flush()


def _asked(told: Callable[[], str]) -> str:
    try:
        return told()
    except Exception as error:  # the edge: what it looks at may just be ending, and tells of that itself
        return f"… ({type(error).__name__})"
