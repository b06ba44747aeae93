"""What keeps a table quick to read and its space in bounds: OPTIMIZE, VACUUM. When, and how far: operations.

VACUUM goes by the table's own retention, which else keeps everything: it is lowered for one VACUUM and then
put back. Where a process ended in between, who needs the table's past next puts it back.
"""

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping

from ondatra_dagster.errors import BusyError
from ondatra_dagster.planning.delta_log import invalid_path, read_table_state, table_bytes
from ondatra_dagster.planning.table_past import FILES_KEPT, FREED_UPTO, NOTHING, RETENTIONS, is_lowered
from ondatra_dagster.warehouse.altered_table import AlteredTable
from ondatra_dagster.warehouse.delta_tables import path_table
from ondatra_dagster.warehouse.process_locks import writing
from ondatra_dagster.warehouse.spark_errors import explained_at
from ondatra_dagster.warehouse.spark_session import Warehouse
from ondatra_dagster.warehouse.work_size import tune

HOLDER = "that maintains tables"
OPTIMIZED_BELOW = (
    "spark.databricks.delta.optimize.minFileSize"  # else what is large enough is written anew too
)
OPTIMIZED_TO = "spark.databricks.delta.optimize.maxFileSize"
TARGET_BYTES = 128_000_000
MARGIN_SECONDS = 3600  # may pass between our look at the clock and Delta's
LONGEST_WAIT_SECONDS = 600  # of which a VACUUM begins at most so many later


class UpkeepTable:
    """One table, for who holds its lock."""

    def __init__(self, warehouse: Warehouse, path: str, *, lock: str) -> None:
        self._warehouse = warehouse
        self._path = path
        self._lock = lock

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keep others from writing it; BusyError at once says who does."""
        with writing(self._warehouse.locks, self._lock, run_id=HOLDER, wait_seconds=0):
            yield

    def mend(self) -> None:
        """Put the retention back that a VACUUM lowers."""
        with explained_at(self._path):
            self._become(RETENTIONS)

    def optimize(self, *, small_bytes: int) -> None:
        """Put files that are smaller than that together, in a commit that changes no rows."""
        session = self._warehouse.session
        tune(session, self._warehouse.settings, table_bytes(self._path) or 0)
        with explained_at(self._path), self._set({OPTIMIZED_BELOW: small_bytes, OPTIMIZED_TO: TARGET_BYTES}):
            session.sql(f"optimize {path_table(self._path)}").collect()

    def vacuum(self, *, since: float, upto: int, clock: Callable[[], float]) -> bool:
        """Remove what was taken out of the table before that moment, by commits up to `upto`; whether it did.

        VACUUM counts back from its own begin. Where that comes too long after ours, as when the machine has
        slept, it would take what was taken out since, and isn't begun.
        """
        reckoned_at = clock()
        keep_seconds = math.ceil(reckoned_at - since) + MARGIN_SECONDS
        with explained_at(self._path):
            after = {FREED_UPTO: str(self._freed_upto())}  # until it begins, nothing more has gone
            self._become(
                {**RETENTIONS, FILES_KEPT: f"interval {keep_seconds} seconds", FREED_UPTO: str(upto)}
            )
            try:
                is_late = clock() - reckoned_at > LONGEST_WAIT_SECONDS
                if not is_late:
                    after = {}
                    self._warehouse.session.sql(f"vacuum {path_table(self._path)}").collect()
            finally:
                self._become({**RETENTIONS, **after})
        return not is_late

    def _freed_upto(self) -> int:
        state = read_table_state(self._path)
        return int(state.properties.get(FREED_UPTO, NOTHING)) if state else NOTHING

    def _become(self, properties: Mapping[str, str]) -> None:
        AlteredTable(self._warehouse.session, self._path).become(properties)

    @contextlib.contextmanager
    def _set(self, conf: dict[str, int]) -> Iterator[None]:
        session = self._warehouse.session
        for name, value in conf.items():
            session.conf.set(name, str(value))
        try:
            yield
        finally:
            for name in conf:
                session.conf.unset(name)


def mend(warehouse: Warehouse, model_id: str) -> None:
    """End what a killed VACUUM of a model's tables has begun, so that all of their past can be read.

    Where another process holds the table, that is for it to do. A dry run leaves everything as it is.
    """
    table = warehouse.table_path(model_id)
    for path in (table, invalid_path(table)):
        state = read_table_state(path)
        if state and is_lowered(state) and not warehouse.settings.scratch:
            upkeep = UpkeepTable(warehouse, path, lock=model_id)
            with contextlib.suppress(BusyError), upkeep.held():
                upkeep.mend()
