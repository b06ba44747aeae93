"""The damage of single bytes in each of our files: an error names the file, or all data is read as before."""

import sqlite3
from pathlib import Path

import pytest
from support.files.corrupted_files import FILE_WRITERS, ReadResult, corrupt_and_read
from support.syncs.kind_sync_harness import KindSyncHarness

from ondatra_dagster.delivery.acknowledged_to_desired_diff import UnitKind
from ondatra_dagster.delivery.queue.claimed_batches import claim_batch
from ondatra_dagster.delivery.queue.queue_database import open_queue
from ondatra_dagster.errors import StateError
from ondatra_dagster.sync.run_summary import GridRow

OTHER = " is damaged"


@pytest.mark.parametrize("kind", FILE_WRITERS)
def test_no_changed_byte_is_read_as_other_data(kind: str, tmp_path: Path) -> None:
    """Each kind of file is damaged 300 times, with a fixed seed."""
    verdicts = corrupt_and_read(FILE_WRITERS[kind](tmp_path), count=300, seed=17)

    assert ([], []) == (verdicts[ReadResult.OTHER_DATA], verdicts[ReadResult.EXCEPTION])
    assert 300 == sum(map(len, verdicts.values()))


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ("update unit set desired = replace(desired, 'v1', 'v9') where state = 'pending'", "unit .*" + OTHER),
        ("update unit set key = 'c-999' where key = 'c-50'", "unit .*" + OTHER),
        ("update unit set version = 999 where state = 'pending'", "unit .*" + OTHER),
        ("update unit set state = 'pendinx' where key = 'c-50'", "1 of its rows are in no known state"),
        ("update batch set rows = replace(rows, 'v1', 'v9')", "row .* of its table batch" + OTHER),
        ("update settled set rows = cast(replace(rows, 'v1', 'v9') as blob)", "row .* of its table settled" + OTHER),
        ("update meta set value = 0 where name = 'watermark'", "its table meta" + OTHER),
        ("delete from meta where name = 'watermark'", "its table meta" + OTHER),
        ("update layout set columns = replace(columns, 'name', 'mail')", "its table layout" + OTHER),
    ],
)
def test_a_queue_detects_changes_in_what_it_will_send_or_write(change: str, what: str, tmp_path: Path) -> None:
    """In each of these columns, a change would be sent or published, or a run would continue from it."""
    queue = FILE_WRITERS["queue"](tmp_path)
    with sqlite3.connect(queue.path) as connection:
        assert connection.execute(change).rowcount > 0

    with pytest.raises(StateError, match=rf"queue\.sqlite is damaged \({what}\)"):
        queue.read_content()


def test_a_damaged_unit_stays_damaged_when_it_changes(tmp_path: Path) -> None:
    """A later change must not turn the damage into other data."""
    queue = FILE_WRITERS["queue"](tmp_path)
    with sqlite3.connect(queue.path) as connection:
        connection.execute("update unit set acknowledged = '7 1 [7]' where key = 'c-50'")
    with open_queue(queue.path, shape=UnitKind.ROW) as opened:
        opened.store.execute("update unit set is_context = 1")
        with pytest.raises(StateError, match="is damaged"):
            list(iter(lambda: claim_batch(opened, size=1, number=1), None))


def test_an_event_that_changed_in_the_file_is_not_written(tmp_path: Path) -> None:
    """The same holds if its time or its number of events has changed."""
    for change in ("body = cast('{}' as blob)", "received_at = 1", "events = 2"):
        file = FILE_WRITERS["events"](tmp_path / change[:4])
        with sqlite3.connect(file.path) as connection:
            connection.execute(f"update intake set {change} where number = 8")

        with pytest.raises(StateError, match=r"events\.sqlite is damaged \(request 8 is damaged\)"):
            file.read_content()


def test_a_sync_delivers_without_its_history(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is sent because of the history, so its damage stops no delivery."""
    desk = KindSyncHarness(tmp_path, "merge")
    desk.deliver_values(a=[1])
    history = desk.state / "history.sqlite"
    history.write_bytes(b"\xff" * history.stat().st_size)
    desk.write(b=[5])

    summary = desk.run()

    assert 1 == summary.grid.known_total(GridRow.SUCCEEDED)
    assert any("history.sqlite is damaged" in message for message in caplog.messages)


def test_a_sync_without_any_other_file_needs_the_history(tmp_path: Path) -> None:
    """Only the history can distinguish a new sync from one whose queue, snapshot and records are gone."""
    desk = KindSyncHarness(tmp_path, "merge")
    desk.write(a=[1])
    history = desk.state / "history.sqlite"
    history.parent.mkdir(parents=True, exist_ok=True)
    history.write_bytes(b"\xff" * 4096)

    with pytest.raises(StateError, match=r"history\.sqlite is damaged .*; move it away"):
        desk.run()
    assert [] == desk.api.received_calls
