"""Every kind's rows on their way to an API: what is sent and recorded, what a lost queue goes on from."""

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


# what a change of key a from 1 to 2 comes to at the API, and in the records
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
def test_a_change_goes_out_and_is_recorded_as_the_kind_says(state: Path, kind: str) -> None:
    """A key is its own identifier; rows without one are told apart by their number."""
    desk = KindSyncHarness(state, kind)
    desk.deliver_values(a=[1], b=[5])
    before = desk.delivered_records()
    desk.write(a=[2])
    told = [f"{change} {value}" for change, _, value, _ in desk.run_and_pop_received()]
    assert CHANGED[kind] == told
    new = desk.delivered_records()
    for record in before:
        new.remove(record)
    assert RECORDED[kind] == new
    assert [] == desk.run_and_pop_received()


@pytest.mark.parametrize("kind", QUERIED)
def test_a_first_run_on_an_old_table_sends_what_is_there_now(state: Path, kind: str) -> None:
    """Nobody wants the last year's comings and goings."""
    desk = KindSyncHarness(state, kind)
    desk.write(a=[1], b=[5])
    desk.write(a=[2])
    desk.write(a=[3])
    assert {"insert"} == {change for change, *_ in desk.run_and_pop_received()}
    assert desk.table.expected.rows.total() == len(desk.delivered_records())


@pytest.mark.parametrize("batch_size", [100, 1])
@pytest.mark.parametrize("kind", QUERIED)
def test_a_lost_queue_sends_what_was_left_and_nothing_again(state: Path, kind: str, batch_size: int) -> None:
    """The frontier has what waits; the rest has arrived."""
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
    for each in (desk, whole):
        each.table = desk.table
        each.api.choose_status = lambda row: "ok"
        each.api.pop_received()
    whole.now = desk.now
    expected = whole.run_and_pop_received()
    assert expected
    assert expected == desk.run_and_pop_received()
    assert [] == desk.run_and_pop_received()


@pytest.mark.parametrize("kind", QUERIED)
def test_a_queue_lost_after_a_kill_goes_on_from_the_records(state: Path, kind: str) -> None:
    """What was recorded isn't sent again, nor the deletes that went before it without a record."""
    desk = KindSyncHarness(state, kind, batch_size=1)
    desk.write(a=[1])
    desk.run()
    desk.write(a=[2], b=[5], c=[7])
    desk.api.choose_status = crash_at_value(7)
    for _ in range(2):  # the second one publishes what the first had settled
        with pytest.raises(KindSyncCrash):
            desk.run()
    desk.api.pop_received()
    desk.lose_queue()
    desk.api.choose_status = lambda row: "ok"
    assert [("insert", 7)] == [(change, value) for change, _, value, _ in desk.run_and_pop_received()]


# a row, and what is given in its place: a partition that isn't given stays as it is
GIVE_WAY = {"table": [], "tracked": [], "partition": [2]}


@pytest.mark.parametrize("kind", GIVE_WAY)
def test_what_was_in_flight_at_a_kill_is_removed_though_its_queue_is_lost(state: Path, kind: str) -> None:
    """The frontier has what was handed out, and not the nothing that the table has of it since."""
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
def test_what_arrived_unnoted_before_a_kill_is_removed_though_the_queue_is_lost(
    state: Path, kind: str, *, is_in_frontier: bool
) -> None:
    """A run's first records take up to a minute: whatever it had before it may have arrived."""
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


def test_rows_that_were_replaced_before_a_queue_was_lost_never_come(state: Path) -> None:
    """They wait in the frontier; that what took their places has arrived says that they are no more."""
    desk = KindSyncHarness(state, "table", batch_size=1, hold_reason="paused")
    desk.write(a=[1])
    desk.run()
    desk.hold_reason = None
    desk.write(a=[2], b=[5])
    desk.api.choose_status = crash_at_value(5)
    for _ in range(2):  # the second one publishes what the first had settled
        with pytest.raises(KindSyncCrash):
            desk.run()
    desk.lose_queue()
    desk.api = InMemoryKindApi()
    assert [("insert", 5)] == change_values(desk.run_and_pop_received())


