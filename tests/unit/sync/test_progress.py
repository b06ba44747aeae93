"""How far a run has come, as those see it who look at it from outside."""

import contextlib
import os

from ondatra_dagster.delivery.outcome import Outcome
from ondatra_dagster.store.lock import FileLock
from ondatra_dagster.sync.progress import Progress, progress
from ondatra_dagster.tracking.addresses import BatchType


def test_a_run_is_counted_while_it_goes_on(desk) -> None:
    """Rows that have ended, wherever they are by now, and keys that are still to go; each once."""
    desk.batch_size = 2
    seen: list[Progress | None] = []

    def answer(row: dict[str, object]) -> Outcome:
        seen.append(progress(desk.sync, desk.tracking))
        return Outcome.parse("reject: no" if row["name"] == "Bad" else "ok")

    desk.api.answer = answer
    desk.contacts.write(**{f"k{number}": "Bad" if number % 7 else "Ada" for number in range(60)})
    summary = desk.run()
    told = [each for each in seen if each]
    assert (60, {summary.run_id}) == (len(told), {each.run_id for each in told})
    assert sorted(told) == told
    assert {60} == {each.records + each.keys for each in told}
    assert 0 == told[0].records < told[-1].records


def test_what_has_ended_has_no_progress(desk) -> None:
    """Nor has what never began."""
    assert progress(desk.sync, desk.tracking) is None
    desk.contacts.write(a1="Ada")
    desk.run()
    assert progress(desk.sync, desk.tracking) is None


def test_a_run_whose_process_is_gone_does_not_go_on(desk) -> None:
    """What it left in the queue looks the same; a page would wait for it for ever."""
    desk.contacts.write(a1="Ada")
    desk.api.dies = KeyboardInterrupt()
    with contextlib.suppress(KeyboardInterrupt):
        desk.run()
    for number in (os.getpid(), os.getppid(), 999_999_999):  # another process may have it by now
        desk.sync.lock.write_text(f"process {number} (delivers)")
        assert progress(desk.sync, desk.tracking) is None
    with FileLock(desk.sync.lock, purpose="delivers"):
        assert progress(desk.sync, desk.tracking) is not None


def test_a_file_that_is_gone_has_no_records(desk) -> None:
    """Who prunes the store doesn't wait for who looks."""
    desk.contacts.write(a1="Ada", b2="Bo")
    desk.run()
    (run_id,) = desk.tracking.runs("sync.contacts")
    files = [*desk.tracking.record_files("sync.contacts", run_id), (BatchType.UPDATED, 99)]
    assert 2 == desk.tracking.count_records("sync.contacts", run_id, files)
