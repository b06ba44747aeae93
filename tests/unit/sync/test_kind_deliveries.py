"""The deliveries of every kind: what is sent and recorded, and from what a lost queue continues."""

import shutil
from pathlib import Path

import pytest
from support.syncs.kind_sync_harness import (
    InMemoryKindApi,
    KindSyncCrash,
    KindSyncHarness,
    change_values,
    crash_at_value,
)

from ondatra_dagster.delivery.queue.queue_status import QueueStatus, read_status_of_file
from ondatra_dagster.errors import ResyncNeededError
from ondatra_dagster.project.model import RowLimit
from ondatra_dagster.sync.recovery.queue_reset_by_resync_or_forget import forget_sync

QUERIED = ["table", "append", "merge", "tracked", "scd2", "partition"]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path


def no_rows_of(*keys: str):
    return lambda row: "error: later" if row[1] in keys else "ok"


# what the API and the records get when key a changes from 1 to 2
CHANGED = {
    "table": ["delete 1", "delete 5", "insert 2", "insert 5"],
    "append": ["insert 2"],
    "merge": ["update_preimage 1", "update_postimage 2"],
    "tracked": ["delete 1", "insert 2"],
    "scd2": ["update_preimage 1", "update_postimage 1", "insert 2"],
    "partition": ["delete 1", "insert 2"],
}
RECORDED = {
    "table": [("4", "upsert", "insert", "succeeded"), ("5", "upsert", "insert", "succeeded")],
    "append": [("3", "append", "insert", "succeeded")],
    "merge": [("a", "upsert", "update_postimage", "succeeded")],
    "tracked": [("a", "upsert", "insert", "succeeded")],
    "scd2": [("a", "upsert", "insert", "succeeded"), ("a", "upsert", "update_postimage", "succeeded")],
    "partition": [("3", "upsert", "insert", "succeeded")],
}


@pytest.mark.parametrize("kind", QUERIED)
def test_a_change_is_sent_and_recorded_as_the_kind_requires(state: Path, kind: str) -> None:
    """A key is its own identifier. Rows without a key are identified by their rowid."""
    desk = KindSyncHarness(state, kind)
    desk.deliver_values(a=[1], b=[5])
    before = desk.delivered_records()
    desk.write(a=[2])
    changes = [f"{change} {value}" for change, _, value, _ in desk.run_and_pop_received()]
    assert CHANGED[kind] == changes
    new = desk.delivered_records()
    for record in before:
        new.remove(record)
    assert RECORDED[kind] == new
    assert [] == desk.run_and_pop_received()


@pytest.mark.parametrize("kind", QUERIED)
def test_a_first_run_on_an_old_table_sends_only_its_current_rows(state: Path, kind: str) -> None:
    """Users don't want to send the changes of the last year."""
    desk = KindSyncHarness(state, kind)
    desk.write(a=[1], b=[5])
    desk.write(a=[2])
    desk.write(a=[3])
    assert {"insert"} == {change for change, *_ in desk.run_and_pop_received()}
    assert desk.table.expected_table.rows.total() == len(desk.delivered_records())


@pytest.mark.parametrize("batch_size", [100, 1])
@pytest.mark.parametrize("kind", QUERIED)
def test_a_lost_queue_sends_the_rows_that_were_left_and_none_again(state: Path, kind: str, batch_size: int) -> None:
    """The queue snapshot has the waiting rows. The other rows have arrived."""
    desk = KindSyncHarness(state, kind, batch_size=batch_size)
    desk.write(a=[1], b=[5])
    desk.run()
    desk.api.choose_status = no_rows_of("a")
    desk.write(a=[2], c=[7])
    desk.run()
    whole = KindSyncHarness(state / "whole", kind, batch_size=batch_size)
    shutil.copytree(desk.state / "queue", whole.state / "queue")
    shutil.copytree(desk.state / "tracking", whole.state / "tracking")
    desk.lose_queue()
    for harness in (desk, whole):
        harness.table = desk.table
        harness.api.choose_status = lambda row: "ok"
        harness.api.pop_received()
    whole.now = desk.now
    expected = whole.run_and_pop_received()
    assert expected
    assert expected == desk.run_and_pop_received()
    assert [] == desk.run_and_pop_received()


