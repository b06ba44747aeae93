"""The jobs of asynchronous APIs: each is submitted once, polled in several runs, and settled at its end."""

import shutil
from pathlib import Path

import pytest
from support.syncs.contact_sync import ASYNC_PUSH, ATOMIC_PUSH, JOB_PUSH, ContactSync, build_emails

from ondatra_dagster.delivery.acknowledged_to_desired_diff import UnitKind
from ondatra_dagster.delivery.queue.claimed_batches import claim_batch
from ondatra_dagster.delivery.queue.queue_database import open_queue
from ondatra_dagster.testing.demo_api import DEMO_KEY, DemoApi

PUSH = {"batch_mode": "async", "batch_size": 10, "max_attempts": 2, "poll_interval": "30s"}


@pytest.fixture
def sync(api: DemoApi, tmp_path: Path) -> ContactSync:
    return ContactSync(tmp_path, api, ASYNC_PUSH, dict(PUSH))


def leave_open(sync: ContactSync, *, count: int = 10) -> None:
    """Submit so many contacts as jobs that don't end."""
    sync.api.delay_jobs(99)
    sync.write(**build_emails(count=count))
    sync.run()


def submitted(api: DemoApi) -> int:
    return sum(call.method == "POST" for call in api.calls)


def polled(api: DemoApi) -> int:
    return sum(call.method == "GET" for call in api.calls)


def test_a_job_that_ends_within_the_run_is_settled_in_it(sync, api):
    """Each row gets its own result from the job."""
    sync.write(**build_emails(7, count=25))
    sync.run()
    assert (24, {"C-7"}) == (len(sync.delivered_emails()), set(sync.dead_letter_errors()))
    assert (3, 6) == (submitted(api), polled(api))  # each job is polled twice
    assert [30.0] * 6 == sync.sleep_seconds
    assert 0 == sync.read_queue_status().depth


def test_a_run_waits_two_minutes_and_leaves_the_job_to_a_later_run(sync, api):
    """A waiting run takes a place that other runs need."""
    api.delay_jobs(7)
    sync.write(**build_emails(count=10))
    sync.run()
    assert (1, 4, 120.0) == (submitted(api), polled(api), sum(sync.sleep_seconds))
    status = sync.read_queue_status()
    assert (0, 1, 10, 10, False) == (
        status.pending_units,
        status.open_jobs,
        status.units_in_jobs,
        status.depth,
        status.can_send,
    )
    sync.now = status.next_due_at
    assert sync.read_queue_status().can_send
    sync.run()
    assert (1, 8, 0) == (submitted(api), polled(api), sync.read_queue_status().depth)


def test_a_run_waits_for_jobs_fifteen_minutes_in_total(sync, api):
    """If a job ended each minute, the run would otherwise last until all rows were sent."""
    sync.push |= {"batch_size": 1, "poll_interval": "1m"}
    api.delay_jobs(0)
    sync.write(**build_emails(count=20))
    sync.run()
    assert (900.0, 16, 1) == (sum(sync.sleep_seconds), submitted(api), sync.read_queue_status().open_jobs)
    sync.run_later(60)
    assert (20, 20, 0) == (submitted(api), len(sync.delivered_emails()), sync.read_queue_status().depth)


def test_a_poll_that_is_not_due_within_two_minutes_is_left_to_a_later_run(sync, api):
    """A run must not last an hour because the polls are an hour apart."""
    sync.push["poll_interval"] = "5m"
    sync.write(**build_emails(count=10))
    sync.run()
    assert ([], 1, 0) == (sync.sleep_seconds, submitted(api), polled(api))


def test_as_many_jobs_as_allowed_are_open_at_once(sync, api):
    """APIs for bulk jobs limit the number of open jobs."""
    sync.push["max_concurrent"] = 3
    leave_open(sync, count=50)
    assert (3, 20) == (submitted(api), sync.read_queue_status().pending_units)


def test_newer_changes_of_a_key_are_sent_after_its_job_has_ended(sync, api):
    """The API may work on two jobs with the same key in any order."""
    leave_open(sync)
    sync.write(c3="new@example.com")
    sync.run()
    assert 1 == submitted(api)
    api.delay_jobs(0)
    sync.run_later(600)
    assert (2, "new@example.com", 0) == (submitted(api), sync.delivered_emails()["C-3"], sync.read_queue_status().depth)


def test_a_job_that_timed_out_is_submitted_again_when_its_rows_are_due(sync, api):
    """The timeout counts from the submission, over several runs. The job is polled once more before it is given up."""
    sync.push["poll_timeout"] = "10m"
    api.delay_jobs(999)
    sync.write(c1="1@example.com")
    sync.run()
    assert 1 == sync.read_queue_status().open_jobs
    sync.run_later(500)
    assert (0, 1, 1) == (sync.read_queue_status().open_jobs, sync.read_queue_status().waiting_units, submitted(api))
    assert {"job timed out"} == sync.settled_batches[-1].errors
    api.delay_jobs(0)
    sync.run_later(3600)
    assert (2, 0) == (submitted(api), sync.read_queue_status().depth)


