"""Beginning anew: after a lost queue, another table, another API, or because the user wants it."""

import shutil

import pytest

from ondatra_dagster.delivery.outcome import Outcome
from ondatra_dagster.errors import ResyncNeededError
from ondatra_dagster.sync.resync import Way, resync
from ondatra_dagster.sync.summary import Cell


def test_all_rows_go_again_as_updates_where_the_api_has_them(desk):
    """An insert of what is there is a conflict for most APIs."""
    desk.contacts.write(a1="Ada", a2="")
    desk.api.answer = lambda row: Outcome.parse("ok" if row["name"] else "reject: no name")
    desk.run()
    desk.api.take()
    desk.contacts.write(a3="Cyn")
    assert 3 == resync(desk.sync, desk.ports(), Way())
    desk.run()
    assert [
        ("insert", 2, ""),
        ("insert", 3, "Cyn"),
        ("update_postimage", 1, "Ada"),
        ("update_preimage", 1, "Ada"),
    ] == sorted(desk.api.take())
    assert not desk.run().has_done_something


def test_a_table_that_was_made_anew_is_compared_through_the_records(desk):
    """Its rowids are strangers, but the keys are the same."""
    desk.contacts.write(a1="Ada")
    desk.run()
    desk.api.take()
    desk.contacts.table_id = "another"
    desk.contacts.write(a2="Ben")
    with pytest.raises(ResyncNeededError):
        desk.run()
    resync(desk.sync, desk.ports(), Way())
    desk.run()
    assert [("insert", 2, "Ben"), ("update_postimage", 1, "Ada"), ("update_preimage", 1, "Ada")] == sorted(
        desk.api.take()
    )


def test_rows_set_aside_beside_another_table_are_recorded_anew(desk):
    """Its versions begin again: those of the old one's would hide them."""
    desk.contacts.write(a1="Ada")
    for _ in range(3):
        desk.contacts.set_one_aside("NULL")
    assert 3 == desk.run().grid.count(Cell.INVALID)
    resync(desk.sync, desk.ports(), Way())
    assert 0 == desk.run().grid.count(Cell.INVALID)
    desk.contacts.table_id = "another"
    desk.contacts.set_aside.clear()
    desk.contacts.set_one_aside("NULL")
    resync(desk.sync, desk.ports(), Way())
    assert 1 == desk.run().grid.count(Cell.INVALID)
    assert 0 == desk.run().grid.count(Cell.INVALID)


def test_another_api_gets_everything_as_new(desk):
    """Nobody has acknowledged anything there."""
    desk.contacts.write(a1="Ada")
    desk.run()
    desk.api.take()
    desk.base_url = "https://other.example.com"
    resync(desk.sync, desk.ports(), Way())
    desk.run()
    assert [("insert", 1, "Ada")] == desk.api.take()


def test_what_is_assumed_delivered_is_not_sent_and_its_changes_are(desk):
    """A team that moves here from a script has its rows in the API already."""
    desk.contacts.write(a1="Ada")
    assert 0 == resync(desk.sync, desk.ports(), Way(assume_delivered=True))
    desk.run()
    assert [] == desk.api.take()
    desk.contacts.write(a1="Ann")
    desk.run()
    assert ["update_preimage", "update_postimage"] == [change for change, _, _ in desk.api.take()]


def test_it_is_the_way_on_when_queue_and_records_are_gone(desk):
    """The message that refuses to send names this command, so it has to help."""
    desk.contacts.write(a1="Ada")
    desk.run()
    desk.api.take()
    shutil.rmtree(desk.state / "queue")
    shutil.rmtree(desk.state / "tracking")
    resync(desk.sync, desk.ports(), Way())
    desk.run()
    assert [("insert", 1, "Ada")] == desk.api.take()
