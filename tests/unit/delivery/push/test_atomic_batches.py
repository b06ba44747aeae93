"""Batches that an API takes whole or not at all, and the search for the rows it refuses them for."""

import pytest
from support.syncs.contact_sync import ATOMIC_PUSH, ContactSync, build_emails

from ondatra_dagster.testing.demo_api import DemoApi

BISECT = {"batch_mode": "atomic", "on_batch_error": "bisect", "batch_size": 100, "max_attempts": 2}
KEEP = {"batch_mode": "atomic", "batch_size": 100, "max_attempts": 2}


def posts(api: DemoApi) -> list[int]:
    """The size of each batch that was sent."""
    return [len(call.body["operations"]) for call in api.calls]


def test_a_batch_that_is_taken_is_delivered_whole(api, tmp_path):
    """push says nothing, and that is success."""
    sync = ContactSync(tmp_path, api, ATOMIC_PUSH, KEEP)
    sync.write(**build_emails(count=20))
    sync.run()
    assert 20 == len(sync.delivered_emails())
    assert [] == sync.query_queue("select * from unit")


def test_a_batch_that_fails_is_kept_whole_for_its_next_try(api, tmp_path):
    """Nobody knows better: one bad row may not be all that is wrong."""
    sync = ContactSync(tmp_path, api, ATOMIC_PUSH, KEEP)
    sync.write(**build_emails(7, count=20))
    sync.run()
    assert ({}, 20, [20]) == (sync.delivered_emails(), sync.read_queue_status().waiting_units, posts(api))
    (error,) = sync.settled_batches[0].errors
    assert error.startswith("lib/contacts.star:18: ")
    assert "7:insert" in error
    sync.make_retries_due()
    sync.run()
    assert 20 == len(sync.dead_letter_errors())


def test_the_bad_rows_are_found_and_rejected_and_all_others_arrive(api, tmp_path):
    """One bad address among a hundred good ones holds up nobody."""
    sync = ContactSync(tmp_path, api, ATOMIC_PUSH, BISECT)
    sync.write(**build_emails(7, 93, count=100))
    sync.run()
    assert 98 == len(sync.delivered_emails())
    assert {"C-7", "C-93"} == set(sync.dead_letter_errors())
    assert "isn't an address" in sync.dead_letter_errors()["C-7"]
    assert len(posts(api)) <= 2 * 7 * 2 + 1
    assert 0 == sync.read_queue_status().waiting_units


@pytest.mark.parametrize("status", [401, 403, 404, 408, 429, 500])
def test_an_answer_that_says_nothing_of_the_rows_halves_nothing(api, tmp_path, status):
    """A wrong key would reject a whole table row by row."""
    sync = ContactSync(tmp_path, api, ATOMIC_PUSH, BISECT)
    sync.write(**build_emails(count=20))
    api.fail(status=status, times=1)
    delivery = sync.run()
    assert ([20], 20, {}) == (posts(api), sync.read_queue_status().waiting_units, sync.dead_letter_errors())
    assert (status in (408, 429, 500)) == delivery.is_outage


def test_a_half_that_meets_an_outage_waits_while_the_other_arrives(api, tmp_path):
    """What is known of one half doesn't depend on the other."""
    sync = ContactSync(tmp_path, api, ATOMIC_PUSH, BISECT)
    sync.write(**build_emails(19, count=20))
    api.fail(status=422, times=1)
    api.fail(status=503, times=1)
    sync.run()
    assert {"C-19"} == set(sync.dead_letter_errors())
    assert 9 == len(sync.delivered_emails())
    assert 10 == sync.read_queue_status().waiting_units


def test_an_update_s_pair_is_rejected_as_one(api, tmp_path):
    """Halves are made between units: no image goes without the other."""
    sync = ContactSync(tmp_path, api, ATOMIC_PUSH, BISECT)
    sync.write(**build_emails(count=20))
    sync.run()
    sync.write(c3="no address", c4="new@example.com", c5=None)
    sync.run()
    assert {"C-3"} == set(sync.dead_letter_errors())
    assert (19, "3@example.com", "new@example.com") == (
        len(sync.delivered_emails()),
        sync.delivered_emails()["C-3"],
        sync.delivered_emails()["C-4"],
    )


def test_a_push_that_returns_something_says_what_it_should_return(api, tmp_path):
    """Statuses of rows mean nothing here: to guess would lose rows."""
    sync = ContactSync(tmp_path, api, "def push(rows): return {}", KEEP)
    sync.write(c1="1@example.com")
    sync.run()
    assert {'push() returned {}; in batch_mode "atomic" it returns nothing, or calls fail()'} == sync.settled_batches[
        0
    ].errors