@pytest.mark.parametrize("kind", QUERIED)
def test_a_queue_that_is_lost_after_a_kill_continues_from_the_records(state: Path, kind: str) -> None:
    """Recorded rows aren't sent again. Neither are the deletes that were sent before them without a record."""
    desk = KindSyncHarness(state, kind, batch_size=1)
    desk.write(a=[1])
    desk.run()
    desk.write(a=[2], b=[5], c=[7])
    desk.api.choose_status = crash_at_value(7)
    for _ in range(2):  # the second run publishes what the first one settled
        with pytest.raises(KindSyncCrash):
            desk.run()
    desk.api.pop_received()
    desk.lose_queue()
    desk.api.choose_status = lambda row: "ok"
    assert [("insert", 7)] == [(change, value) for change, _, value, _ in desk.run_and_pop_received()]


# the rows that replace a row; a partition without new rows stays unchanged
GIVE_WAY = {"table": [], "tracked": [], "partition": [2]}


@pytest.mark.parametrize("kind", GIVE_WAY)
def test_a_row_in_flight_at_a_kill_is_deleted_although_its_queue_is_lost(state: Path, kind: str) -> None:
    """The queue snapshot has the row in flight, but doesn't say that the table no longer has it."""
    desk = KindSyncHarness(state, kind)
    desk.write(a=[1])
    desk.api.choose_status = crash_at_value(1)
    with pytest.raises(KindSyncCrash):
        desk.run()
    desk.hold_reason = "paused"
    desk.write(a=GIVE_WAY[kind])
    desk.run()
    desk.lose_queue()
    desk.hold_reason, desk.api = None, InMemoryKindApi()
    assert ("delete", 1) == change_values(desk.run_and_pop_received())[0]
    desk.write(a=[3])
    assert ("insert", 3) == change_values(desk.run_and_pop_received())[-1]


@pytest.mark.parametrize("is_in_frontier", [True, False])
@pytest.mark.parametrize("kind", GIVE_WAY)
def test_a_row_that_arrived_unrecorded_before_a_kill_is_deleted_from_the_api(
    state: Path, kind: str, *, is_in_frontier: bool
) -> None:
    """The first records of a run take up to a minute. Each row that the run had to send may have arrived."""
    desk = KindSyncHarness(state, kind, batch_size=1)
    desk.deliver_values(z=[9])
    if is_in_frontier:
        desk.api.choose_status = no_rows_of("a", "b")
        desk.write(a=[1], b=[5])
        desk.run()
    else:
        desk.write(a=[1], b=[5])
    desk.api = InMemoryKindApi(crash_at_value(5))
    with pytest.raises(KindSyncCrash):
        desk.run()
    assert ("insert", 1) in change_values(desk.api.pop_received())
    desk.lose_queue()
    desk.api = InMemoryKindApi()
    desk.write(a=GIVE_WAY[kind])
    assert ("delete", 1) in change_values(desk.run_and_pop_received())
    assert [] == desk.run_and_pop_received()


def test_rows_that_were_replaced_before_a_queue_was_lost_are_never_sent(state: Path) -> None:
    """They wait in the queue snapshot. The arrival of the rows that replaced them shows that they are gone."""
    desk = KindSyncHarness(state, "table", batch_size=1, hold_reason="paused")
    desk.write(a=[1])
    desk.run()
    desk.hold_reason = None
    desk.write(a=[2], b=[5])
    desk.api.choose_status = crash_at_value(5)
    for _ in range(2):  # the second run publishes what the first one settled
        with pytest.raises(KindSyncCrash):
            desk.run()
    desk.lose_queue()
    desk.api = InMemoryKindApi()
    assert [("insert", 5)] == change_values(desk.run_and_pop_received())


@pytest.mark.parametrize("kind", QUERIED)
def test_a_queue_restored_from_a_backup_is_replaced_by_the_newer_snapshot(state: Path, kind: str) -> None:
    """The backup's bases are a week old, and the changes that it would send were sent."""
    desk = KindSyncHarness(state, kind)
    desk.write(a=[1], b=[5])
    desk.run()
    shutil.copytree(desk.state / "queue", desk.state / "backup")
    desk.deliver_values(a=[2])
    desk.lose_queue()
    shutil.copytree(desk.state / "backup", desk.state / "queue")
    assert [] == desk.run_and_pop_received()
    desk.write(b=[6])
    keys = {key for _, key, *_ in desk.run_and_pop_received()}
    assert ({"a", "b"} if kind == "table" else {"b"}) == keys


