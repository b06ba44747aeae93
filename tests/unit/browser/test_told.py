"""What every page shows alike."""

import pytest

from ondatra_dagster.browser.told import TONES
from ondatra_dagster.tracking.history import Result


@pytest.mark.parametrize("result", Result)
def test_each_end_of_a_run_has_a_sign(result: Result) -> None:
    """A new one would look like any state, an interrupted run like one that goes well."""
    assert result.value in TONES
