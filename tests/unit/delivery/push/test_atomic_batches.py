"""The batches that an API accepts as a whole or not at all, and the search for the rows that it refuses."""

import pytest
from support.syncs.contact_sync import ATOMIC_PUSH, ContactSync, build_emails

from ondatra_dagster.testing.demo_api import DemoApi

BISECT = {"batch_mode": "atomic", "on_batch_error": "bisect", "batch_size": 100, "max_attempts": 2}
KEEP = {"batch_mode": "atomic", "batch_size": 100, "max_attempts": 2}


def posts(api: DemoApi) -> list[int]:
    """Return the size of each batch that was sent."""
    return [len(call.body["operations"]) for call in api.calls]


def test_an_accepted_batch_is_delivered_as_a_whole(api, tmp_path):
    """push returns nothing, and that means success."""
    sync = ContactSync(tmp_path, api, ATOMIC_PUSH, KEEP)
    sync.write(**build_emails(count=20))
    sync.run()
    assert 20 == len(sync.delivered_emails())
    assert [] == sync.query_queue("select * from unit")


def test_a_failed_batch_is_retried_as_a_whole(api, tmp_path):
    """One bad row may not be the only problem."""
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


def test_the_bad_rows_are_found_and_all_others_arrive(api, tmp_path):
    """One bad address must not delay a hundred good ones."""
    sync = ContactSync(tmp_path, api, ATOMIC_PUSH, BISECT)
    sync.write(**build_emails(7, 93, count=100))
    sync.run()
    assert 98 == len(sync.delivered_emails())
    assert {"C-7", "C-93"} == set(sync.dead_letter_errors())
    assert "isn't an address" in sync.dead_letter_errors()["C-7"]
    assert len(posts(api)) <= 2 * 7 * 2 + 1
    assert 0 == sync.read_queue_status().waiting_units


@pytest.mark.parametrize("status", [401, 403, 404, 408, 429, 500])
def test_an_answer_that_is_not_about_rows_splits_no_batch(api, tmp_path, status):
    """Otherwise a wrong key would reject a whole table row by row."""
    sync = ContactSync(tmp_path, api, ATOMIC_PUSH, BISECT)
    sync.write(**build_emails(count=20))
    api.fail(status=status, times=1)
    delivery = sync.run()
    assert ([20], 20, {}) == (posts(api), sync.read_queue_status().waiting_units, sync.dead_letter_errors())
    assert (status in (408, 429, 500)) == delivery.is_outage


def test_a_half_that_meets_an_outage_waits_while_the_other_arrives(api, tmp_path):
    """The outcome of one half doesn't depend on the other."""
    sync = ContactSync(tmp_path, api, ATOMIC_PUSH, BISECT)
    sync.write(**build_emails(19, count=20))
    api.fail(status=422, times=1)
    api.fail(status=503, times=1)
    sync.run()
    assert {"C-19"} == set(sync.dead_letter_errors())
    assert 9 == len(sync.delivered_emails())
    assert 10 == sync.read_queue_status().waiting_units


def test_both_images_of_an_update_are_rejected_together(api, tmp_path):
    """A batch is split between units, so no image is sent without the other."""
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


def test_the_error_about_a_wrong_return_value_says_what_to_return(api, tmp_path):
    """Statuses of rows have no meaning here, and a guess would lose rows."""
    sync = ContactSync(tmp_path, api, "def push(rows): return {}", KEEP)
    sync.write(c1="1@example.com")
    sync.run()
    assert {'push() returned {}; in batch_mode "atomic" it returns nothing, or calls fail()'} == sync.settled_batches[
        0
    ].errors
