"""What is kept of a sync run: in the queue while it goes on, in its metadata.json, in the history.

What is kept of its rows: records.
"""

import dataclasses
from datetime import UTC, datetime
from typing import Self

import orjson

from ondatra_dagster.changes import Column
from ondatra_dagster.delivery.frontier import NOTHING_ENQUEUED
from ondatra_dagster.delivery.queue import publication
from ondatra_dagster.delivery.queue.tables import Queue
from ondatra_dagster.delivery.queue.takeover import frontier_of, is_taking_over
from ondatra_dagster.sync.ports import Ports
from ondatra_dagster.sync.records import Publisher
from ondatra_dagster.sync.run_id import new_run_id
from ondatra_dagster.sync.start import Start
from ondatra_dagster.sync.summary import RunSummary
from ondatra_dagster.sync.sync import Sync
from ondatra_dagster.tracking.history import Mode, PastRun, Result
from ondatra_dagster.tracking.metadata import Endpoint, RunMetadata


def close_crashed_runs(queue: Queue, sync: Sync, ports: Ports) -> None:
    """Publish what runs that were cut off had settled."""
    for run_id, about in publication.open_runs(queue).items():
        _publisher(queue, sync, ports, run_id).publish_all()
        ports.tracking.finish_run(sync.id, run_id, _load_metadata(about))
        publication.end_run(queue, run_id)


class RunAccount:
    """One run's, from its begin to its end."""

    def __init__(self, start: Start, run_id: str) -> None:
        self.run_id = run_id
        self.publisher = _publisher(start.queue, start.sync, start.ports, run_id)
        self._start = start

    @classmethod
    def begin(cls, start: Start) -> Self:
        """Name the run, and note everywhere that it goes on."""
        ports, sync, queue = start.ports, start.sync, start.queue
        newest = max((*ports.tracking.runs(sync.id), queue.meta("last_run") or ""))
        account = cls(start, new_run_id(start.at, after=newest or None, random=ports.random))
        metadata = account._metadata()
        with queue.store.immediate():
            queue.set_meta("last_run", account.run_id)
            publication.begin_run(queue, account.run_id, _dump_metadata(metadata))
        ports.tracking.write_metadata(sync.id, account.run_id, metadata)
        ports.history.begin(account._past_run())
        return account

    def end(self, summary: RunSummary, *, failed: bool) -> None:
        """Note everywhere how the run ended, the queue last: until then it counts as cut off."""
        ports, sync, queue = self._start.ports, self._start.sync, self._start.queue
        metadata = dataclasses.replace(
            self._metadata(), version_to=summary.version_to, counts=summary.counts()
        )
        ports.tracking.finish_run(sync.id, self.run_id, metadata)
        if not is_taking_over(queue):  # else it doesn't say all that the last one and the records do
            frontier = frontier_of(queue, sync_id=sync.id, run_id=self.run_id, written_at=ports.now())
            ports.tracking.write_frontier(frontier)
        past = dataclasses.replace(
            self._past_run(),
            ended_at=summary.ended_at,
            version_to=summary.version_to,
            counts=summary.to_json(),
            result=Result.FAILED if failed else Result.SUCCEEDED,
            first_errors=summary.errors,
        )
        ports.history.finish(past)
        publication.end_run(queue, self.run_id)

    def _metadata(self) -> RunMetadata:
        start = self._start
        return RunMetadata(
            source=start.sync.ends.source_endpoint,
            destination=start.sync.ends.destination_endpoint,
            destination_object=start.sync.ends.object_endpoint,
            started_at=start.at,
            columns=start.source.columns,
            dagster_run_id=start.occasion.dagster_run_id,
            version_from=start.version_from,
            version_to=start.source.version,
            counts={},
        )

    def _past_run(self) -> PastRun:
        return past_run(self._start, self.run_id)


def past_run(start: Start, run_id: str) -> PastRun:
    """A run's line in the history, as it begins."""
    mode, reason = _mode(start)
    return PastRun(
        sync_id=start.sync.id,
        run_id=run_id,
        model=start.sync.model.name,
        dagster_run_id=start.occasion.dagster_run_id,
        started_at=start.at,
        trigger=start.occasion.trigger,
        mode=mode,
        reason=reason,
        version_from=start.version_from,
        version_to=start.source.version,
    )


def _mode(start: Start) -> tuple[Mode, str]:
    if start.watermark == NOTHING_ENQUEUED:
        return Mode.FULL, "the first run sends the whole table"
    if start.source.version > start.watermark:
        return Mode.INCREMENTAL, f"versions {start.watermark + 1} to {start.source.version} are new"
    return Mode.RETRY, "rows were waiting"


def _publisher(queue: Queue, sync: Sync, ports: Ports, run_id: str) -> Publisher:
    return Publisher(queue, ports.tracking, sync_id=sync.id, run_id=run_id, operation=sync.operation)


def _dump_metadata(metadata: RunMetadata) -> str:
    return orjson.dumps(dataclasses.asdict(metadata), default=tuple).decode()


def _load_metadata(text: str) -> RunMetadata:
    fields = orjson.loads(text)
    return RunMetadata(
        **{
            **fields,
            "source": Endpoint(*fields["source"]),
            "destination": Endpoint(*fields["destination"]),
            "destination_object": Endpoint(*fields["destination_object"]),
            "started_at": datetime.fromisoformat(fields["started_at"]).astimezone(UTC),
            "columns": tuple(Column(*column) for column in fields["columns"]),
        }
    )
