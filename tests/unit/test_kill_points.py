"""The functions at which tests kill a process."""

import pytest
from support.processes.flush_run_kill_points import RUN_KILL_POINTS
from support.processes.plain_flush_kill_points import FLUSH_KILL_POINTS, FlushKillPoint
from support.processes.sync_kill_points import SYNC_KILL_POINTS, SyncKillPoint

KILL_POINTS = [*SYNC_KILL_POINTS.values(), *FLUSH_KILL_POINTS.values(), *RUN_KILL_POINTS.values()]


@pytest.mark.parametrize("point", KILL_POINTS, ids=lambda point: point.function_name)
def test_every_kill_point_is_an_existing_function(point: SyncKillPoint | FlushKillPoint) -> None:
    """Some of these functions are private. A rename fails here, and not only in tests that take minutes."""
    assert callable(getattr(point.function_owner, point.function_name, None)), f"rename {point.function_name} there too"
