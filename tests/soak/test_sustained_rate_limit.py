"""The rate limit over half a minute: two syncs of eight threads each and a restart, by the server's own clock."""

from pathlib import Path

import pytest
from support.processes.rate_limit_load import max_calls_in_window, record_calls_of_two_syncs

pytestmark = pytest.mark.soak

SECONDS = 30.0


def test_no_sliding_second_has_more_calls_than_the_limit(tmp_path: Path) -> None:
    """An API blocks a client that exceeds its limit, whichever of our processes did it."""
    calls = sorted(record_calls_of_two_syncs(tmp_path, seconds=SECONDS))

    assert {"/one", "/two"} == {path for _, path in calls}
    assert max_calls_in_window([stamp for stamp, _ in calls], seconds=1.0) <= 20
    # the syncs still use at least half of the limit
    assert len(calls) > SECONDS * 20 * 0.5
