"""Rows that ended in a run that hasn't: those of them that no file has yet, for those who only look."""

from collections.abc import Collection, Iterator, Mapping

import orjson

from ondatra_dagster.delivery.queue.settled import SETTLED, SettledRow, read_pack
from ondatra_dagster.store.database import Store

RUNS = "select run_id, files from run order by run_id desc"
ENDED = f"""
select started_at, ended_at, {SETTLED} from settled
where run_id = :run_id and type = :type
    and (file is null or file not in (select value from json_each(:published)))
order by id desc
"""
COUNT = """
select coalesce(sum(count), 0) from settled
where run_id = :run_id and type = :type
    and (file is null or file not in (select value from json_each(:published)))
"""


def files_begun(store: Store) -> dict[str, Mapping[str, int]]:
    """The runs that haven't ended, the newest first: of each type, how many files have got their rows.

    A file with that number or a higher one holds rows that ended later than this look.
    """
    return {str(run_id): orjson.loads(str(files)) for run_id, files in store.rows(RUNS)}


def ended_beside(
    store: Store, run_id: str, kind: str, published: Collection[int]
) -> Iterator[tuple[float, float, SettledRow]]:
    """The rows of a type that aren't in these files, the newest first, each with its batch's times."""
    for started_at, ended_at, *kept in store.each(ENDED, _wanted(run_id, kind, published)):
        for row in reversed(list(read_pack(store, kept))):
            yield float(started_at), float(ended_at), row


def count_beside(store: Store, run_id: str, kind: str, published: Collection[int]) -> int:
    """How many they are."""
    return int(store.rows(COUNT, _wanted(run_id, kind, published))[0][0])


def _wanted(run_id: str, kind: str, published: Collection[int]) -> dict[str, str]:
    return {"run_id": run_id, "type": kind, "published": orjson.dumps(sorted(published)).decode()}
