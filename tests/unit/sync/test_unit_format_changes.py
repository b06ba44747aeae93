"""The units that are in the queue when batch_size, kind or key changes: none is sent in another format."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.syncs.kind_sync_harness import InMemoryKindApi, KindSyncHarness

from ondatra_dagster.delivery.queue.queue_status import read_status_of_file
from ondatra_dagster.errors import ResyncNeededError
from ondatra_dagster.sync.dead_letter_listing import list_dead_letters
from ondatra_dagster.sync.recovery.unit_shape_check import refuse_other_format


def sends_whole(harness: KindSyncHarness) -> None:
    harness.batch_size = 0


def sends_rows(harness: KindSyncHarness) -> None:
    harness.batch_size = 100


def becomes_tracked(harness: KindSyncHarness) -> None:
    harness.kind = "tracked"


def gets_another_key(harness: KindSyncHarness) -> None:
    harness.key = ("id", "part")


def gets_a_wider_key(harness: KindSyncHarness) -> None:
    harness.table.change_column_type("id", "timestamp_ntz")


WIDER = "has a key written as timestamp_ntz now, but 2 keys in its queue entered it with a key written as string"
CHANGES = [
    ("merge", 100, gets_a_wider_key, WIDER),
    ("tracked", 100, gets_a_wider_key, WIDER),
    ("scd2", 100, gets_a_wider_key, WIDER),
    ("table", 100, sends_whole, "has batch_size 0 now, but 2 keys in its queue entered it with batch_size 100"),
    ("table", 0, sends_rows, "has batch_size 100 now, but 1 key in its queue entered it with batch_size 0"),
    ("merge", 100, becomes_tracked, "has kind tracked now, but 2 keys in its queue entered it with kind merge"),
    ("scd2", 100, gets_another_key, "has the key id, part now, but 2 keys in its queue entered it with the key id"),
    ("merge", 100, gets_another_key, "has the key id, part now, but 2 keys in its queue entered it with the key id"),
]
Change = Callable[[KindSyncHarness], None]


def a_desk_that_waits(state: Path, kind: str, batch_size: int, *, answer: str = "error: later") -> KindSyncHarness:
    """Return a sync with two rows in its queue that didn't arrive."""
    desk = KindSyncHarness(state, kind, batch_size=batch_size)
    desk.api.choose_status = lambda row: answer
    desk.write(a=[1], b=[5])
    desk.run()
    desk.api.pop_received()
    desk.api.choose_status = lambda row: "ok"
    return desk


@pytest.mark.parametrize("is_lost", [False, True])
@pytest.mark.parametrize(("kind", "batch_size", "change", "told"), CHANGES)
def test_units_of_another_format_are_not_sent_and_none_are_added(
    tmp_path: Path, kind: str, batch_size: int, change: Change, told: str, *, is_lost: bool
) -> None:
    """Otherwise a row could be in a mirror's call, or a newer change could miss its key. The user could fix neither."""
    desk = a_desk_that_waits(tmp_path, kind, batch_size)
    desk.write(c=[7])
    before = desk.batch_size, desk.kind, desk.key, desk.table.columns
    change(desk)
    if is_lost:
        shutil.rmtree(desk.state / "queue")
    for _ in range(2):
        with pytest.raises(ResyncNeededError) as refused:
            desk.run()
        assert told in str(refused.value)
        assert "restore that until none is left, or run `ondatra resync" in str(refused.value)
    assert [] == desk.api.pop_received()
    desk.batch_size, desk.kind, desk.key, desk.table.columns = before
    desk.run()
    assert [1, 5, 7] == sorted(value for _, _, value, _ in desk.api.pop_received())


@pytest.mark.parametrize(("kind", "batch_size", "change", "told"), CHANGES)
def test_a_resync_is_the_solution_and_uses_the_new_format(
    tmp_path: Path, kind: str, batch_size: int, change: Change, told: str
) -> None:
    """The error message names it."""
    desk = a_desk_that_waits(tmp_path, kind, batch_size)
    change(desk)
    desk.resync()
    assert [("insert", 1), ("insert", 5)] == sorted(
        (change_type, value) for change_type, _, value, _ in desk.run_and_pop_received()
    )
    state = read_status_of_file(desk.sync.queue_file, now=desk.now)
    assert (0, 0) == (state.depth, state.dead_units)
    assert [] == desk.run_and_pop_received()


@pytest.mark.parametrize(("kind", "batch_size", "change", "told"), CHANGES)
def test_with_nothing_left_in_the_queue_the_new_format_is_accepted(
    tmp_path: Path, kind: str, batch_size: int, change: Change, told: str
) -> None:
    """Everything has arrived. The API has the table, whatever keys its rows have."""
    desk = KindSyncHarness(tmp_path, kind, batch_size=batch_size)
    desk.deliver_values(a=[1], b=[5])
    change(desk)
    assert [] == desk.run_and_pop_received()
    desk.api.choose_status = lambda row: "error: later"
    desk.write(b=[6])
    desk.run()
    desk.api.pop_received()
    shutil.rmtree(desk.state / "queue")
    desk.api.choose_status = lambda row: "ok"
    assert 6 in {value for _, _, value, _ in desk.run_and_pop_received()}


