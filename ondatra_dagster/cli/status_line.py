"""The last line of a terminal, which says what is being done now and changes while it is. Nothing on a pipe.

What it says is its caller's: a function that is asked once a second, and less often where it takes long.
"""

import shutil
import threading
import time
from collections.abc import Callable
from typing import TextIO

from ondatra_dagster.cli.output import cut_text

CLEAR_LINE = "\r\x1b[2K"  # back to the line's begin, and wipe it
REDRAW_SECONDS = 1.0
PAUSE_FACTOR = 20.0  # times as long as a look took, before the next one


class StatusLine:
    """Draws while something is shown; takes itself away for lines that stay."""

    def __init__(self, stream: TextIO, *, every_seconds: float = REDRAW_SECONDS) -> None:
        self._stream = stream
        self._redraw_seconds = every_seconds
        self._is_terminal = stream.isatty()
        self._read_text: Callable[[], str] | None = None
        self._draw_lock = threading.RLock()
        self._change_event = threading.Event()
        self._thread: threading.Thread | None = None

    def show(self, told: Callable[[], str]) -> None:
        """Say this from now on, anew each second."""
        if not self._is_terminal:
            return
        with self._draw_lock:
            self._read_text = told
        if self._thread is None:
            self._thread = threading.Thread(target=self._redraw_forever, name="live-line", daemon=True)
            self._thread.start()
        self._change_event.set()

    def clear(self) -> None:
        """Say nothing more."""
        with self._draw_lock:
            self._read_text = None
            self._wipe()

    def __enter__(self) -> None:
        """While a line is written that stays, nothing is drawn."""
        self._draw_lock.acquire()
        self._wipe()

    def __exit__(self, *_: object) -> None:
        self._draw_lock.release()

    def _redraw_forever(self) -> None:
        while True:
            is_shown = self._read_text is not None
            self._change_event.wait(max(self._redraw_seconds, self._draw() * PAUSE_FACTOR) if is_shown else None)
            self._change_event.clear()

    def _draw(self) -> float:
        """Draw once; how long it took to know what."""
        told = self._read_text
        if told is None:
            return 0.0
        began = time.monotonic()
        try:
            text = told()
        except Exception as error:  # the edge: what it looks at may just be ending, and tells of that itself
            text = f"… ({type(error).__name__})"
        took = time.monotonic() - began
        with self._draw_lock:
            if self._read_text is told:  # else it is over, and was wiped
                columns = shutil.get_terminal_size().columns
                self._stream.write(CLEAR_LINE + cut_text(text, columns - 1))
                self._stream.flush()
        return took

    def _wipe(self) -> None:
        if self._is_terminal:
            self._stream.write(CLEAR_LINE)
            self._stream.flush()
