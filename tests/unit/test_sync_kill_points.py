"""The functions at which tests of kills let a process end."""

import pytest
from support.processes.sync_kill_points import SYNC_KILL_POINTS


@pytest.mark.parametrize("point", SYNC_KILL_POINTS)
def test_every_kill_point_names_a_function(point: str) -> None:
    """Some are private: who renames one learns it here, and not only from tests that take minutes."""
    place = SYNC_KILL_POINTS[point]
    assert callable(getattr(place.function_owner, place.function_name, None)), (
        f"put the new name of {place.function_name} into POINTS"
    )
