"""The progress of a run as other processes see it."""

import contextlib
import os

from ondatra_dagster.delivery.row_outcome import RowOutcome
from ondatra_dagster.records.file_paths import RecordFileType
from ondatra_dagster.storage.file_lock import FileLock
from ondatra_dagster.sync.running_progress_reader import LiveProgress, read_live_progress


def test_a_run_is_counted_while_it_is_in_progress(harness) -> None:
    """Rows that have ended are counted wherever they are, and so are the keys that wait; each is counted once."""
    harness.batch_size = 2
    readings: list[LiveProgress | None] = []

    def answer(row: dict[str, object]) -> RowOutcome:
        readings.append(read_live_progress(harness.sync, harness.tracking))
        return RowOutcome.parse_status("reject: no" if row["name"] == "Bad" else "ok")

    harness.api.choose_outcome = answer
    harness.contacts.write(**{f"k{number}": "Bad" if number % 7 else "Ada" for number in range(60)})
    summary = harness.run()
    progress = [reading for reading in readings if reading]
    assert (60, {summary.run_id}) == (len(progress), {reading.run_id for reading in progress})
    assert sorted(progress) == progress
    assert {60} == {reading.record_count + reading.pending_keys for reading in progress}
    assert 0 == progress[0].record_count < progress[-1].record_count


def test_a_run_that_has_ended_has_no_progress(harness) -> None:
    """Neither has a sync that never ran."""
    assert read_live_progress(harness.sync, harness.tracking) is None
    harness.contacts.write(a1="Ada")
    harness.run()
    assert read_live_progress(harness.sync, harness.tracking) is None


def test_a_run_whose_process_is_gone_has_no_progress(harness) -> None:
    """Its queue looks the same, and a page would wait for it forever."""
    harness.contacts.write(a1="Ada")
    harness.api.push_error = KeyboardInterrupt()
    with contextlib.suppress(KeyboardInterrupt):
        harness.run()
    for number in (os.getpid(), os.getppid(), 999_999_999):  # another process may have the number by now
        harness.sync.lock_file.write_text(f"process {number} (delivers)")
        assert read_live_progress(harness.sync, harness.tracking) is None
    with FileLock(harness.sync.lock_file, purpose="delivers"):
        assert read_live_progress(harness.sync, harness.tracking) is not None


def test_a_file_that_is_gone_has_no_records(harness) -> None:
    """Pruning doesn't wait for readers."""
    harness.contacts.write(a1="Ada", b2="Bo")
    harness.run()
    (run_id,) = harness.tracking.list_runs("sync.contacts")
    files = [*harness.tracking.list_record_files("sync.contacts", run_id), (RecordFileType.UPDATED, 99)]
    assert 2 == harness.tracking.count_records("sync.contacts", run_id, files)
