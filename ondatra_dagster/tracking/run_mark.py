"""The mark of a sync's newest run: a file by which state folders that share a store see each other."""

import dataclasses
from datetime import datetime

import orjson


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunMark:
    """What a run says of itself: at its begin, every few seconds while it goes on, and at its end."""

    run_id: str
    state_id: str
    seen_at: datetime
    has_ended: bool = False


def dump_mark(mark: RunMark) -> bytes:
    """Return the text of the file."""
    return orjson.dumps(mark, option=orjson.OPT_APPEND_NEWLINE)


def load_mark(text: bytes) -> RunMark:
    """Return the mark that dump_mark() wrote; raises ValueError, KeyError or TypeError for anything else."""
    fields = orjson.loads(text)
    return RunMark(
        run_id=str(fields["run_id"]),
        state_id=str(fields["state_id"]),
        seen_at=datetime.fromisoformat(fields["seen_at"]),
        has_ended=bool(fields["has_ended"]),
    )
