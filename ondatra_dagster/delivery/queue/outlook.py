"""What a queue would do to the destination if a run sent all that may go now, in rows of the destination.

Of a key, a group, a table or a partition that has rows before and after, as many are updates as there are on
both sides; what is more are creates, what is fewer are deletes. So before + creates - deletes = after.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ondatra_dagster.changes import ChangeType, Json, Layout
from ondatra_dagster.delivery.queue.jobs import dump_jobs
from ondatra_dagster.delivery.queue.removals import contents_of
from ondatra_dagster.delivery.queue.tables import HELD, IDENTIFIER, IMAGE_ROWS, Queue
from ondatra_dagster.delivery.target import Image, Shape, load_image

# what an API works on isn't sent again, whatever became of its rows since
IN_JOBS = "create temp table if not exists in_job (unit integer primary key)"
FORGET_JOBS = "delete from in_job"
IN_JOB = "insert into in_job values (?)"
_GOES = "state in ('pending', 'claimed') and id not in (select unit from in_job)"
_IMAGES = (
    f"select {{part}} as part, {IMAGE_ROWS.format(HELD)} as had, {IMAGE_ROWS.format('target')} as has"
    " from unit"
)
_MOVED = """
select coalesce(sum(max(has - had, 0)), 0), coalesce(sum(min(had, has)), 0),
    coalesce(sum(max(had - has, 0)), 0)
from (
    select sum(had) as had, sum(has) as has
    from ({images} where version <= :watermark and {where}) group by part
)
"""
# new rows stand for old ones of the same table or partition; else each unit is by itself
_BY_PART, _BY_UNIT = _IMAGES.format(part="belongs_to"), _IMAGES.format(part="id")
NEWS = "version > :since"
MIRRORS = f"select key, {IMAGE_ROWS.format('target')} from unit where version <= :watermark and {{where}}"
BEHIND = f"select coalesce(sum(had - has), 0) from ({_BY_UNIT} where version <= :watermark)"
SOME = f"""
select {IDENTIFIER}, {HELD}, target from unit
where version <= :watermark and not is_context and {_GOES} order by phase, id limit :limit
"""


class Moves(NamedTuple):
    """Rows of the destination."""

    creates: int = 0
    updates: int = 0
    deletes: int = 0

    @property
    def total(self) -> int:
        return sum(self)


NO_MOVES = Moves()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Foreseen:
    """What would become of one key."""

    key: str
    change_type: ChangeType
    had: int  # rows
    has: int
    columns: Mapping[str, tuple[Json, Json]]  # of a single row those that change: as it was, as it will be


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What would be sent, and what it would come to."""

    expected: Moves = NO_MOVES
    changed: int = 0  # rows that differ since the last run, sent now or not
    before: int | None = None  # rows at the destination; None: nobody has counted them
    samples: tuple[Foreseen, ...] = ()

    @property
    def after(self) -> int | None:
        if self.before is None:
            return None
        return self.before + self.expected.creates - self.expected.deletes


NOTHING_AHEAD = Outlook()


def outlook(queue: Queue, *, since: int, rows: int | None, samples: int = 20) -> Outlook:
    """What may go now, and what is newer than `since`; `rows` is how many the table has, if that is known."""
    _note_jobs(queue)
    return Outlook(
        expected=_moves(queue, _GOES, since),
        changed=_moves(queue, NEWS, since).total,
        before=_held(queue, rows),
        samples=tuple(_samples(queue, samples)),
    )


def _note_jobs(queue: Queue) -> None:
    queue.store.run(IN_JOBS)
    queue.store.run(FORGET_JOBS)
    queue.store.run_many(IN_JOB, ((unit,) for unit in dump_jobs(queue)))


def _moves(queue: Queue, where: str, since: int) -> Moves:
    span = {"watermark": queue.watermark, "since": since}
    if queue.shape is Shape.MIRROR:
        return _moves_of_mirrors(queue, where, span)
    images = _BY_PART if queue.replaces_rows else _BY_UNIT
    found = queue.store.rows(_MOVED.format(images=images, where=where), span)
    return Moves(*map(int, found[0]))


def _moves_of_mirrors(queue: Queue, where: str, span: Mapping[str, int]) -> Moves:
    """Their bases aren't kept, only how many rows went out."""
    sent = contents_of(queue.store)
    moves = [NO_MOVES]
    for key, has in queue.store.rows(MIRRORS.format(where=where), span):
        had = sent.get(str(key), 0)
        moves.append(Moves(max(has - had, 0), min(had, has), max(had - has, 0)))
    return Moves(*map(sum, zip(*moves, strict=True)))


def _held(queue: Queue, rows: int | None) -> int | None:
    """How many rows the API has: what arrived of mirrors, else the table's, but for what is on its way."""
    if queue.shape is Shape.MIRROR:
        contents = contents_of(queue.store)
        is_known = contents or queue.meta("last_run") is None
        return sum(contents.values()) if is_known else None
    if rows is None:
        return None
    return max(rows + int(queue.store.rows(BEHIND, {"watermark": queue.watermark})[0][0]), 0)


def _samples(queue: Queue, limit: int) -> Iterator[Foreseen]:
    for key, held, target in queue.store.rows(SOME, {"watermark": queue.watermark, "limit": limit}):
        before, after = load_image(str(held)), load_image(str(target))
        yield Foreseen(
            key=str(key),
            change_type=_change_type(before, after),
            had=len(before),
            has=len(after),
            columns=_columns(before, after, queue.layouts) if len(before) <= 1 and len(after) <= 1 else {},
        )


def _change_type(before: Image, after: Image) -> ChangeType:
    if not after:
        return ChangeType.DELETE
    return ChangeType.UPDATE_POSTIMAGE if before else ChangeType.INSERT


def _columns(before: Image, after: Image, layouts: Mapping[int, Layout]) -> dict[str, tuple[Json, Json]]:
    old, new = (layouts[image[0].layout].row(image[0].payload) if image else {} for image in (before, after))
    names = dict.fromkeys((*new, *old))
    return {name: (old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)}
