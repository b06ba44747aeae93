"""A feed that goes on in a clone: versions go on, and what the clone begins with is no change."""

from collections.abc import Iterator

import pytest

from ondatra_dagster.changes import Change, ChangeType, Column, FeedPage, InvalidRow, Layout, Segment
from ondatra_dagster.sync.spliced_feed import SplicedFeed

LAYOUT = Layout((Column("id", "int"),))


class Told:
    """A table that tells which versions it was asked for, a change each."""

    def __init__(self, name: str) -> None:
        self._name = name

    def segments(self, after: int | None, upto: int) -> Iterator[Segment]:
        start = -1 if after is None else after
        versions = [upto] if after is None else range(after + 1, upto + 1)
        changes = [Change(self._name, 1, ChangeType.INSERT, version, "[1]") for version in versions]
        yield Segment(start, upto, [FeedPage(LAYOUT, changes)])

    def invalid(self, after: int, upto: int) -> Iterator[InvalidRow]:
        for version in range(after + 1, upto + 1):
            yield InvalidRow(self._name, "NULL", version, 1, "{}")


FEED = SplicedFeed(before=Told("real"), after=Told("clone"), at=7, invalid_at=3)


@pytest.mark.parametrize(
    ("after", "upto", "expected"),
    [
        (5, 7, [(5, 7, ["real 6", "real 7"])]),
        (5, 9, [(5, 7, ["real 6", "real 7"]), (7, 9, ["clone 8", "clone 9"])]),
        (7, 8, [(7, 8, ["clone 8"])]),
        (None, 6, [(-1, 6, ["real 6"])]),
        (None, 7, [(-1, 7, ["real 7"])]),
        (None, 9, [(-1, 9, ["clone 9"])]),
    ],
)
def test_versions_up_to_the_clone_are_the_original_s(
    after: int | None, upto: int, expected: list[tuple[int, int, list[str]]]
) -> None:
    """The watermark of a sync is one of the original's, and so is what it has seen."""
    found = [
        (segment.after, segment.upto, [f"{each.key} {each.version}" for each in page.changes])
        for segment in FEED.segments(after, upto)
        for page in segment.pages
    ]
    assert expected == found


@pytest.mark.parametrize(
    ("at", "after", "upto", "expected"),
    [
        (3, 1, 4, ["real 2", "real 3", "clone 4"]),
        (3, 3, 4, ["clone 4"]),
        (3, -1, 1, ["real 0", "real 1"]),
        (None, -1, 1, ["clone 0", "clone 1"]),
    ],
)
def test_so_are_those_of_rows_that_were_set_aside(
    at: int | None, after: int, upto: int, expected: list[str]
) -> None:
    """Their table may be the dry run's first."""
    feed = SplicedFeed(before=Told("real"), after=Told("clone"), at=7, invalid_at=at)
    assert expected == [f"{row.key} {row.version}" for row in feed.invalid(after, upto)]
