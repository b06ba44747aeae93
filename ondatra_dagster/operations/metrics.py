"""How syncs and tables stand, as Prometheus reads it: the text format 0.0.4. Where it is served: others.

It is made of plain values; who has them hands them over.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
GAUGE, COUNTER = "gauge", "counter"


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


class Sample(NamedTuple):
    labels: Mapping[str, str]
    value: float | None  # None: it isn't told


class Metric(NamedTuple):
    name: str
    type: str
    help: str
    samples: Iterable[Sample]


def metrics_text(syncs: Iterable[SyncMeasures], models: Iterable[ModelMeasures]) -> str:
    """All of it, ending with a line feed."""
    metrics = (*_of_syncs(tuple(syncs)), *_of_models(tuple(models)))
    return "".join(line + "\n" for metric in metrics for line in _lines(metric))


def _of_syncs(syncs: tuple[SyncMeasures, ...]) -> Iterator[Metric]:
    def each(name: str, of_type: str, text: str, values: Iterable[float | None]) -> Metric:
        samples = [Sample({"sync": sync.sync}, value) for sync, value in zip(syncs, values, strict=True)]
        return Metric(f"ondatra_sync_{name}", of_type, text, samples)

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
        "ondatra_sync_rows_total",
        COUNTER,
        "Rows by what became of them in the runs of the history.",
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
        samples = [Sample({"model": model.model}, value) for model, value in zip(models, values, strict=True)]
        return Metric(f"ondatra_table_{name}", GAUGE, text, samples)

    yield each("version", "The newest version that changed rows.", [m.version for m in models])
    yield each("rows", "Rows of the table.", [m.rows for m in models])
    yield each("disk_bytes", "What its folder takes, old versions too.", [m.disk_bytes for m in models])
    yield each("changed_timestamp_seconds", "When its rows last changed.", [m.changed_at for m in models])


def _lines(metric: Metric) -> Iterator[str]:
    told = [sample for sample in metric.samples if sample.value is not None]
    if told:
        yield f"# HELP {metric.name} {metric.help}"
        yield f"# TYPE {metric.name} {metric.type}"
    for sample in told:
        labels = ",".join(f'{name}="{_escaped(text)}"' for name, text in sample.labels.items())
        yield f"{metric.name}{{{labels}}} {_number(sample.value or 0)}"


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
