"""A feed that continues in a clone: versions continue, and the rows with which the clone begins are no change."""

from collections.abc import Iterator

import pytest

from ondatra_dagster.row_changes import ChangeType, Column, FeedPage, FeedSegment, InvalidRow, Layout, RowChange
from ondatra_dagster.sync.whole_table_unit_and_clone_feeds import CloneFeed

LAYOUT = Layout((Column("id", "int"),))


class VersionFeed:
    """A table whose changes show which versions were read, one change for each."""

    def __init__(self, name: str) -> None:
        self._name = name

    def segments(self, after: int | None, upto: int) -> Iterator[FeedSegment]:
        start = -1 if after is None else after
        versions = [upto] if after is None else range(after + 1, upto + 1)
        changes = [RowChange(self._name, 1, ChangeType.INSERT, version, "[1]") for version in versions]
        yield FeedSegment(start, upto, [FeedPage(LAYOUT, changes)])

    def invalid_rows(self, after: int, upto: int) -> Iterator[InvalidRow]:
        for version in range(after + 1, upto + 1):
            yield InvalidRow(self._name, "NULL", version, 1, "{}")


FEED = CloneFeed(
    original_feed=VersionFeed("real"),
    clone_feed=VersionFeed("clone"),
    clone_start_version=7,
    clone_start_invalid_version=3,
)


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
def test_versions_up_to_the_clone_are_those_of_the_original(
    after: int | None, upto: int, expected: list[tuple[int, int, list[str]]]
) -> None:
    """The watermark of a sync is a version of the original, and so are all versions that the sync has seen."""
    pages = [
        (segment.after_version, segment.last_version, [f"{change.key} {change.version}" for change in page.changes])
        for segment in FEED.segments(after, upto)
        for page in segment.pages
    ]
    assert expected == pages


@pytest.mark.parametrize(
    ("at", "after", "upto", "expected"),
    [
        (3, 1, 4, ["real 2", "real 3", "clone 4"]),
        (3, 3, 4, ["clone 4"]),
        (3, -1, 1, ["real 0", "real 1"]),
        (None, -1, 1, ["clone 0", "clone 1"]),
    ],
)
def test_versions_of_invalid_rows_up_to_the_clone_are_those_of_the_original(
    at: int | None, after: int, upto: int, expected: list[str]
) -> None:
    """The table of invalid rows may exist only in the dry run."""
    feed = CloneFeed(
        original_feed=VersionFeed("real"),
        clone_feed=VersionFeed("clone"),
        clone_start_version=7,
        clone_start_invalid_version=at,
    )
    assert expected == [f"{row.key} {row.version}" for row in feed.invalid_rows(after, upto)]