def test_a_job_that_ended_between_two_runs_is_not_timed_out(sync, api):
    """After a weekend without power, the run polls the job before it gives it up."""
    api.delay_jobs(4)
    sync.write(c1="1@example.com")
    sync.run()
    assert 1 == sync.read_queue_status().open_jobs
    sync.run_later(100_000)
    assert (1, 0) == (submitted(api), sync.read_queue_status().depth)


@pytest.mark.parametrize(
    ("poll", "settled"),
    [
        ("return None", 0),
        ("pass", 0),
        ('return {"done": False}', 0),
        ('return {k: "ok" for k in ["1:insert", "2:insert"]}', 2),
        ('return {"done": True, "per_row": {"1:insert": "ok", "2:insert": "reject: no"}}', 2),
    ],
)
def test_poll_may_return_its_result_in_two_forms(sync, api, poll, settled):
    """Older docs show one form, and newer docs show the other."""
    sync.functions = f"{JOB_PUSH}\ndef poll(job_ref):\n    {poll}\n"
    sync.write(c1="1@example.com", c2="2@example.com")
    sync.run()
    ended = sum(batch.counts[end].total() for batch in sync.settled_batches for end in ("succeeded", "rejected"))
    assert (settled, settled == 0) == (ended, sync.read_queue_status().open_jobs == 1)


def test_poll_gets_the_arguments_that_it_declares(sync, api):
    """It can have the job reference and every argument that push can have."""
    sync.functions = (
        JOB_PUSH
        + """
def poll(job_ref, rows, batch_number, kind, key_columns, columns):
    said = [job_ref["job_id"], rows[0]["email"], str(batch_number), kind, key_columns[0], columns[0]["name"]]
    return {"1:insert": "reject: " + " ".join(said)}
"""
    )
    sync.write(c1="1@example.com")
    sync.run()
    assert {"C-1": "J-1 1@example.com 1 merge customer_id customer_id"} == sync.dead_letter_errors()


def test_a_failed_job_fails_its_batch(sync, api):
    """The error has the place and the reason. The rows are sent again as a new job when they are due."""
    sync.functions = JOB_PUSH + 'def poll(job_ref):\n    fail("job failed: " + job_ref["job_id"])\n'
    sync.write(**build_emails(count=3))
    sync.run()
    assert {"lib/contacts.star:21: job failed: J-1"} == sync.settled_batches[-1].errors
    assert (3, 1) == (sync.read_queue_status().waiting_units, submitted(api))


def test_a_job_survives_polls_that_get_no_answer(sync, api):
    """A failed poll says nothing about the job: it may be done."""
    sync.write(**build_emails(count=3))
    api.fail(method="GET", status=503, times=2)
    delivery = sync.run()
    assert (1, 0, False) == (submitted(api), sync.read_queue_status().depth, delivery.is_outage)


def test_three_polls_without_an_answer_end_the_run_and_keep_the_job(sync, api):
    """The run sends no more requests to an API that is down."""
    sync.write(**build_emails(count=3))
    api.fail(method="GET", status=503, times=3)
    delivery = sync.run()
    assert (True, 1, 3) == (delivery.is_outage, sync.read_queue_status().open_jobs, polled(api))
    sync.run_later(600)
    assert (1, 0) == (submitted(api), sync.read_queue_status().depth)


def test_answered_polls_do_not_hide_an_outage_of_submissions(sync, api):
    """The server for jobs is up, and the one for batches is down. The run must not try the whole table."""
    sync.push |= {"max_concurrent": 2, "batch_size": 1}
    api.delay_jobs(99)
    sync.write(c1="1@example.com")
    sync.run()
    sync.now += 60
    sync.write(**{f"c{n}": f"{n}@example.com" for n in range(2, 9)})
    api.fail(method="POST", status=503, times=7)
    delivery = sync.run()
    assert (True, 3, 4) == (delivery.is_outage, submitted(api) - 1, sync.read_queue_status().pending_units)


def test_a_run_that_may_not_continue_polls_no_job(sync, api):
    """The user who pauses a sync wants its run to end."""
    leave_open(sync)
    polls = polled(api)
    sync.now += 600
    sync.run(may_continue=lambda: False)
    assert (polls, 1) == (polled(api), sync.read_queue_status().open_jobs)


def test_a_run_that_only_polls_submits_nothing(sync, api):
    """It sends no pending rows, and no batch that a crashed process had claimed."""
    leave_open(sync, count=25)
    with open_queue(sync.queue, shape=UnitKind.ROW) as queue:
        assert claim_batch(queue, size=10, number=2)
    api.delay_jobs(0)
    sync.now += 600
    sync.run(only_polls=True)
    assert (1, 10, 15) == (submitted(api), len(sync.delivered_emails()), sync.read_queue_status().pending_units)
    sync.run()
    assert (25, 0) == (len(sync.delivered_emails()), sync.read_queue_status().depth)


