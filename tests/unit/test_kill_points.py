"""The functions at which tests of kills let a process end."""

import pytest
from support.kill_points import POINTS


@pytest.mark.parametrize("point", POINTS)
def test_every_kill_point_names_a_function(point: str) -> None:
    """Some are private: who renames one learns it here, and not only from tests that take minutes."""
    place = POINTS[point]
    assert callable(getattr(place.owner, place.name, None)), f"put the new name of {place.name} into POINTS"
