"""Records past their retention: which ones are removed, and what a sync still knows afterwards."""

import shutil
import time
from datetime import UTC, datetime
from pathlib import Path

import orjson
import pytest
from support.spark.plain_sync_log_table import PlainSyncLogTable

from ondatra_dagster.delivery.row_outcome import RowOutcome
from ondatra_dagster.errors import StateError
from ondatra_dagster.operations import record_retention
from ondatra_dagster.operations.maintenance_task_runner import TaskResult
from ondatra_dagster.operations.sync_log_appender import SyncLogAppender
from ondatra_dagster.project.settings.read_settings_and_defaults import read_settings
from ondatra_dagster.records.local_storage import make_temporary_name
from ondatra_dagster.records.record_store import RecordStore
from ondatra_dagster.sync.recovery.delivered_keys_for_resync import store_delivered_keys
from ondatra_dagster.sync.recovery.queue_reset_by_resync_or_forget import ResyncOptions, forget_sync, resync_queue

DAY = 86_400
SYNC = "sync.contacts"


@pytest.fixture
def harness(harness_at_each_location):
    """Return a sync at each location: a bucket must do what a folder does."""
    return harness_at_each_location


def prune(harness, *, days: int | None = 14, is_logged: bool = True, syncs=None) -> TaskResult:
    settings = read_settings(harness.state, {})
    log = SyncLogAppender(settings, harness.tracking)
    if is_logged:
        log.append(PlainSyncLogTable(settings))
    syncs = {SYNC: harness.sync} if syncs is None else syncs
    return record_retention.prune_records(
        harness.tracking, log, syncs, days=days, now=datetime.fromtimestamp(harness.now, UTC)
    )


def a_life(harness) -> None:
    """Run the sync five times, with ten days between the runs."""
    for name in ("Ada", "Ann", "Amy", "Ava", "Abe"):
        harness.contacts.write(a1=name, **({"a2": "Ben"} if name == "Ada" else {}))
        harness.run()
        harness.now += 10 * DAY
    harness.api.pop_received()


def test_runs_past_their_retention_are_removed_with_their_snapshots(harness, tracking_location):
    """The built-in store keeps records for fourteen days."""
    a_life(harness)
    runs = harness.tracking.list_runs(SYNC)
    folders = [f"sync_tracking_datasets/1/{SYNC}/{run_id}" for run_id in runs[:4]]
    size = sum(
        len(tracking_location.read_file(f"{folder}/{name}"))
        for folder in folders
        for name in tracking_location.list_files(folder)
    )
    result = prune(harness)
    assert runs[4:] == harness.tracking.list_runs(SYNC) == harness.tracking.list_snapshot_runs(SYNC)
    assert (4, True) == (result.counts["runs"], result.counts["bytes"] >= size)
    assert "records of 4 runs older than 14 days were removed" in result.message
    assert 0 == prune(harness).counts["runs"]


def test_young_runs_stay_and_without_a_retention_all_runs_stay(harness):
    """The user's own bucket is managed by the user."""
    a_life(harness)
    runs = harness.tracking.list_runs(SYNC)
    assert "for ever" in prune(harness, days=None).message
    assert 0 == prune(harness, days=60).counts["runs"]
    assert 2 == prune(harness, days=35).counts["runs"]
    assert runs[2:] == harness.tracking.list_runs(SYNC)


def test_records_that_are_not_in_the_sync_log_stay(harness):
    """Otherwise there would be no way to know what was sent."""
    a_life(harness)
    assert 0 == prune(harness, is_logged=False).counts["runs"]
    assert 4 == prune(harness).counts["runs"]


def test_files_that_killed_processes_left_half_written_are_removed(harness, tracking_location):
    """They would keep the folders of removed runs, and stay forever in the folders of other runs."""
    a_life(harness)
    runs = harness.tracking.list_runs(SYNC)
    folders = [f"sync_tracking_datasets/1/{SYNC}/{run_id}" for run_id in (runs[0], runs[4])]
    for folder in (*folders, f"queue_snapshots/1/{SYNC}"):
        tracking_location.write_file(f"{folder}/{make_temporary_name('records_updated.0.parquet')}", b"PAR1")
    result = prune(harness)
    assert runs[4:] == harness.tracking.list_runs(SYNC)
    if tracking_location.address.startswith("s3:"):
        return  # where files are sent whole there are no parts, and pruning doesn't look for them
    assert [] == [name for name in tracking_location.list_files() if name.endswith(".part")]
    assert (4, 2) == (result.counts["runs"], result.counts["parts"])
    assert "; removed 2 files that killed processes left incomplete, " in result.message


