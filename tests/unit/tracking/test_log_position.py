"""How far the sync log has come."""

from ondatra_dagster.tracking.addresses import BatchType
from ondatra_dagster.tracking.log_position import Piece, Position

FIRST, SECOND, THIRD = "20261118T120102Z-aaaaaa", "20261118T120202Z-aaaaaa", "20261118T120302Z-aaaaaa"


def a_piece(run_id: str = FIRST, **fields: object) -> Piece:
    piece = Piece("sync.crm", run_id, BatchType.UPDATED, number=0, group=0, first=0, rows=1, size=1)
    return piece._replace(**fields)


def test_it_has_what_was_taken_and_all_runs_before() -> None:
    """Of the newest run only so much: it may be going on."""
    taken = [a_piece(SECOND, group=group) for group in (0, 1)]
    position = Position().after(taken)
    assert all(map(position.has, [*taken, a_piece(FIRST, number=9)]))
    missing = [
        a_piece(SECOND, group=2),
        a_piece(SECOND, number=1),
        a_piece(SECOND, batch_type=BatchType.DELETED),
        a_piece(THIRD),
        a_piece(FIRST, sync_id="sync.erp"),
    ]
    assert [] == list(filter(position.has, missing))


def test_it_counts_its_commits_and_comes_back_as_it_was_written() -> None:
    """Delta knows a commit by that number."""
    position = Position().after([a_piece()]).after([a_piece(sync_id="sync.erp"), a_piece(SECOND)])
    assert 2 == position.number
    assert position.dump() == Position.load(position.dump()).dump()
    assert all(
        map(Position.load(position.dump()).has, [a_piece(), a_piece(SECOND), a_piece(sync_id="sync.erp")])
    )


def test_what_others_write_into_a_commit_is_no_position() -> None:
    """A model's note, a remark, a number."""
    assert [None] * 4 == [Position.load(text) for text in ("", "gdpr", "7", '{"ondatra": 1}')]
