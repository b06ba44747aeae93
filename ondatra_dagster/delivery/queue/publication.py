"""From settled rows to published files: a file's rows are chosen before it is written, and kept until then.

So a crash between the two writes the same file once more, and the file holds the same rows.
"""

from collections.abc import Iterator
from typing import NamedTuple

import orjson

from ondatra_dagster.delivery.queue.digests import DAMAGED
from ondatra_dagster.delivery.queue.run_counts import forget_counts
from ondatra_dagster.delivery.queue.settled import DELETED, INVALID, SETTLED, UPDATED, SettledRow, read_pack
from ondatra_dagster.delivery.queue.tables import Queue

FILE_ROWS = 50_000  # a file is closed when it has this many

TYPES = orjson.dumps([DELETED, INVALID, UPDATED]).decode()
LEAVES_FRONTIER = "leaves_frontier"  # in the meta

RUNS = "select run_id, about from run order by run_id"
ADD_RUN = "insert into run (run_id, about) values (?, ?)"
READ_FILES = "select files from run where run_id = ?"
WRITE_FILES = "update run set files = ? where run_id = ?"
FORGET_RUN = "delete from run where run_id = ?"
# no damaged word hides rows: they belong to a run that hasn't ended, and to one of three types
STRAYS = """
select count(*) from settled
where run_id not in (select run_id from run) or type not in (select value from json_each(?))
"""
LOOSE = "select type, sum(count), min(ended_at) from settled where run_id = ? and file is null group by type"
LOOSE_BLOBS = "select id, count from settled where run_id = ? and type = ? and file is null order by id"
_DIGEST = "row_digest(run_id, type, count, started_at, ended_at, rows, {file})"
CHOOSE = f"""
update settled
set file = ?1, digest = iif(digest = {_DIGEST.format(file="file")}, {_DIGEST.format(file="?1")}, {DAMAGED})
where run_id = ?2 and type = ?3 and file is null and id <= ?4
"""
CHOSEN = "select distinct type, file from settled where run_id = ? and file is not null order by type, file"
BLOBS = f"""
select started_at, ended_at, {SETTLED} from settled where run_id = ? and type = ? and file = ? order by id
"""
FORGET_BLOBS = "delete from settled where run_id = ? and type = ? and file = ?"


class RunFile(NamedTuple):
    """One file of records: [type].[number].parquet in the folder of its run."""

    run_id: str
    type: str
    number: int


class Loose(NamedTuple):
    """Settled rows of one type that are in no file yet."""

    type: str
    rows: int
    oldest: float


def begin_run(queue: Queue, run_id: str, about: str) -> None:
    """Note that this run may leave records; `about` is what its metadata needs if it never ends."""
    queue.store.run(ADD_RUN, (run_id, about))


def open_runs(queue: Queue) -> dict[str, str]:
    """The runs that haven't ended, oldest first, with what is known about them."""
    return {str(run_id): str(about) for run_id, about in queue.store.rows(RUNS)}


def end_run(queue: Queue, run_id: str) -> None:
    """All that the run left is published."""
    with queue.store.immediate():
        queue.store.run(FORGET_RUN, (run_id,))
        forget_counts(queue, run_id)


def note_frontier(queue: Queue, run_id: str) -> None:
    """The run is about to leave its frontier, which says all that the queue says now."""
    queue.set_meta(LEAVES_FRONTIER, run_id)


def leaves_frontier(queue: Queue) -> str | None:
    """The run that noted this last, as far as the queue knows."""
    return queue.meta(LEAVES_FRONTIER)


def files_begun(queue: Queue, run_id: str) -> dict[str, int]:
    """How many files of each type the run has begun to write."""
    begun: dict[str, int] = orjson.loads(str(queue.store.rows(READ_FILES, (run_id,))[0][0]))
    return begun


def loose(queue: Queue, run_id: str) -> list[Loose]:
    _refuse_strays(queue)
    found = queue.store.rows(LOOSE, (run_id,))
    return [Loose(str(kind), int(rows), float(oldest)) for kind, rows, oldest in found]


def _refuse_strays(queue: Queue) -> None:
    ((strays,),) = queue.store.rows(STRAYS, (TYPES,))
    if strays:
        raise queue.store.damage(f"{strays} packs of settled rows belong to no run or no type")


def choose(queue: Queue, run_id: str, kind: str, *, at_most: int = FILE_ROWS) -> RunFile | None:
    """Give the oldest loose rows of a type their file; None when there are none."""
    with queue.store.immediate():
        last = None
        rows = 0
        for blob, count in queue.store.rows(LOOSE_BLOBS, (run_id, kind)):
            last = blob
            rows += int(count)
            if rows >= at_most:
                break
        if last is None:
            return None
        files = files_begun(queue, run_id)
        number = files.get(kind, 0)
        files[kind] = number + 1
        queue.store.run(WRITE_FILES, (orjson.dumps(files).decode(), run_id))
        queue.store.run(CHOOSE, (number, run_id, kind, last))
        return RunFile(run_id, kind, number)


def chosen(queue: Queue, run_id: str) -> list[RunFile]:
    """The run's files that aren't known to be written."""
    _refuse_strays(queue)
    return [RunFile(run_id, str(kind), int(number)) for kind, number in queue.store.rows(CHOSEN, (run_id,))]


def settled_rows(queue: Queue, file: RunFile) -> Iterator[tuple[float, float, SettledRow]]:
    """A file's rows, each with the time at which its batch began and ended."""
    for started_at, ended_at, *kept in queue.store.each(BLOBS, file):
        for row in read_pack(queue.store, kept):
            yield float(started_at), float(ended_at), row


def published(queue: Queue, file: RunFile) -> None:
    """The file is there, so its rows need not be kept any more."""
    queue.store.run(FORGET_BLOBS, file)
