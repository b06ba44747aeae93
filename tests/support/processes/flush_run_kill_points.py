"""An `ondatra run` that is killed at a given point.

Start it in a project's folder: `python -m support.processes.flush_run_kill_points POINT`.
"""

import sys
from collections.abc import Mapping

from support.processes.plain_flush_kill_points import FlushKillPoint, kill_process_at

from ondatra_dagster.app import model_and_sync_steps
from ondatra_dagster.cli.main import main
from ondatra_dagster.collector import pending_events
from ondatra_dagster.collector.event_store import EventStore
from ondatra_dagster.warehouse.create_and_write_target_table import TargetTable
from ondatra_dagster.warehouse.kinds import events_from_collector

RUN_KILL_POINTS: Mapping[str, FlushKillPoint] = {
    "before reading": FlushKillPoint(pending_events, "read_page_after"),
    "after reading": FlushKillPoint(events_from_collector, "_append_batch"),
    "before the commit": FlushKillPoint(TargetTable, "append"),
    "after the commit": FlushKillPoint(TargetTable, "append", is_after=True),
    "between commits": FlushKillPoint(events_from_collector, "_append_batch", is_after=True),
    "before forgetting": FlushKillPoint(model_and_sync_steps, "delete_flushed_events"),
    "after forgetting": FlushKillPoint(model_and_sync_steps, "delete_flushed_events", is_after=True),
    "in the middle of forgetting": FlushKillPoint(EventStore, "delete_up_to", is_after=True),
}

if __name__ == "__main__":
    kill_process_at(RUN_KILL_POINTS[sys.argv[1]])
    main(["run"])
