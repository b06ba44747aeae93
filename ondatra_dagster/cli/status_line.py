"""The status line: the last line of a terminal, which shows the current activity. A pipe gets no status line.

The caller passes a function that returns the text. The function is called once a second, and less often if it is slow.
"""

import shutil
import threading
import time
from collections.abc import Callable
from typing import TextIO

from ondatra_dagster.cli.output import cut_text

CLEAR_LINE = "\r\x1b[2K"  # moves to the start of the line and clears the line
REDRAW_SECONDS = 1.0
PAUSE_FACTOR = 20.0  # the pause before the next call, as a multiple of the last call's duration


class StatusLine:
    """A status line that is redrawn while it has a text. Other lines are printed inside its `with` block."""

    def __init__(self, stream: TextIO, *, every_seconds: float = REDRAW_SECONDS) -> None:
        self._stream = stream
        self._redraw_seconds = every_seconds
        self._is_terminal = stream.isatty()
        self._read_text: Callable[[], str] | None = None
        self._draw_lock = threading.RLock()
        self._change_event = threading.Event()
        self._thread: threading.Thread | None = None

    def show(self, build_text: Callable[[], str]) -> None:
        """Show the text that `build_text` returns, and update it every second."""
        if not self._is_terminal:
            return
        with self._draw_lock:
            self._read_text = build_text
        if self._thread is None:
            self._thread = threading.Thread(target=self._redraw_forever, name="live-line", daemon=True)
            self._thread.start()
        self._change_event.set()

    def clear(self) -> None:
        """Stop showing a text, and remove the line."""
        with self._draw_lock:
            self._read_text = None
            self._wipe()

    def __enter__(self) -> None:
        """Remove the line. Nothing draws it until the `with` block ends."""
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
        """Draw the line once. Return the seconds that the function for the text took."""
        read_text = self._read_text
        if read_text is None:
            return 0.0
        started_at = time.monotonic()
        try:
            text = read_text()
        except Exception as error:  # the outermost handler: a step that is just ending reports its own errors
            text = f"… ({type(error).__name__})"
        seconds = time.monotonic() - started_at
        with self._draw_lock:
            if self._read_text is read_text:  # if not, the text was replaced or cleared meanwhile
                columns = shutil.get_terminal_size().columns
                self._stream.write(CLEAR_LINE + cut_text(text, columns - 1))
                self._stream.flush()
        return seconds

    def _wipe(self) -> None:
        if self._is_terminal:
            self._stream.write(CLEAR_LINE)
            self._stream.flush()
