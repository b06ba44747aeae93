"""How syncs and tables stand, as Prometheus reads it: the text format 0.0.4. Where it is served: others.

It is made of plain values; who has them hands them over.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping

from ondatra_dagster.prometheus import COUNTER, GAUGE, Metric, Sample, format_metrics


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SyncMeasures:
    """One sync; None is what nobody knows, or isn't there."""

    sync: str
    depth: int | None = 0
    oldest_seconds: float | None = None
    dead: int | None = 0
    open_jobs: int | None = 0
    next_due_at: float | None = None  # seconds since 1970
    is_held: bool = False
    rows: Mapping[str, int] = dataclasses.field(default_factory=dict)  # by what became of them
    runs: int = 0
    failed_runs: int = 0
    interrupted_runs: int = 0
    last_success_at: float | None = None
    last_run_seconds: float | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ModelMeasures:
    """One model's table."""

    model: str
    version: int | None = None
    rows: int | None = None
    disk_bytes: int | None = None
    changed_at: float | None = None


def metrics_text(syncs: Iterable[SyncMeasures], models: Iterable[ModelMeasures]) -> str:
    """All of it, ending with a line feed."""
    metrics = (*_of_syncs(tuple(syncs)), *_of_models(tuple(models)))
    return format_metrics(metrics)


def _of_syncs(syncs: tuple[SyncMeasures, ...]) -> Iterator[Metric]:
    def each(name: str, of_type: str, text: str, values: Iterable[float | None]) -> Metric:
        labels = ({"sync": sync.sync} for sync in syncs)
        return Metric(f"ondatra_sync_{name}", of_type, text, _known(labels, values))

    yield each("queue_depth", GAUGE, "Keys that are still to be delivered.", [s.depth for s in syncs])
    yield each(
        "oldest_waiting_seconds", GAUGE, "Age of the oldest of these.", [s.oldest_seconds for s in syncs]
    )
    yield each("dead_letters", GAUGE, "Keys that were given up or refused.", [s.dead for s in syncs])
    yield each("open_jobs", GAUGE, "Asynchronous jobs that go on.", [s.open_jobs for s in syncs])
    yield each(
        "next_due_timestamp_seconds", GAUGE, "When a retry or a poll is due.", [s.next_due_at for s in syncs]
    )
    yield each("held", GAUGE, "1 while nothing may be sent.", [s.is_held for s in syncs])
    yield each("runs_total", COUNTER, "Runs in the history.", [s.runs for s in syncs])
    yield each("failed_runs_total", COUNTER, "Of these, failed or crashed.", [s.failed_runs for s in syncs])
    yield each(
        "interrupted_runs_total",
        COUNTER,
        "Of these, ended by Ctrl-C or SIGTERM.",
        [s.interrupted_runs for s in syncs],
    )
    yield Metric(
        "ondatra_sync_units_total",
        COUNTER,
        "Units by what became of them in the runs of the history.",
        [
            Sample({"sync": sync.sync, "outcome": outcome}, sync.rows.get(cell, 0))
            for sync in syncs
            for cell, outcome in (("succeeded", "delivered"), ("rejected", "rejected"), ("failed", "failed"))
        ],
    )
    yield each(
        "last_success_timestamp_seconds",
        GAUGE,
        "When a run last ended well.",
        [s.last_success_at for s in syncs],
    )
    yield each(
        "last_run_duration_seconds",
        GAUGE,
        "How long the newest run took.",
        [s.last_run_seconds for s in syncs],
    )


def _of_models(models: tuple[ModelMeasures, ...]) -> Iterator[Metric]:
    def each(name: str, text: str, values: Iterable[float | None]) -> Metric:
        labels = ({"model": model.model} for model in models)
        return Metric(f"ondatra_table_{name}", GAUGE, text, _known(labels, values))

    yield each("version", "The newest version that changed rows.", [m.version for m in models])
    yield each("rows", "Rows of the table.", [m.rows for m in models])
    yield each("disk_bytes", "What its folder takes, old versions too.", [m.disk_bytes for m in models])
    yield each("changed_timestamp_seconds", "When its rows last changed.", [m.changed_at for m in models])


def _known(labels: Iterable[Mapping[str, str]], values: Iterable[float | None]) -> list[Sample]:
    """Return samples of the values that are known: 0 in place of the others would say that all is well."""
    pairs = zip(labels, values, strict=True)
    return [Sample(label, value) for label, value in pairs if value is not None]
