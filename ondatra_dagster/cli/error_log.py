"""Where the trace of an error goes that nobody foresaw: the screen gets a sentence."""

import tempfile
from pathlib import Path
from typing import IO

from ondatra_dagster.store.private_folder import make_private, open_private


def open_error_log(here: Path) -> IO[str]:
    """The log of the project that `here` is in; where it has none yet, a file that only its owner reads."""
    state = next((at for above in (here, *here.parents) if (at := above / ".ondatra").is_dir()), None)
    if state is None:
        return tempfile.NamedTemporaryFile(
            "w", prefix="ondatra-", suffix=".log", delete=False, encoding="utf-8"
        )
    make_private(state / "logs")
    return open_private(state / "logs" / "errors.log", "a", "utf-8")