@pytest.mark.parametrize("kind", QUERIED)
def test_a_queue_brought_back_from_a_backup_gives_way_to_what_was_left_since(state: Path, kind: str) -> None:
    """Its bases are those of last week: what it would send was sent."""
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


def test_a_delete_that_was_refused_is_a_dead_letter_again_when_the_queue_is_lost(state: Path) -> None:
    """The rows that took its place were recorded, and so was the refusal."""
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
def test_a_whole_content_goes_out_at_each_change(state: Path, kind: str) -> None:
    """One call with all that is there; deletes are what it doesn't have."""
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


def test_an_emptied_table_goes_out_as_no_rows(state: Path) -> None:
    """Else the API keeps the last ones."""
    desk = KindSyncHarness(state, "table", batch_size=0)
    desk.deliver_values(a=[1])
    desk.write(a=[])
    desk.run()
    assert [[]] == desk.api.received_calls
    desk.api.pop_received()
    assert not desk.run().has_run


@pytest.mark.parametrize("kind", ["table", "partition"])
def test_a_whole_content_that_failed_is_sent_as_it_is_then(state: Path, kind: str) -> None:
    """A retry of yesterday's content would bring back what has gone."""
    desk = KindSyncHarness(state, kind, batch_size=0)
    desk.write(a=[1, 2])
    desk.api.choose_status = lambda row: "error: later" if row[2] == 2 else "ok"
    desk.run()
    desk.api.pop_received()
    assert [] == desk.delivered_records()  # it ends as one
    desk.lose_queue()
    desk.write(a=[3])
    assert [("insert", "a", 3)] == [row[:3] for row in desk.run_and_pop_received()]


@pytest.mark.parametrize("kind", ["table", "partition"])
def test_a_whole_content_that_shrinks_too_much_is_held_back(state: Path, kind: str) -> None:
    """A source that came up empty must not empty the API in one call."""
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
def test_a_changed_definition_keeps_what_waits(state: Path, kind: str) -> None:
    """Elsewhere an edit of the SQL drops the backlog, or sends everything again."""
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
def test_resync_sends_all_rows_in_the_words_of_the_kind(state: Path, kind: str) -> None:
    """A push function knows the changes of its kind and no others."""
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
def test_resync_of_a_mirror_sends_it_whole(state: Path, batch_size: int) -> None:
    """With deletes or without: what isn't in it goes."""
    desk = KindSyncHarness(state, "table", batch_size=0)
    desk.deliver_values(a=[1], b=[5])
    assert 1 == desk.resync(removes=bool(batch_size))
    assert ["insert", "insert"] == [change for change, *_ in desk.run_and_pop_received()]
    assert [] == desk.run_and_pop_received()


@pytest.mark.parametrize("kind", QUERIED)
def test_a_table_made_anew_is_refused_and_resync_goes_by_the_records(state: Path, kind: str) -> None:
    """Keys are the same in both tables; rows without a key are strangers."""
    desk = KindSyncHarness(state, kind)
    desk.deliver_values(a=[1], b=[5])
    desk.make_table("another")
    desk.write(a=[1], c=[7])
    with pytest.raises(ResyncNeededError, match="was made anew"):
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
def test_resync_with_deletes_removes_what_was_sent_and_is_gone(state: Path, kind: str) -> None:
    """A merge never deletes; this is how its destination is cleaned up."""
    desk = KindSyncHarness(state, kind)
    desk.write(a=[1], b=[5])
    desk.run()
    desk.deliver_values(b=[6])
    kept = {key: values for key, values in desk.table.query_values.items() if key != "b"}
    version = desk.table.version
    desk.make_table()
    desk.write(**kept)
    desk.table.expected.version = version
    # without it, nothing is deleted
    desk.resync()
    assert not [change for change, key, *_ in desk.run_and_pop_received() if (change, key) == ("delete", "b")]
    desk.resync(removes=True)
    removed = [row[:3] for row in desk.run_and_pop_received() if row[0] == "delete" and row[1] == "b"]
    assert ([("delete", "b", 5), ("delete", "b", 6)] if kind == "scd2" else [("delete", "b", 6)]) == removed
    desk.resync(removes=True)
    assert not [row for row in desk.run_and_pop_received() if row[1] == "b"]