def test_half_written_files_are_removed_even_if_records_are_kept_forever(harness, tracking_location):
    """They aren't records, and no reader sees them."""
    a_life(harness)
    runs = harness.tracking.list_runs(SYNC)
    tracking_location.write_file(f"queue_snapshots/1/{SYNC}/{make_temporary_name('x')}", b"PAR1")
    parts = 0 if tracking_location.address.startswith("s3:") else 1
    assert parts == prune(harness, days=None).counts["parts"]
    assert runs == harness.tracking.list_runs(SYNC)


def test_a_folder_that_cannot_be_removed_is_reported_in_a_sentence(harness, tracking_location):
    """A user's folder among the records must not end `ondatra maintain` with a traceback."""
    a_life(harness)
    if not tracking_location.address.startswith("/"):
        return  # elsewhere a folder is a part of a name
    oldest = tracking_location.address + f"/sync_tracking_datasets/1/{SYNC}/{harness.tracking.list_runs(SYNC)[0]}"
    Path(oldest, "mine", "too").mkdir(parents=True)
    with pytest.raises(StateError, match=r"mine can't be removed \(Directory not empty\); check who may write"):
        prune(harness)
    # the rest still names its project: another project takes records of a run without metadata into its log
    assert harness.tracking.read_metadata(SYNC, harness.tracking.list_runs(SYNC)[0]) is not None


def test_a_half_written_file_of_a_running_process_stays(harness, tracking_location):
    """It may take long to write a large file."""
    a_life(harness)
    tracking_location.write_file(f"queue_snapshots/1/{SYNC}/{make_temporary_name('x')}", b"PAR1")
    harness.now = time.time() + DAY - 60
    assert 0 == prune(harness).counts["parts"]


def test_the_newest_run_stays_however_old_it_is(harness):
    """A lost queue is rebuilt from it."""
    harness.contacts.write(a1="Ada")
    harness.api.choose_outcome = lambda row: RowOutcome.parse_status("reject: no")
    harness.run()
    harness.now += 1000 * DAY
    assert 0 == prune(harness).counts["runs"]
    shutil.rmtree(harness.state / "queue")
    harness.contacts.write(a1="Ann")
    harness.api.pop_received()
    harness.api.choose_outcome = lambda row: RowOutcome.parse_status("ok")
    harness.run()
    assert [("insert", 1, "Ann")] == harness.api.pop_received()


def test_a_lost_queue_does_not_need_the_records_before_its_snapshot(harness):
    """They were removed, and they aren't read."""
    a_life(harness)
    prune(harness)
    shutil.rmtree(harness.state / "queue")
    harness.contacts.write(a2="Bea")
    harness.run()
    assert [("update_preimage", 2, "Ben"), ("update_postimage", 2, "Bea")] == harness.api.pop_received()


def test_a_resync_still_knows_what_was_sent(harness):
    """Otherwise all rows older than the retention would be sent as new, and be in the API twice."""
    a_life(harness)
    prune(harness)
    harness.contacts.table_id = "another"
    harness.contacts.write(a3="Cyn")
    resync_queue(harness.sync, harness.build_ports(), ResyncOptions())
    harness.run()
    assert {("insert", 3, "Cyn"), ("update_postimage", 1, "Abe"), ("update_postimage", 2, "Ben")} == {
        row for row in harness.api.pop_received() if row[0] != "update_preimage"
    }


def test_a_resync_still_deletes_rows_that_were_sent_long_ago(harness):
    """The deletes have the values that were sent."""
    a_life(harness)
    prune(harness)
    harness.contacts.table_id = "another"
    del harness.contacts.rows[2]
    harness.contacts.feed = [change for change in harness.contacts.feed if change.key != "2"]
    harness.contacts.write(a1="Abe")
    resync_queue(harness.sync, harness.build_ports(), ResyncOptions(deletes_missing_rows=True))
    harness.run()
    assert ("delete", 2, "Ben") in harness.api.pop_received()


