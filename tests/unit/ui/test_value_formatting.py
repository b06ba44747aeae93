"""The formatting that all pages share."""

import pytest

from ondatra_dagster.sync.run_history_store import RunResult
from ondatra_dagster.ui.value_formatting import BADGE_STYLES


@pytest.mark.parametrize("result", RunResult)
def test_each_result_of_a_run_has_a_badge(result: RunResult) -> None:
    """A new result without a badge would look like any state, and an interrupted run like a good one."""
    assert result.value in BADGE_STYLES