@pytest.mark.parametrize(
    ("kind", "change", "told"),
    [
        ("merge", becomes_tracked, "kind tracked now, .* changed while it had kind merge"),
        ("tracked", gets_another_key, "the key id, part now, .* changed while it had the key id"),
    ],
)
def test_rows_that_changed_before_they_became_groups_are_not_sent_as_groups(
    tmp_path: Path, kind: str, change: Change, told: str
) -> None:
    """They may be one line of an invoice that has three, and push() would take it for the whole invoice."""
    desk = KindSyncHarness(tmp_path, kind)
    desk.deliver_values(a=[1], b=[5])
    desk.write(a=[2])
    desk.old_definition_upto = desk.table.version
    change(desk)
    for _ in range(2):
        with pytest.raises(ResyncNeededError, match=told):
            desk.run()
    assert [] == desk.api.pop_received()
    desk.resync()
    assert {2, 5} <= {value for _, _, value, _ in desk.run_and_pop_received()}


def test_rows_that_changed_before_their_key_did_are_sent_under_the_new_key(tmp_path: Path) -> None:
    """A row is whole, whatever its key is."""
    desk = KindSyncHarness(tmp_path, "merge")
    desk.deliver_values(a=[1], b=[5])
    desk.write(a=[2])
    desk.old_definition_upto = desk.table.version
    gets_another_key(desk)
    assert 2 in {value for _, _, value, _ in desk.run_and_pop_received()}


def test_dead_letters_are_units_too(tmp_path: Path) -> None:
    """A replay would send them in the wrong format. If they were deleted silently, they would be lost."""
    desk = a_desk_that_waits(tmp_path, "table", 100, answer="reject: no")
    sends_whole(desk)
    with pytest.raises(ResyncNeededError, match=r"2 keys in its queue \(2 dead letters among them\) entered it with"):
        desk.run()
    with desk.sync.open_queue() as queue, pytest.raises(ResyncNeededError, match="2 dead letters"):
        refuse_other_format(queue, desk.sync)
    assert ["insert", "insert"] == [
        change for dead_letter in list_dead_letters(desk.sync) for change, _ in dead_letter.rows_to_send
    ]


def test_another_batch_size_is_not_another_format(tmp_path: Path) -> None:
    """Neither are capitals in the name of a key column."""
    desk = a_desk_that_waits(tmp_path, "merge", 100)
    desk.batch_size, desk.key = 1, ("ID",)
    assert 2 == len(desk.run_and_pop_received())


@pytest.mark.parametrize(
    ("before", "after"), [("int", "bigint"), ("decimal(10,2)", "decimal(12,2)"), ("decimal(4,0)", "decimal(5)")]
)
def test_a_type_that_writes_its_values_in_the_same_way_is_no_other_format(
    tmp_path: Path, before: str, after: str
) -> None:
    """1 is written as 1 in each of these types, but 1.00 and 1.0000 are two keys."""
    desk = KindSyncHarness(tmp_path, "merge")
    desk.table.change_column_type("id", before)
    desk.api.choose_status = lambda row: "error: later"
    desk.write(a=[1])
    desk.run()
    desk.table.change_column_type("id", after)
    desk.api = InMemoryKindApi()
    assert 1 == len(desk.run_and_pop_received())


@pytest.mark.parametrize("change", [gets_another_key, gets_a_wider_key])
def test_rows_that_the_api_has_are_sent_as_updates_under_another_key(tmp_path: Path, change: Change) -> None:
    """The records have other keys for them, but a row keeps its rowid."""
    desk = KindSyncHarness(tmp_path, "merge")
    desk.deliver_values(a=[1], b=[5])
    desk.api.choose_status = lambda row: "error: later"
    desk.write(c=[7])
    desk.run()
    desk.api.pop_received()
    change(desk)
    desk.api.choose_status = lambda row: "ok"
    desk.table.rename_keys(a="a-p", b="b-p", c="c-p")
    desk.resync()
    assert [("insert", 7), ("update_postimage", 1), ("update_postimage", 5)] == sorted(
        (change, value) for change, _, value, _ in desk.run_and_pop_received() if change != "update_preimage"
    )


def test_records_under_another_key_delete_nothing(tmp_path: Path) -> None:
    """A key that is different in the records isn't gone."""
    desk = KindSyncHarness(tmp_path, "merge")
    desk.deliver_values(a=[1], b=[5])
    gets_another_key(desk)
    desk.run()
    desk.table.rename_keys(a="a-p", b="b-p")
    desk.resync(removes=True)
    assert {"update_preimage", "update_postimage"} == {change for change, *_ in desk.run_and_pop_received()}