def test_a_rejected_delete_is_a_dead_letter_again_when_the_queue_is_lost(state: Path) -> None:
    """The rows that replaced the deleted row were recorded, and so was the rejection."""
    desk = KindSyncHarness(state, "table", batch_size=1)
    desk.write(a=[1])
    desk.run()
    desk.write(a=[2], b=[5], c=[7])

    def answer(row):
        if row[2] == 7:
            raise KindSyncCrash
        return "reject: locked" if row[0] == "delete" else "ok"

    desk.api.choose_status = answer
    for _ in range(2):
        with pytest.raises(KindSyncCrash):
            desk.run()
    desk.lose_queue()
    desk.api.choose_status = lambda row: "ok"
    desk.api.pop_received()
    summary = desk.run()
    assert [("insert", 7)] == [(change, value) for change, _, value, _ in desk.api.pop_received()]
    assert summary.queue
    assert 1 == summary.queue.dead_units


@pytest.mark.parametrize("kind", ["table", "partition"])
def test_a_mirror_is_sent_whole_at_each_change(state: Path, kind: str) -> None:
    """One call has all current rows. The rows that it doesn't have are the deletes."""
    desk = KindSyncHarness(state, kind, batch_size=0)
    desk.deliver_values(a=[1, 2], b=[5])
    desk.write(a=[2, 3])
    rows = [(change, key, value) for change, key, value, _ in desk.run_and_pop_received()]
    beside = [("insert", "b", 5)] if kind == "table" else []
    assert sorted([("insert", "a", 2), ("insert", "a", 3), *beside]) == sorted(rows)
    assert {"mirror"} == {operation for _, operation, _, _ in desk.delivered_records()}
    named = {identifier for identifier, *_ in desk.delivered_records()}
    assert ({"a", "b"} if kind == "partition" else {str(n) for n in range(1, 9)}) >= named
    assert [] == desk.run_and_pop_received()


def test_an_emptied_table_is_sent_as_no_rows(state: Path) -> None:
    """Otherwise the API would keep the last rows."""
    desk = KindSyncHarness(state, "table", batch_size=0)
    desk.deliver_values(a=[1])
    desk.write(a=[])
    desk.run()
    assert [[]] == desk.api.received_calls
    desk.api.pop_received()
    assert not desk.run().has_run


@pytest.mark.parametrize("kind", ["table", "partition"])
def test_a_mirror_that_failed_is_sent_with_its_current_rows(state: Path, kind: str) -> None:
    """A retry with yesterday's rows would bring back deleted ones."""
    desk = KindSyncHarness(state, kind, batch_size=0)
    desk.write(a=[1, 2])
    desk.api.choose_status = lambda row: "error: later" if row[2] == 2 else "ok"
    desk.run()
    desk.api.pop_received()
    assert [] == desk.delivered_records()  # all its rows have one outcome
    desk.lose_queue()
    desk.write(a=[3])
    assert [("insert", "a", 3)] == [row[:3] for row in desk.run_and_pop_received()]


@pytest.mark.parametrize("kind", ["table", "partition"])
def test_a_mirror_that_shrinks_too_much_is_held_back(state: Path, kind: str) -> None:
    """A source that is empty by mistake must not empty the API in one call."""
    desk = KindSyncHarness(state, kind, batch_size=0, max_deletes=RowLimit(2))
    desk.write(a=[1, 2, 3, 4], b=[5])
    desk.run()
    desk.deliver_values(b=[6])
    desk.write(a=[7])
    assert [] == desk.run_and_pop_received()
    assert {"insert"} == {change for change, *_ in sent_by(desk, allows_deletes=True)}
    assert not desk.run().has_run


def sent_by(harness: KindSyncHarness, *, allows_deletes: bool):
    harness.run(allows_deletes=allows_deletes)
    return harness.api.pop_received()


@pytest.mark.parametrize("kind", QUERIED)
def test_a_changed_definition_keeps_the_waiting_rows(state: Path, kind: str) -> None:
    """In other tools, an edit of the SQL drops the backlog or sends everything again."""
    desk = KindSyncHarness(state, kind)
    desk.write(a=[1], b=[5])
    desk.api.choose_status = no_rows_of("a")
    desk.run()
    desk.api.pop_received()
    desk.api.choose_status = lambda row: "ok"
    desk.definition = "another"
    assert [("insert", "a", 1)] == [row[:3] for row in desk.run_and_pop_received()]
    assert [] == desk.run_and_pop_received()


