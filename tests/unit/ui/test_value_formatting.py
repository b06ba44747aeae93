"""What every page shows alike."""

import pytest

from ondatra_dagster.sync.run_history_store import RunResult
from ondatra_dagster.ui.value_formatting import BADGE_STYLES


@pytest.mark.parametrize("result", RunResult)
def test_each_end_of_a_run_has_a_sign(result: RunResult) -> None:
    """A new one would look like any state, an interrupted run like one that goes well."""
    assert result.value in BADGE_STYLES
