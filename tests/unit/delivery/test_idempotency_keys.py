"""The Idempotency-Key of a call: the same for the same change, and a different one for any other."""

import shutil
from pathlib import Path

import pytest
from support.apis.idempotency_key_api import IdempotencyKeyApi, running_idempotency_key_api
from support.syncs.contact_sync import ATOMIC_PUSH, ContactSync, build_emails

from ondatra_dagster.delivery.acknowledged_to_desired_diff import UnitKind
from ondatra_dagster.delivery.queue.dead_letter_reading_and_replay import replay_dead_letters
from ondatra_dagster.delivery.queue.queue_database import open_queue
from ondatra_dagster.testing.demo_api import DemoApi

PUSH = """
def push(rows):
    return {status_key(row): send(row) for row in rows}

def status_key(row):
    return str(row["__ondatra_rowid"]) + ":" + row["__ondatra_change_type"]

def send(row):
    if row["__ondatra_change_type"] == "update_preimage":
        return "ok"
    answer = http.post("/crm/contacts", json={"email": row["email"]}, headers=HEADERS)
    return "ok" if answer.ok else "error: " + answer.text
"""
OWN = '{"Idempotency-Key": sha256(str(row["__ondatra_rowid"]) + row["email"])}'
SAME_BODY = PUSH.replace('{"email": row["email"]}', "{}")


def a_sync(
    folder: Path, api: DemoApi | IdempotencyKeyApi, push: str = PUSH, *, batch_size: int = 1, batch_mode: str = "sync"
) -> ContactSync:
    settings = {"batch_size": batch_size, "batch_mode": batch_mode}
    return ContactSync(folder, api, push.replace("HEADERS", "{}"), settings)


def test_a_call_without_an_answer_keeps_its_key_in_the_next_run(api: DemoApi, tmp_path: Path) -> None:
    """An API that supports the header repeats its answer, and doesn't create the contact twice."""
    sync = a_sync(tmp_path, api, PUSH.replace('{"email"', '{"customer_id": row["customer_id"], "email"'))
    sync.write(c1="1@example.com")
    api.fail(method="POST", drop="after")
    sync.run()
    assert 1 == sync.read_queue_status().waiting_units
    sync.run_later(3600)
    first, second = api.calls
    assert first.idempotency_key == second.idempotency_key
    assert (201, True) == (second.status, second.is_repeat)


def test_a_push_function_may_choose_its_own_key(tmp_path: Path) -> None:
    with running_idempotency_key_api() as api:
        sync = ContactSync(tmp_path, api, PUSH.replace("HEADERS", OWN))
        sync.write(c1="1@example.com")
        api.next_statuses = [503]
        sync.run()
        sync.run_later(3600)
        assert 1 == len(set(api.received_keys))


def test_after_an_answered_failure_the_next_try_has_another_key(tmp_path: Path) -> None:
    """An API that stores its first answer under a key would return that failure forever."""
    with running_idempotency_key_api() as api:
        sync = a_sync(tmp_path, api)
        sync.write(c1="1@example.com")
        api.next_statuses = [503, 500, 422, 429]
        for _ in range(5):
            sync.run_later(100_000)
        assert (5, 5) == (len(api.received_keys), len(set(api.received_keys)))
        assert 0 == sync.read_queue_status().depth


def test_the_same_change_has_the_same_key_in_a_new_queue(tmp_path: Path) -> None:
    """The key has no random part, so another machine computes the same key after a loss."""
    with running_idempotency_key_api() as api:
        for disk in ("one", "two"):
            (tmp_path / disk).mkdir()
            sync = a_sync(tmp_path / disk, api, batch_size=2)
            sync.write(**build_emails(count=5))
            sync.run()
        first, second = api.received_keys[:5], api.received_keys[5:]
        assert first == second
        assert 5 == len(set(first))


def test_a_value_that_comes_back_has_another_key(tmp_path: Path) -> None:
    with running_idempotency_key_api() as api:
        sync = a_sync(tmp_path, api)
        for email in ("a@example.com", "b@example.com", "a@example.com"):
            sync.write(c1=email)
            sync.run()
        assert ["a", "b", "a"] == [body["email"][0] for body in api.received_bodies]
        assert 3 == len(set(api.received_keys))


def test_equal_calls_for_two_rows_have_two_keys(tmp_path: Path) -> None:
    """This holds in one batch and in two, because rows of `append` may be equal in everything that is sent."""
    with running_idempotency_key_api() as api:
        for batch_size in (1, 2):
            folder = tmp_path / str(batch_size)
            folder.mkdir()
            sync = a_sync(folder, api, SAME_BODY, batch_size=batch_size)
            sync.write(c1="1@example.com", c2="2@example.com")
            sync.run()
        assert [{}] * 4 == api.received_bodies
        assert 2 == len(set(api.received_keys[:2])) == len(set(api.received_keys[2:]))


def test_a_replayed_row_has_another_key(tmp_path: Path) -> None:
    """The operator wants the API to do the work, and not to repeat a stored answer."""
    with running_idempotency_key_api() as api:
        sync = a_sync(tmp_path, api, PUSH.replace("error: ", "reject: "))
        sync.write(c1="1@example.com")
        api.next_statuses = [0]  # no answer at all, so without a replay the key would stay the same
        sync.run()
        assert ["C-1"] == list(sync.dead_letter_errors())
        with open_queue(sync.queue, shape=UnitKind.ROW) as queue:
            assert 1 == replay_dead_letters(queue, now=sync.now)
        sync.run()
        assert 2 == len(set(api.received_keys))


def test_renewed_keys_survive_the_loss_of_the_queue(tmp_path: Path) -> None:
    """The queue snapshot has them. Otherwise the API would answer the next try with its stored failure."""
    with running_idempotency_key_api() as api:
        sync = a_sync(tmp_path, api)
        sync.write(c1="1@example.com")
        api.next_statuses = [500]
        sync.run()
        sync.save_snapshot()
        shutil.rmtree(sync.queue.parent)
        sync.restore_snapshot()
        sync.make_retries_due()
        sync.run()
        assert 2 == len(api.received_keys) == len(set(api.received_keys))
        assert 0 == sync.read_queue_status().depth


@pytest.mark.parametrize(("push", "mode"), [(PUSH, "sync"), (ATOMIC_PUSH, "atomic")])
def test_a_key_is_never_used_for_two_bodies(tmp_path: Path, push: str, mode: str) -> None:
    """Like Stripe, the API always refuses that, so one wrong key would leave a row undelivered."""
    with running_idempotency_key_api() as api:
        sync = a_sync(tmp_path, api, push, batch_size=3, batch_mode=mode)
        for step in range(4):
            sync.write(**{f"c{n}": f"{step}.{n}@example.com" for n in range(1, 8)})
            api.next_statuses = [500, 0, 200, 0, 429]
            sync.run_later(100_000)
        for _ in range(4):
            sync.run_later(100_000)
        assert [] == api.conflicting_keys
        assert (0, {}) == (sync.read_queue_status().depth, sync.dead_letter_errors())
