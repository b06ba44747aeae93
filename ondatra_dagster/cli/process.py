"""The process of a command: a thread runs the command, and the main thread waits for it and for signals.

So Dagster, which installs handlers in a main thread only, leaves ours alone, and nothing raises within py4j.
"""

import contextlib
import os
import queue
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

from ondatra_dagster import interruption

INTERRUPTED = "interrupted; run it again to go on from here"
FAILED = 1


def main() -> None:
    """Run the command `ondatra`; Ctrl-C while it is loaded is noted, too."""
    with interruption.noting_signals():
        from ondatra_dagster.cli.main import main as run

        run()


def run_process(command: Callable[[], int]) -> NoReturn:
    """End the process with the command's exit code; with 130 or 143 after Ctrl-C or SIGTERM."""
    from ondatra_dagster.cli.streams import keep_streams_open

    keep_streams_open()
    ends: queue.SimpleQueue[int | None] = queue.SimpleQueue()  # None: a signal was received
    with interruption.noting_signals(), interruption.on_interruption(lambda: ends.put(None)):
        threading.Thread(target=_run, args=(command, ends), name="command", daemon=True).start()
        code = ends.get()
        if code is None:  # mostly there is nothing to put in order, and the command isn't waited for
            with contextlib.suppress(queue.Empty):
                code = ends.get(timeout=interruption.grace_seconds())
        if interruption.received() is None:
            sys.exit(code)
        _end_interrupted()


def _run(command: Callable[[], int], ends: "queue.SimpleQueue[int | None]") -> None:
    code = FAILED
    try:
        code = command()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else FAILED
    finally:
        ends.put(code)


def _end_interrupted() -> NoReturn:
    """Say so, and end at once: threads may still wait for an API, and Python would wait for some of them."""
    from ondatra_dagster.cli.output import say

    say(INTERRUPTED)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(interruption.exit_code())


if __name__ == "__main__":
    main()
