"""From base to target: what has to be sent so that the API has what the table has. Pure: no clock, no file.

For each delivery key we know its *base*, what the API last acknowledged, and its *target*, what the table has
now. Folding, retries, replays, dead letters that come back and lost queues are all this one difference.

An *image* is a delivery key's rows at one moment: one row or none for a key that names rows, any number for a
group. When a try got no answer nobody knows whether the API has the base or what was *tried*: then `tried` is
an image too.
"""

import enum
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple, Self

from ondatra_dagster.changes import ChangeType, Layout, content_of


class ImageRow(NamedTuple):
    rowid: int
    layout: int  # which columns the payload has
    payload: str


class SentRow(NamedTuple):
    """One row as it is handed to push."""

    change_type: ChangeType
    row: ImageRow

    @property
    def result_key(self) -> str:
        """The name under which push returns the row's status."""
        return f"{self.row.rowid}:{self.change_type}"


Image = tuple[ImageRow, ...]
NOTHING: Image = ()


def dump_image(image: Image) -> str:
    """The image as text, a line for each row. JSON has no line breaks of its own."""
    return "\n".join([f"{row.rowid} {row.layout} {row.payload}" for row in image])


def load_image(text: str) -> Image:
    if "\n" in text:
        return tuple([_load_row(line) for line in text.split("\n")])
    return (_load_row(text),) if text else NOTHING


def _load_row(line: str) -> ImageRow:
    rowid, layout, payload = line.split(" ", 2)
    return ImageRow(int(rowid), int(layout), payload)


class Shape(enum.Enum):
    """What a delivery key stands for."""

    ROW = "row"  # one row: inserted, updated as a pair of images, deleted
    VERSION = "version"  # the same, being one of several that belong to a key: these go together
    GROUP = "group"  # any number of rows, always replaced as a whole
    MIRROR = "mirror"  # any number of rows, of which the API always gets the present ones and nothing else


class Standing(NamedTuple):
    """What is known of one delivery key."""

    base: Image
    target: Image
    tried: Image | None = None  # None: the base is certain

    @classmethod
    def load(cls, base: str, target: str, tried: str | None) -> Self:
        """Return what a queue keeps of the key, from the texts of its images."""
        return cls(load_image(base), load_image(target), load_tried(tried))


def load_tried(text: str | None) -> Image | None:
    return None if text is None else load_image(text)


def dump_tried(standing: Standing) -> str | None:
    return None if standing.tried is None else dump_image(standing.tried)


def to_send(standing: Standing, shape: Shape, layouts: Mapping[int, Layout]) -> list[SentRow]:
    """The rows that lead from base to target, in their order of going out; none when these are the same.

    A mirror's are those that are there now: of what the API has of it nothing is kept.
    """
    if shape is not Shape.MIRROR and _is_there(standing, layouts):
        return []
    return _SENDERS[shape](standing)


def arrived(standing: Standing, shape: Shape) -> Standing:
    """What is known of the key once all that was sent is acknowledged."""
    return Standing(NOTHING if shape is Shape.MIRROR else standing.target, standing.target)


def weight(standing: Standing, shape: Shape, layouts: Mapping[int, Layout]) -> int:
    """How many rows of a batch the key takes; 0: it is as it should be. An empty mirror is a call, too."""
    return weight_of(to_send(standing, shape, layouts), shape)


def weight_of(sent: Sequence[SentRow], shape: Shape) -> int:
    """The same, where it is known what is to be sent."""
    return max(len(sent), 1) if shape is Shape.MIRROR else len(sent)


def _is_there(standing: Standing, layouts: Mapping[int, Layout]) -> bool:
    return standing.tried is None and is_same(standing.base, standing.target, layouts)


def is_same(left: Image, right: Image, layouts: Mapping[int, Layout]) -> bool:
    """Whether both hold the same rows, in any order and under any rowids."""
    if len(left) != len(right):
        return False
    if {row.layout for row in (*left, *right)} <= {left[0].layout if left else 0}:
        return sorted(row.payload for row in left) == sorted(row.payload for row in right)
    return _is_same_across_layouts(left, right, layouts)


def _is_same_across_layouts(left: Image, right: Image, layouts: Mapping[int, Layout]) -> bool:
    def contents(image: Image) -> Counter[Hashable]:
        return Counter(content_of(layouts[row.layout].row(row.payload)) for row in image)

    return contents(left) == contents(right)


