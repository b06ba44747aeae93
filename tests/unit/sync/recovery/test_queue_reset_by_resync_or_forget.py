"""The reset of a queue: after its loss, for another table or API, or because the user wants it."""

import shutil

import pytest

from ondatra_dagster.delivery.row_outcome import RowOutcome
from ondatra_dagster.errors import ResyncNeededError
from ondatra_dagster.sync.recovery.queue_reset_by_resync_or_forget import ResyncOptions, resync_queue
from ondatra_dagster.sync.run_summary import GridRow


def test_a_resync_sends_rows_that_the_api_has_as_updates(harness):
    """Most APIs answer an insert of an existing row with a conflict."""
    harness.contacts.write(a1="Ada", a2="")
    harness.api.choose_outcome = lambda row: RowOutcome.parse_status("ok" if row["name"] else "reject: no name")
    harness.run()
    harness.api.pop_received()
    harness.contacts.write(a3="Cyn")
    assert 3 == resync_queue(harness.sync, harness.build_ports(), ResyncOptions())
    harness.run()
    assert [
        ("insert", 2, ""),
        ("insert", 3, "Cyn"),
        ("update_postimage", 1, "Ada"),
        ("update_preimage", 1, "Ada"),
    ] == sorted(harness.api.pop_received())
    assert not harness.run().has_run


def test_a_table_that_was_created_again_is_compared_with_the_records(harness):
    """Its rowids are unknown, but the keys are the same."""
    harness.contacts.write(a1="Ada")
    harness.run()
    harness.api.pop_received()
    harness.contacts.table_id = "another"
    harness.contacts.write(a2="Ben")
    with pytest.raises(ResyncNeededError):
        harness.run()
    resync_queue(harness.sync, harness.build_ports(), ResyncOptions())
    harness.run()
    assert [("insert", 2, "Ben"), ("update_postimage", 1, "Ada"), ("update_preimage", 1, "Ada")] == sorted(
        harness.api.pop_received()
    )


def test_invalid_rows_of_another_table_are_recorded_again(harness):
    """The versions of the new table begin again. The position in the old table would hide its invalid rows."""
    harness.contacts.write(a1="Ada")
    for _ in range(3):
        harness.contacts.add_invalid_row("NULL")
    assert 3 == harness.run().grid.total(GridRow.INVALID)
    resync_queue(harness.sync, harness.build_ports(), ResyncOptions())
    assert 0 == harness.run().grid.total(GridRow.INVALID)
    harness.contacts.table_id = "another"
    harness.contacts.added_invalid_rows.clear()
    harness.contacts.add_invalid_row("NULL")
    resync_queue(harness.sync, harness.build_ports(), ResyncOptions())
    assert 1 == harness.run().grid.total(GridRow.INVALID)
    assert 0 == harness.run().grid.total(GridRow.INVALID)


def test_another_api_gets_all_rows_as_inserts(harness):
    """The new API has acknowledged nothing yet."""
    harness.contacts.write(a1="Ada")
    harness.run()
    harness.api.pop_received()
    harness.base_url = "https://other.example.com"
    resync_queue(harness.sync, harness.build_ports(), ResyncOptions())
    harness.run()
    assert [("insert", 1, "Ada")] == harness.api.pop_received()


def test_rows_assumed_delivered_are_not_sent_but_their_changes_are(harness):
    """When a team moves here from a script, the API has its rows already."""
    harness.contacts.write(a1="Ada")
    assert 0 == resync_queue(harness.sync, harness.build_ports(), ResyncOptions(assumes_delivered=True))
    harness.run()
    assert [] == harness.api.pop_received()
    harness.contacts.write(a1="Ann")
    harness.run()
    assert ["update_preimage", "update_postimage"] == [change for change, _, _ in harness.api.pop_received()]


def test_a_resync_helps_when_queue_and_records_are_gone(harness):
    """The message that refuses to send names this command, so it has to help."""
    harness.contacts.write(a1="Ada")
    harness.run()
    harness.api.pop_received()
    shutil.rmtree(harness.state / "queue")
    shutil.rmtree(harness.state / "tracking")
    resync_queue(harness.sync, harness.build_ports(), ResyncOptions())
    harness.run()
    assert [("insert", 1, "Ada")] == harness.api.pop_received()
