"""The rate limit over threads, syncs and a kill, by the server's own clock; tests/soak does it for longer."""

from pathlib import Path

import pytest
from support.processes.rate_limit_load import max_calls_in_window, record_calls_of_two_syncs

pytestmark = pytest.mark.faults


def test_a_killed_sync_leaves_no_room_for_more_than_the_limit(tmp_path: Path) -> None:
    """What it sent counts for the one that comes after it, and for the others all the time."""
    calls = sorted(record_calls_of_two_syncs(tmp_path, seconds=4.0))

    assert {"/one", "/two"} == {path for _, path in calls}
    assert max_calls_in_window([stamp for stamp, _ in calls], seconds=1.0) <= 20