def test_the_rows_of_jobs_without_poll_are_sent_again(sync, api):
    """Otherwise these jobs would stay open forever and block all later changes of their keys."""
    leave_open(sync)
    sync.write(c3="new@example.com")
    sync.push["batch_mode"], sync.functions = "atomic", ATOMIC_PUSH
    sync.run_later(60)
    (message,) = sync.settled_batches[-2].errors
    assert message.startswith("the push function no longer has a poll()")
    assert "new@example.com" == sync.delivered_emails()["C-3"]  # the newer change doesn't wait
    status = sync.read_queue_status()
    assert (0, 9) == (status.open_jobs, status.waiting_units)
    assert [(9,)] == sync.query_queue("select count(maybe_sent) from unit")  # it is unknown which rows the API has
    sync.run_later(3600)
    assert (10, "new@example.com", 0) == (
        len(sync.delivered_emails()),
        sync.delivered_emails()["C-3"],
        sync.read_queue_status().depth,
    )


def test_a_sink_that_no_longer_makes_jobs_still_polls_its_open_ones(sync, api):
    """As long as it has a poll(), nothing has to be sent twice."""
    leave_open(sync)
    sync.push["batch_mode"], sync.functions = "atomic", ATOMIC_PUSH + ASYNC_PUSH.removeprefix(JOB_PUSH)
    api.delay_jobs(0)
    sync.run_later(60)
    assert (1, 10, 0) == (submitted(api), len(sync.delivered_emails()), sync.read_queue_status().depth)


@pytest.mark.parametrize("returned", ["None", '"J-1"', "[1]"])
def test_a_job_reference_that_is_not_a_dict_is_an_error(sync, api, returned):
    """Such a job couldn't be polled."""
    sync.functions = f"def push(rows):\n    return {returned}\ndef poll(job_ref):\n    pass\n"
    sync.write(c1="1@example.com")
    sync.run()
    (error,) = sync.settled_batches[0].errors
    assert error.endswith('in batch_mode "async" it returns a job reference, which is a dict')
    assert 1 == sync.read_queue_status().waiting_units


def test_a_job_that_ends_without_results_for_its_rows_is_an_error(sync, api):
    """`{"done": True}` alone might mean anything."""
    sync.functions = JOB_PUSH + 'def poll(job_ref):\n    return {"done": True}\n'
    sync.write(c1="1@example.com")
    sync.run()
    (error,) = sync.settled_batches[0].errors
    assert error.startswith("poll() ended the job with nothing; it ends it with")


def test_poll_gets_the_job_reference_exactly_as_push_returned_it(sync, api):
    """A secret's value in it must not change the job's address. In the queue snapshot the secret is masked."""
    account = f'"/accounts/{DEMO_KEY}/jobs"'
    sync.functions = JOB_PUSH.replace('"job_id": ', f'"in": {account}, "job_id": ') + ASYNC_PUSH.removeprefix(
        JOB_PUSH
    ).replace("    answer =", f'    if job_ref["in"] != {account}:\n        fail("no such job")\n    answer =')
    leave_open(sync)
    sync.save_snapshot()
    references = "".join(unit.job_ref or "" for unit in sync.snapshot.units)
    assert ("J-1" in references, DEMO_KEY in references) == (True, False)
    api.delay_jobs(0)
    sync.run_later(60)
    assert (1, 10, 0) == (submitted(api), len(sync.delivered_emails()), sync.read_queue_status().depth)


class StopError(BaseException):
    """The end of the process."""


def test_the_job_stays_the_same_after_a_crash_between_two_polls(sync, api):
    """A job whose reference is stored is never submitted twice."""

    def stop(_seconds: float) -> None:
        raise StopError

    sync.write(**build_emails(count=10))
    with pytest.raises(StopError):
        sync.run(sleep=stop)
    assert 1 == sync.read_queue_status().open_jobs
    sync.run_later(60)
    assert (1, 0) == (submitted(api), sync.read_queue_status().depth)


def test_a_lost_queue_continues_with_the_job_in_its_snapshot(sync, api):
    """It also sends the change that waited for the job."""
    leave_open(sync, count=25)
    sync.write(c3="new@example.com")
    sync.save_snapshot()
    shutil.rmtree(sync.queue.parent)
    sync.restore_snapshot()
    status = sync.read_queue_status()
    assert (15, 1, 10) == (status.pending_units, status.open_jobs, status.units_in_jobs)
    api.delay_jobs(0)
    sync.run_later(60)
    assert (3, 25, "new@example.com") == (submitted(api), len(sync.delivered_emails()), sync.delivered_emails()["C-3"])
    assert 0 == sync.read_queue_status().depth
