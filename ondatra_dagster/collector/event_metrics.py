"""The collector's metrics as text for Prometheus, format 0.0.4."""

import collections
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ondatra_dagster.collector.event_store import PendingSummary
from ondatra_dagster.prometheus_format import COUNTER, GAUGE, Metric, MetricSample, format_metrics


class EventCounts:
    """What happened since the start."""

    def __init__(self) -> None:
        self.accepted_events: collections.Counter[str] = collections.Counter()  # events by model
        self.repeated_events: collections.Counter[str] = collections.Counter()
        self.refused_requests: collections.Counter[str] = collections.Counter()  # requests by reason
        self.received_bytes = 0


class EventGauges(NamedTuple):
    """How it stands."""

    pending: Mapping[str, PendingSummary]  # by model
    commit_count: int
    file_bytes: int
    free_bytes: int


def format_event_metrics(counts: EventCounts, gauges: EventGauges, *, now: float) -> str:
    """Return all that is counted, by model or reason where there are several."""
    return format_metrics(_metrics(counts, gauges, now))


def _metrics(counts: EventCounts, gauges: EventGauges, now: float) -> Iterator[Metric]:
    waiting = gauges.pending
    events = {model: each.events for model, each in waiting.items()}
    ages = {model: max(now - each.oldest_at, 0.0) for model, each in waiting.items() if each.oldest_at}
    yield _labelled_metric(
        "accepted_total", COUNTER, "Events that were taken, durably.", "model", counts.accepted_events
    )
    yield _labelled_metric(
        "repeated_total", COUNTER, "Events that came again under their key.", "model", counts.repeated_events
    )
    yield _labelled_metric("refused_total", COUNTER, "Requests that weren't taken.", "reason", counts.refused_requests)
    yield _unlabelled_metric(
        "received_bytes_total", COUNTER, "Bytes of the requests that were taken.", counts.received_bytes
    )
    yield _unlabelled_metric("commits_total", COUNTER, "Commits to the file.", gauges.commit_count)
    yield _labelled_metric("waiting", GAUGE, "Events that no table has yet.", "model", events)
    yield _labelled_metric("oldest_seconds", GAUGE, "For how long the oldest of them has waited.", "model", ages)
    yield _unlabelled_metric("file_bytes", GAUGE, "Bytes of the file that holds them.", gauges.file_bytes)
    yield _unlabelled_metric("free_bytes", GAUGE, "Bytes that are free on its disk.", gauges.free_bytes)


def _labelled_metric(name: str, of_type: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    samples = [MetricSample({label: of}, value) for of, value in sorted(values.items())]
    return Metric(f"ondatra_events_{name}", of_type, text, samples)


def _unlabelled_metric(name: str, of_type: str, text: str, value: float) -> Metric:
    return Metric(f"ondatra_events_{name}", of_type, text, [MetricSample({}, value)])