@pytest.mark.parametrize("kind", ["merge", "tracked", "scd2"])
def test_the_empty_text_is_a_key_like_any_other(state: Path, kind: str) -> None:
    """Its record has to name it, or a resync deletes what the table has."""
    desk = KindSyncHarness(state, kind)
    desk.write(**{"": [1], "a": [2]})
    assert {"", "a"} == {key for _, key, *_ in desk.run_and_pop_received()}
    assert {"", "a"} == {identifier for identifier, *_ in desk.delivered_records()}
    assert 2 == desk.resync(removes=True)
    assert {1, 2} == {
        value for change, _, value, _ in desk.run_and_pop_received() if change != "delete" or kind == "tracked"
    }


def test_a_partition_without_a_name_is_recorded_as_that(state: Path) -> None:
    """Only the content of a whole table has nothing but its rows' numbers to be named by."""
    desk = KindSyncHarness(state, "partition", batch_size=0)
    desk.deliver_values(**{"": [1]})
    assert [("", "mirror", "insert", "succeeded")] == desk.delivered_records()


@pytest.mark.parametrize("kind", QUERIED)
def test_another_api_gets_all_as_new_also_after_its_queue_is_lost(state: Path, kind: str) -> None:
    """What the records tell of the first API says nothing of the second."""
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
def test_a_resync_that_is_cut_off_has_not_happened(state: Path, kind: str) -> None:
    """Half a table as inserts that the API has already would be conflicts by the thousand."""
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


def test_a_table_put_back_is_resynced_by_the_records(state: Path) -> None:
    """What came after the version that it was put back to is with the API, and gone from the table."""
    desk = KindSyncHarness(state, "merge")
    desk.write(a=[1])
    desk.run()
    desk.deliver_values(b=[5])
    desk.make_table()
    desk.write(a=[1])
    with pytest.raises(ResyncNeededError, match="was put back"):
        desk.run()
    desk.resync(removes=True)
    changes = [(change, key) for change, key, *_ in desk.run_and_pop_received()]
    assert [("delete", "b"), ("update_postimage", "a"), ("update_preimage", "a")] == sorted(changes)


def test_a_resync_outlives_its_queue(state: Path) -> None:
    """What was assumed delivered must not go out because a file was lost."""
    desk = KindSyncHarness(state, "merge")
    desk.write(a=[1])
    desk.run()
    desk.write(b=[5])
    desk.resync(assume_delivered=True)
    desk.lose_queue()
    desk.api.pop_received()
    desk.write(c=[7])
    assert [("insert", "c")] == [row[:2] for row in desk.run_and_pop_received()]


def test_what_is_forgotten_asks_for_a_resync_and_its_records_help(state: Path) -> None:
    """The journal and the frontier go, too: of both a queue would be made. The file that is left is empty."""
    desk = KindSyncHarness(state, "merge")
    desk.deliver_values(a=[1])
    (desk.state / "queue" / "sync.things.journal-1").write_text("x")
    forget_sync(desk.sync, desk.tracking)
    assert [desk.sync.queue_file] == list((desk.state / "queue").iterdir())
    left = read_status_of_file(desk.sync.queue_file, now=0)
    assert left == QueueStatus(table_id=None, base_url=None, watermark=-1, invalid_watermark=-1, is_forgotten=True)
    with pytest.raises(ResyncNeededError, match="ondatra resync"):
        desk.run()
    desk.write(b=[5])
    desk.resync()
    changes = [(change, key) for change, key, *_ in desk.run_and_pop_received()]
    assert [("insert", "b"), ("update_postimage", "a"), ("update_preimage", "a")] == sorted(changes)
