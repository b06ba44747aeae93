"""`ondatra run` that dies where it is told to: `python -m support.dying_run POINT`, in a project's folder."""

import sys
from collections.abc import Mapping

from support.plain_flush import Place, die_at

from ondatra_dagster.cli.main import main
from ondatra_dagster.collector import waiting
from ondatra_dagster.collector.event_file import EventFile
from ondatra_dagster.orchestration import engine
from ondatra_dagster.warehouse.delta_tables import Target
from ondatra_dagster.warehouse.kinds import events

POINTS: Mapping[str, Place] = {
    "before reading": Place(waiting, "page_after"),
    "after reading": Place(events, "_append"),
    "before the commit": Place(Target, "append"),
    "after the commit": Place(Target, "append", is_after=True),
    "between commits": Place(events, "_append", is_after=True),
    "before forgetting": Place(engine, "forget_flushed"),
    "after forgetting": Place(engine, "forget_flushed", is_after=True),
    "in the middle of forgetting": Place(EventFile, "forget", is_after=True),
}

if __name__ == "__main__":
    die_at(POINTS[sys.argv[1]])
    main(["run"])
