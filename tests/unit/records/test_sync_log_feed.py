"""The position of the sync log: which records it already contains."""

from ondatra_dagster.records.file_paths import RecordFileType
from ondatra_dagster.records.sync_log_feed import RecordRowGroup, SyncLogPosition

FIRST, SECOND, THIRD = "20261118T120102Z-aaaaaa", "20261118T120202Z-aaaaaa", "20261118T120302Z-aaaaaa"


def a_piece(run_id: str = FIRST, **fields: object) -> RecordRowGroup:
    piece = RecordRowGroup(
        "sync.crm", run_id, RecordFileType.UPDATED, file_number=0, row_group=0, first_row=0, row_count=1, byte_size=1
    )
    return piece._replace(**fields)


def test_a_position_contains_the_read_row_groups_and_all_earlier_runs() -> None:
    """It contains only the read row groups of the newest run, because that run may continue."""
    row_groups = [a_piece(SECOND, row_group=group) for group in (0, 1)]
    position = SyncLogPosition().advance(row_groups)
    assert all(map(position.contains, [*row_groups, a_piece(FIRST, file_number=9)]))
    missing = [
        a_piece(SECOND, row_group=2),
        a_piece(SECOND, file_number=1),
        a_piece(SECOND, batch_type=RecordFileType.DELETED),
        a_piece(THIRD),
        a_piece(FIRST, sync_id="sync.erp"),
    ]
    assert [] == list(filter(position.contains, missing))


def test_a_position_counts_its_commits_and_is_restored_unchanged() -> None:
    """Delta identifies a commit by that number."""
    position = SyncLogPosition().advance([a_piece()]).advance([a_piece(sync_id="sync.erp"), a_piece(SECOND)])
    assert 2 == position.commit_count
    assert position.dump() == SyncLogPosition.load(position.dump()).dump()
    assert all(
        map(SyncLogPosition.load(position.dump()).contains, [a_piece(), a_piece(SECOND), a_piece(sync_id="sync.erp")])
    )


def test_metadata_of_other_commits_is_not_a_position() -> None:
    """It may be a model's metadata, a remark or a number."""
    assert [None] * 4 == [SyncLogPosition.load(text) for text in ("", "gdpr", "7", '{"ondatra": 1}')]