@pytest.mark.parametrize("kind", QUERIED)
def test_a_resync_sends_all_rows_with_the_change_types_of_the_kind(state: Path, kind: str) -> None:
    """A push function knows the change types of its kind and no others."""
    desk = KindSyncHarness(state, kind)
    desk.deliver_values(a=[1], b=[5])
    assert 2 == desk.resync()
    again = {
        "append": ["insert", "insert"],
        "merge": ["update_postimage", "update_postimage", "update_preimage", "update_preimage"],
        "scd2": ["update_postimage", "update_postimage", "update_preimage", "update_preimage"],
    }
    replaced = ["delete", "delete", "insert", "insert"]
    assert again.get(kind, replaced) == sorted(change for change, *_ in desk.run_and_pop_received())
    assert [] == desk.run_and_pop_received()


@pytest.mark.parametrize("batch_size", [0, 100])
def test_a_resync_of_a_mirror_sends_all_its_rows(state: Path, batch_size: int) -> None:
    """With or without deletes, the API removes the rows that aren't in the mirror."""
    desk = KindSyncHarness(state, "table", batch_size=0)
    desk.deliver_values(a=[1], b=[5])
    assert 1 == desk.resync(removes=bool(batch_size))
    assert ["insert", "insert"] == [change for change, *_ in desk.run_and_pop_received()]
    assert [] == desk.run_and_pop_received()


@pytest.mark.parametrize("kind", QUERIED)
def test_a_recreated_table_is_refused_and_a_resync_uses_the_records(state: Path, kind: str) -> None:
    """Keys are the same in both tables, but rows without a key are unknown."""
    desk = KindSyncHarness(state, kind)
    desk.deliver_values(a=[1], b=[5])
    desk.make_table("another")
    desk.write(a=[1], c=[7])
    with pytest.raises(ResyncNeededError, match="was created again"):
        desk.run()
    desk.resync(removes=True)
    got = [(change, key) for change, key, *_ in desk.run_and_pop_received()]
    gone = [("delete", "b")] if kind in {"merge", "tracked"} else [("delete", "a"), ("delete", "b")]
    if kind == "merge":
        came = [("update_preimage", "a"), ("update_postimage", "a"), ("insert", "c")]
    elif kind == "tracked":
        came = [("delete", "a"), ("insert", "a"), ("insert", "c")]
    else:
        came = [("insert", "a"), ("insert", "c")]
    assert sorted([*gone, *came]) == sorted(got)
    assert [] == desk.run_and_pop_received()


@pytest.mark.parametrize("kind", ["merge", "tracked", "scd2"])
def test_resync_with_deletes_removes_rows_that_were_sent_and_are_gone(state: Path, kind: str) -> None:
    """A merge never deletes. This is how the user cleans up its destination."""
    desk = KindSyncHarness(state, kind)
    desk.write(a=[1], b=[5])
    desk.run()
    desk.deliver_values(b=[6])
    remaining_rows = {key: values for key, values in desk.table.query_values.items() if key != "b"}
    version = desk.table.version
    desk.make_table()
    desk.write(**remaining_rows)
    desk.table.expected_table.version = version
    # without the option, nothing is deleted
    desk.resync()
    assert not [change for change, key, *_ in desk.run_and_pop_received() if (change, key) == ("delete", "b")]
    desk.resync(removes=True)
    removed = [row[:3] for row in desk.run_and_pop_received() if row[0] == "delete" and row[1] == "b"]
    assert ([("delete", "b", 5), ("delete", "b", 6)] if kind == "scd2" else [("delete", "b", 6)]) == removed
    desk.resync(removes=True)
    assert not [row for row in desk.run_and_pop_received() if row[1] == "b"]


@pytest.mark.parametrize("kind", ["merge", "tracked", "scd2"])
def test_the_empty_text_is_a_key_like_any_other(state: Path, kind: str) -> None:
    """Its record must name it. Otherwise a resync would delete a row that the table has."""
    desk = KindSyncHarness(state, kind)
    desk.write(**{"": [1], "a": [2]})
    assert {"", "a"} == {key for _, key, *_ in desk.run_and_pop_received()}
    assert {"", "a"} == {identifier for identifier, *_ in desk.delivered_records()}
    assert 2 == desk.resync(removes=True)
    assert {1, 2} == {
        value for change, _, value, _ in desk.run_and_pop_received() if change != "delete" or kind == "tracked"
    }