def _send_row(standing: Standing) -> list[SentRow]:
    base, target = standing.base, standing.target
    if not target:
        # what was tried is the newest that the API can have
        return [SentRow(ChangeType.DELETE, row) for row in standing.tried or base]
    if standing.tried == NOTHING and base:
        # nobody knows whether the delete came through, so it goes first again
        return [SentRow(ChangeType.DELETE, base[0]), SentRow(ChangeType.INSERT, target[0])]
    if not base:
        return [SentRow(ChangeType.INSERT, target[0])]
    before = base[0]._replace(rowid=target[0].rowid)
    return [
        SentRow(ChangeType.UPDATE_PREIMAGE, before),
        SentRow(ChangeType.UPDATE_POSTIMAGE, target[0]),
    ]


def _send_group(standing: Standing) -> list[SentRow]:
    gone = standing.base
    if standing.tried and (standing.base or not standing.target):
        # from nothing, an unanswered insert goes out as one again; else all that may be there goes first
        gone = tuple(dict.fromkeys((*standing.base, *standing.tried)))
    return [
        *(SentRow(ChangeType.DELETE, row) for row in gone),
        *(SentRow(ChangeType.INSERT, row) for row in standing.target),
    ]


def _send_mirror(standing: Standing) -> list[SentRow]:
    return [SentRow(ChangeType.INSERT, row) for row in standing.target]


_SENDERS = {
    Shape.ROW: _send_row,
    Shape.VERSION: _send_row,
    Shape.GROUP: _send_group,
    Shape.MIRROR: _send_mirror,
}


class Fate(enum.Enum):
    """What became of one sent row, as far as the base is concerned."""

    DELIVERED = "delivered"
    REFUSED = "refused"  # the API has said no: it has what it had
    FAILED = "failed"  # not taken, and that is certain
    UNANSWERED = "unanswered"  # it may have been taken


def after(standing: Standing, sent: Sequence[SentRow], fates: Mapping[str, Fate], shape: Shape) -> Standing:
    """What is known of the key once each sent row has its fate (by result key); the target stays.

    `standing` is the key as it was when the rows were sent, its target what was sent.
    """
    fate = [(row, fates[row.result_key]) for row in sent]
    return _AFTER[shape](standing, fate)


def in_doubt(standing: Standing, sent: Sequence[SentRow], shape: Shape) -> Standing:
    """What is known of the key when the rows may have been sent, and nobody knows what became of them."""
    return after(standing, sent, {row.result_key: Fate.UNANSWERED for row in sent}, shape)


_COMES_BACK = frozenset({Fate.FAILED, Fate.UNANSWERED})


def _after_row(standing: Standing, fate: Sequence[tuple[SentRow, Fate]]) -> Standing:
    before = standing
    for row, what in fate:
        if row.change_type is ChangeType.UPDATE_PREIMAGE:
            continue  # only tells push what was there before
        image = NOTHING if row.change_type is ChangeType.DELETE else (row.row,)
        if what is Fate.DELIVERED:
            standing = Standing(image, standing.target)
        elif what is Fate.UNANSWERED:
            standing = standing._replace(tried=_may_hold(standing, image))
    if any(row.change_type is ChangeType.UPDATE_PREIMAGE and what in _COMES_BACK for row, what in fate):
        # the pair goes out once more, also when its other half has arrived
        return before._replace(tried=before.target) if standing.base != before.base else standing
    return standing


def _may_hold(standing: Standing, tried: Image) -> Image:
    """What the API may have beside the base after one more try without an answer."""
    if not tried:
        return standing.tried or NOTHING  # what went out before the delete may still be there
    if standing.tried == NOTHING:
        return NOTHING  # the delete before it is still open, and goes first again
    return tried


def _after_group(standing: Standing, fate: Sequence[tuple[SentRow, Fate]]) -> Standing:
    fates = {what for _, what in fate}
    # beside inserts, deletes are context: they tell push what the group had before
    telling = ChangeType.INSERT if standing.target else ChangeType.DELETE
    arrived = [row.row for row, what in fate if what is Fate.DELIVERED and row.change_type is telling]
    if Fate.UNANSWERED in fates or (Fate.FAILED in fates and arrived):
        # a part of it may be there, and of what was tried before: the whole goes out again
        return standing._replace(tried=tuple(dict.fromkeys((*(standing.tried or ()), *standing.target))))
    if not arrived or Fate.FAILED in fates:
        return standing
    kept = [row.row for row, what in fate if what is Fate.REFUSED and row.change_type is ChangeType.DELETE]
    return Standing((*kept, *(arrived if standing.target else ())), standing.target)


def _after_mirror(standing: Standing, fate: Sequence[tuple[SentRow, Fate]]) -> Standing:
    return standing  # the next try sends all that is there then, whatever came of this one


_AFTER = {
    Shape.ROW: _after_row,
    Shape.VERSION: _after_row,
    Shape.GROUP: _after_group,
    Shape.MIRROR: _after_mirror,
}
