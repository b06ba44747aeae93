"""The records of invalid rows: one for each row, even if the queue that knew of the record is lost."""

import shutil

import pytest

from ondatra_dagster.delivery.queue.snapshot_and_restore import is_restoring
from ondatra_dagster.records.file_paths import RecordFileType
from ondatra_dagster.sync.enqueue_step import catch_up_queue
from ondatra_dagster.sync.recovery.queue_reset_by_resync_or_forget import ResyncOptions, forget_sync, resync_queue


class InvalidRowCrash(BaseException):
    """A crash: the process ends here."""


def recorded(harness):
    """Return how many invalid rows each run has recorded, without the runs that recorded none."""
    store, sync_id = harness.tracking, harness.sync.id
    files = {
        run: [file for file in store.list_record_files(sync_id, run) if file[0] is RecordFileType.INVALID]
        for run in store.list_runs(sync_id)
    }
    return [store.count_records(sync_id, run, files[run]) for run in files if files[run]]


def die_twice(harness):
    """Run twice and crash; the second run publishes what the first one noted."""
    harness.api.push_error = InvalidRowCrash()
    for _ in range(2):
        with pytest.raises(InvalidRowCrash):
            harness.run()
    harness.api.push_error = None


def a_killed_run_has_recorded_one(harness):
    harness.contacts.write(a1="Ada")
    harness.run()
    harness.contacts.add_invalid_row("NULL")
    harness.contacts.write(a1="Ann")
    die_twice(harness)
    assert [1] == recorded(harness)
    shutil.rmtree(harness.state / "queue")


def nothing(harness):
    pass


def a_takeover_that_is_cut_off_before_it_sends(harness):
    harness.contacts.read_error = InvalidRowCrash()
    with pytest.raises(InvalidRowCrash):
        harness.run()
    harness.contacts.read_error = None
    with harness.sync.open_queue() as queue:
        assert is_restoring(queue)


def an_intake(harness):
    with harness.sync.open_queue():
        pass  # the file has to exist
    catch_up_queue(harness.sync, harness.build_ports())


def an_intake_whose_queue_is_lost(harness):
    an_intake(harness)
    shutil.rmtree(harness.state / "queue")


def a_resync(harness):
    resync_queue(harness.sync, harness.build_ports(), ResyncOptions())


def a_resync_that_takes_all_for_delivered(harness):
    resync_queue(harness.sync, harness.build_ports(), ResyncOptions(assumes_delivered=True))


def a_resync_by_the_records_alone(harness):
    forget_sync(harness.sync, harness.tracking)
    resync_queue(harness.sync, harness.build_ports(), ResyncOptions())


@pytest.mark.parametrize(
    "meanwhile",
    [
        nothing,
        a_takeover_that_is_cut_off_before_it_sends,
        an_intake,
        an_intake_whose_queue_is_lost,
        a_resync,
        a_resync_that_takes_all_for_delivered,
        a_resync_by_the_records_alone,
    ],
)
def test_an_invalid_row_that_a_killed_run_has_recorded_is_recorded_once(harness, meanwhile):
    """The queue snapshot is older than the record. A second record would look like a second row."""
    a_killed_run_has_recorded_one(harness)
    meanwhile(harness)
    harness.contacts.add_invalid_row("DUPLICATE")
    harness.run()
    assert [1, 1] == recorded(harness)
    harness.contacts.add_invalid_row("NULL")
    harness.run()
    assert [1, 1, 1] == recorded(harness)


def test_invalid_rows_of_another_table_are_other_rows(harness):
    """They may have the same numbers as the invalid rows of the first table."""
    a_killed_run_has_recorded_one(harness)
    harness.contacts.table_id = "another"
    a_resync(harness)
    harness.run()
    assert [1, 1] == recorded(harness)
