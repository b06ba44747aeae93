"""The rate limit over threads, syncs and a kill, by the server's own clock; tests/soak runs longer."""

from pathlib import Path

import pytest
from support.processes.rate_limit_load import max_calls_in_window, record_calls_of_two_syncs

pytestmark = pytest.mark.faults


def test_the_calls_of_a_killed_sync_still_count_for_the_rate_limit(tmp_path: Path) -> None:
    """They count for the sync's next run, and all the time for the other syncs."""
    calls = sorted(record_calls_of_two_syncs(tmp_path, seconds=4.0))

    assert {"/one", "/two"} == {path for _, path in calls}
    assert max_calls_in_window([stamp for stamp, _ in calls], seconds=1.0) <= 20
