"""Rows that were set aside have one record each, also when the queue that knew so is lost."""

import shutil

import pytest

from ondatra_dagster.delivery.queue.takeover import is_taking_over
from ondatra_dagster.sync.forget import forget
from ondatra_dagster.sync.intake import take_in_changes
from ondatra_dagster.sync.resync import Way, resync
from ondatra_dagster.tracking.addresses import BatchType


class Killed(BaseException):
    """The process ends here."""


def recorded(desk):
    """How many rows each run has recorded as set aside, less those without any."""
    store, sync_id = desk.tracking, desk.sync.id
    files = {
        run: [file for file in store.record_files(sync_id, run) if file[0] is BatchType.INVALID]
        for run in store.runs(sync_id)
    }
    return [store.count_records(sync_id, run, files[run]) for run in files if files[run]]


def die_twice(desk):
    """The second run publishes what the first had noted."""
    desk.api.dies = Killed()
    for _ in range(2):
        with pytest.raises(Killed):
            desk.run()
    desk.api.dies = None


def a_killed_run_has_recorded_one(desk):
    desk.contacts.write(a1="Ada")
    desk.run()
    desk.contacts.set_one_aside("NULL")
    desk.contacts.write(a1="Ann")
    die_twice(desk)
    assert [1] == recorded(desk)
    shutil.rmtree(desk.state / "queue")


def nothing(desk):
    pass


def a_takeover_that_is_cut_off_before_it_sends(desk):
    desk.contacts.dies = Killed()
    with pytest.raises(Killed):
        desk.run()
    desk.contacts.dies = None
    with desk.sync.open_queue() as queue:
        assert is_taking_over(queue)


def an_intake(desk):
    with desk.sync.open_queue():
        pass  # there has to be a file
    take_in_changes(desk.sync, desk.ports())


def an_intake_whose_queue_is_lost(desk):
    an_intake(desk)
    shutil.rmtree(desk.state / "queue")


def a_resync(desk):
    resync(desk.sync, desk.ports(), Way())


def a_resync_that_takes_all_for_delivered(desk):
    resync(desk.sync, desk.ports(), Way(assume_delivered=True))


def a_resync_by_the_records_alone(desk):
    forget(desk.sync, desk.tracking)
    resync(desk.sync, desk.ports(), Way())


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
def test_what_a_killed_run_has_recorded_as_set_aside_is_recorded_once(desk, meanwhile):
    """The frontier is older than that; a second record would tell of a second row."""
    a_killed_run_has_recorded_one(desk)
    meanwhile(desk)
    desk.contacts.set_one_aside("DUPLICATE")
    desk.run()
    assert [1, 1] == recorded(desk)
    desk.contacts.set_one_aside("NULL")
    desk.run()
    assert [1, 1, 1] == recorded(desk)


def test_rows_that_are_set_aside_beside_another_table_are_others(desk):
    """They may have the numbers of those before."""
    a_killed_run_has_recorded_one(desk)
    desk.contacts.table_id = "another"
    a_resync(desk)
    desk.run()
    assert [1, 1] == recorded(desk)