def test_a_partition_with_an_empty_name_is_recorded_with_that_name(state: Path) -> None:
    """Only a mirror of a whole table has no name, so its records have the numbers of its rows."""
    desk = KindSyncHarness(state, "partition", batch_size=0)
    desk.deliver_values(**{"": [1]})
    assert [("", "mirror", "insert", "succeeded")] == desk.delivered_records()


@pytest.mark.parametrize("kind", QUERIED)
def test_another_api_gets_all_rows_as_new_even_after_its_queue_is_lost(state: Path, kind: str) -> None:
    """Records of the first API say nothing about the second."""
    desk = KindSyncHarness(state, kind)
    desk.deliver_values(a=[1])
    desk.base_url = "https://other.example.com"
    with pytest.raises(ResyncNeededError, match="now sends to"):
        desk.run()
    for _ in range(2):  # nothing was acknowledged in between
        desk.resync()
        desk.lose_queue()
    assert ["insert"] == [change for change, *_ in desk.run_and_pop_received()]


@pytest.mark.parametrize("kind", QUERIED)
def test_a_resync_that_is_interrupted_has_not_happened(state: Path, kind: str) -> None:
    """Half a table as inserts of rows that the API has already would cause thousands of conflicts."""
    desk = KindSyncHarness(state, kind)
    desk.deliver_values(a=[1], b=[5])
    desk.make_table("another")
    desk.write(a=[1], c=[7])
    segments = desk.table.segments

    def cut_off(after, upto):
        yield from segments(after, upto)
        raise KindSyncCrash

    desk.table.segments = cut_off  # type: ignore[method-assign]
    with pytest.raises(KindSyncCrash):
        desk.resync()
    desk.table.segments = segments  # type: ignore[method-assign]
    with pytest.raises(ResyncNeededError):
        desk.run()
    assert [] == desk.api.pop_received()
    desk.resync()
    expected = {"merge": 3, "tracked": 3}
    assert expected.get(kind, 2) == len(desk.run_and_pop_received())


def test_a_resync_of_a_restored_table_uses_the_records(state: Path) -> None:
    """The API has the rows of the later versions, but the table no longer has them."""
    desk = KindSyncHarness(state, "merge")
    desk.write(a=[1])
    desk.run()
    desk.deliver_values(b=[5])
    desk.make_table()
    desk.write(a=[1])
    with pytest.raises(ResyncNeededError, match="was restored from a backup"):
        desk.run()
    desk.resync(removes=True)
    changes = [(change, key) for change, key, *_ in desk.run_and_pop_received()]
    assert [("delete", "b"), ("update_postimage", "a"), ("update_preimage", "a")] == sorted(changes)


def test_a_resync_survives_the_loss_of_its_queue(state: Path) -> None:
    """Rows that were assumed delivered must not be sent because a file was lost."""
    desk = KindSyncHarness(state, "merge")
    desk.write(a=[1])
    desk.run()
    desk.write(b=[5])
    desk.resync(assume_delivered=True)
    desk.lose_queue()
    desk.api.pop_received()
    desk.write(c=[7])
    assert [("insert", "c")] == [row[:2] for row in desk.run_and_pop_received()]


def test_a_forgotten_sync_requires_a_resync_which_uses_its_records(state: Path) -> None:
    """The journal and the queue snapshot are deleted too, because a queue would be rebuilt from them. The file that is
    left is empty."""
    desk = KindSyncHarness(state, "merge")
    desk.deliver_values(a=[1])
    (desk.state / "queue" / "sync.things.journal-1").write_text("x")
    forget_sync(desk.sync, desk.tracking)
    assert [desk.sync.queue_file] == list((desk.state / "queue").iterdir())
    status = read_status_of_file(desk.sync.queue_file, now=0)
    assert status == QueueStatus(table_id=None, base_url=None, watermark=-1, invalid_watermark=-1, is_forgotten=True)
    with pytest.raises(ResyncNeededError, match="ondatra resync"):
        desk.run()
    desk.write(b=[5])
    desk.resync()
    changes = [(change, key) for change, key, *_ in desk.run_and_pop_received()]
    assert [("insert", "b"), ("update_postimage", "a"), ("update_preimage", "a")] == sorted(changes)
