"""The decision when a sensor requests a run: at once for new work, and less and less often for unchanged work.

The plan decides whether there is work, so no change is missed. The sensor's cursor stores the requests, so a
run that fails at once isn't requested again at each tick.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import dagster as dg
import orjson

from ondatra_dagster.delivery.row_retry_delays import row_retry_seconds
from ondatra_dagster.future_time_correction import corrected_time
from ondatra_dagster.orchestration.asset_keys import op_name
from ondatra_dagster.orchestration.run_tags_and_abandoned_runs import DRY_RUN, is_tag_set

NEW_WORK_GRACE_SECONDS = 60.0  # for this time, new work is left to the sensor that the work triggers


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SensorRequest:
    """A run that a sensor requested."""

    work_digest: str  # a text that is equal for equal work
    tries: int  # 0: the work was seen, and left to another sensor
    requested_at: float  # seconds since 1970

    @property
    def next_at(self) -> float:
        """Return the time to request the same work again. The delay isn't random, because each tick computes it."""
        if not self.tries:
            return self.requested_at + NEW_WORK_GRACE_SECONDS
        return self.requested_at + row_retry_seconds(self.tries, uniform=lambda *_: 1.0)

    def run_key(self, sync_id: str) -> str:
        """Return the key of the requested run.

        Dagster starts only one run per key, ever, so the key for repeated work contains a time.
        """
        return f"{sync_id}:{self.work_digest}#{self.tries}@{self.requested_at:.0f}"


def next_request(
    work: str, previous_request: SensorRequest | None, *, now: float, is_new: bool = False
) -> SensorRequest | None:
    """Return the request for a run now; None if a run for the same work was requested too recently.

    With `is_new`, no run is requested for new work: the work is only noted, as a request with 0 tries.
    """
    if previous_request is None or previous_request.work_digest != work:
        return SensorRequest(work_digest=work, tries=0 if is_new else 1, requested_at=now)
    if now < corrected_time(previous_request.next_at, set_at=previous_request.requested_at, now=now):
        return None
    return SensorRequest(work_digest=work, tries=previous_request.tries + 1, requested_at=now)


INTERVAL_SECONDS = 15
UNFINISHED_STATUSES = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def load_requests(cursor: str | None) -> dict[str, SensorRequest]:
    """Return the requests in a sensor's cursor, by sync or model."""
    return {name: SensorRequest(**fields) for name, fields in orjson.loads(cursor or "{}").items()}


def dump_requests(wakes: Mapping[str, SensorRequest]) -> str:
    return orjson.dumps(wakes).decode()


def keys_in_unfinished_runs(instance: dg.DagsterInstance, keys: Sequence[dg.AssetKey]) -> set[dg.AssetKey]:
    """Return the keys of `keys` that are in an unfinished run; dry runs don't count."""
    unfinished_runs = instance.get_runs(dg.RunsFilter(statuses=UNFINISHED_STATUSES))
    runs = [run for run in unfinished_runs if not is_tag_set(run.tags, DRY_RUN)]
    return {key for run in runs for key in _keys_of_run(instance, run, keys)}


def _keys_of_run(
    instance: dg.DagsterInstance, run: dg.DagsterRun, keys: Sequence[dg.AssetKey]
) -> Iterator[dg.AssetKey]:
    """Yield the keys of `keys` that a run materializes.

    A run without an asset selection runs a whole job, which may contain no assets.
    """
    if run.asset_selection is not None or run.job_snapshot_id is None:
        yield from (key for key in keys if run.asset_selection is None or key in run.asset_selection)
        return
    ops = instance.get_job_snapshot(run.job_snapshot_id).node_names
    yield from (key for key in keys if op_name(key) in ops)
