"""Beginning anew: after a lost queue, another table, another API, or because the user wants it."""

import shutil

import pytest

from ondatra_dagster.delivery.row_outcome import RowOutcome
from ondatra_dagster.errors import ResyncNeededError
from ondatra_dagster.sync.recovery.queue_reset_by_resync_or_forget import ResyncOptions, resync_queue
from ondatra_dagster.sync.run_summary import GridRow


def test_all_rows_go_again_as_updates_where_the_api_has_them(harness):
    """An insert of what is there is a conflict for most APIs."""
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


def test_a_table_that_was_made_anew_is_compared_through_the_records(harness):
    """Its rowids are strangers, but the keys are the same."""
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


def test_rows_set_aside_beside_another_table_are_recorded_anew(harness):
    """Its versions begin again: those of the old one's would hide them."""
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


def test_another_api_gets_everything_as_new(harness):
    """Nobody has acknowledged anything there."""
    harness.contacts.write(a1="Ada")
    harness.run()
    harness.api.pop_received()
    harness.base_url = "https://other.example.com"
    resync_queue(harness.sync, harness.build_ports(), ResyncOptions())
    harness.run()
    assert [("insert", 1, "Ada")] == harness.api.pop_received()


def test_what_is_assumed_delivered_is_not_sent_and_its_changes_are(harness):
    """A team that moves here from a script has its rows in the API already."""
    harness.contacts.write(a1="Ada")
    assert 0 == resync_queue(harness.sync, harness.build_ports(), ResyncOptions(assumes_delivered=True))
    harness.run()
    assert [] == harness.api.pop_received()
    harness.contacts.write(a1="Ann")
    harness.run()
    assert ["update_preimage", "update_postimage"] == [change for change, _, _ in harness.api.pop_received()]


def test_it_is_the_way_on_when_queue_and_records_are_gone(harness):
    """The message that refuses to send names this command, so it has to help."""
    harness.contacts.write(a1="Ada")
    harness.run()
    harness.api.pop_received()
    shutil.rmtree(harness.state / "queue")
    shutil.rmtree(harness.state / "tracking")
    resync_queue(harness.sync, harness.build_ports(), ResyncOptions())
    harness.run()
    assert [("insert", 1, "Ada")] == harness.api.pop_received()