def test_the_delivered_keys_grow_with_the_keys_and_not_with_the_runs(harness):
    """The newest row of a key is enough, and a deleted key needs nothing."""
    a_life(harness)
    runs = harness.tracking.list_runs(SYNC)
    store_delivered_keys(harness.sync, harness.tracking, last_run=runs[3])
    ends = harness.tracking.read_delivered_since(SYNC, None, upto=runs[3], with_payload=True)
    names = [(end.identifier, orjson.loads(end.payload)["name"]) for end in ends]
    assert [("1", "Ava"), ("2", "Ben")] == sorted(names)


def test_a_kill_between_the_two_steps_leaves_no_record_twice(harness):
    """The delivered keys are written first, then the runs are removed. The next pruning continues from there."""
    a_life(harness)
    runs = harness.tracking.list_runs(SYNC)
    store_delivered_keys(harness.sync, harness.tracking, last_run=runs[2])
    harness.tracking.remove_run(SYNC, runs[0])
    ends = list(harness.tracking.read_delivered_since(SYNC, None))
    assert sorted([("1", runs[2]), ("2", runs[0]), ("1", runs[3]), ("1", runs[4])]) == sorted(
        (end.identifier, end.run_id) for end in ends
    )
    assert 3 == prune(harness).counts["runs"]
    assert [runs[4]] == list(harness.tracking.list_runs(SYNC))


def test_all_records_of_a_forgotten_sync_stay(harness):
    """The sync requires a resync now, and the records are all that the resync can use."""
    a_life(harness)
    forget_sync(harness.sync, harness.tracking)
    assert 0 == prune(harness).counts["runs"]


def test_a_running_sync_is_skipped_until_the_next_time(harness):
    """The run may be reading the records."""
    a_life(harness)
    with harness.sync.open_queue():
        result = prune(harness)
    assert (0, True) == (result.counts["runs"], SYNC in result.message)


def test_a_sync_that_the_project_no_longer_has_is_pruned_too(harness):
    """Its records are in the sync log."""
    a_life(harness)
    assert 4 == prune(harness, syncs={}).counts["runs"]


def test_runs_of_another_project_in_the_same_place_stay(harness):
    """The other project's `ondatra maintain` removes them."""
    a_life(harness)
    theirs = RecordStore(harness.tracking_location, workspace="theirs")
    log = SyncLogAppender(read_settings(harness.state, {}), theirs)
    now = datetime.fromtimestamp(harness.now, UTC)
    assert 0 == record_retention.prune_records(theirs, log, {}, days=14, now=now).counts["runs"]


@pytest.mark.parametrize("batch_size", [100, 1])
def test_repeated_pruning_loses_no_newest_value_of_a_key(harness, batch_size):
    """The new file of delivered keys is made from the file before it."""
    harness.batch_size = batch_size
    for number in range(8):
        harness.contacts.write(**{f"a{number}": f"new {number}", "a1": f"Ada {number}"})
        harness.run()
        harness.now += 10 * DAY
        prune(harness)
        ends = harness.tracking.read_delivered_since(SYNC, None, with_payload=True)
        newest = {end.identifier: end.payload for end in ends}
        names = {str(key): name for key, (_, name) in harness.contacts.rows.items()}
        assert names == {key: orjson.loads(payload)["name"] for key, payload in newest.items()}
    assert 1 == len(harness.tracking.list_runs(SYNC))


def test_records_of_a_clock_that_was_ahead_are_removed_in_time(harness):
    """The ids of later runs continue from the wrong time. Their metadata says when they began."""
    harness.contacts.write(a1="Ada")
    harness.now += 3650 * DAY
    harness.run()
    harness.now -= 3650 * DAY
    for name in ("Ann", "Amy", "Ava"):
        harness.contacts.write(a1=name)
        harness.run()
        harness.now += 10 * DAY
    runs = harness.tracking.list_runs(SYNC)
    assert 2 == prune(harness, days=25).counts["runs"]
    assert 1 == prune(harness).counts["runs"]
    assert runs[3:] == harness.tracking.list_runs(SYNC)


def test_a_clock_that_is_behind_makes_no_record_older(harness):
    """Records of the right clock are in the future then."""
    a_life(harness)
    harness.now -= 3650 * DAY
    assert 0 == prune(harness).counts["runs"]
