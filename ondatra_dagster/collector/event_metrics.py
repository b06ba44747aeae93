"""The collector's metrics as text for Prometheus, format 0.0.4."""

import collections
from collections.abc import Mapping, Sequence
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
    waiting = gauges.pending
    events = {model: each.events for model, each in waiting.items()}
    ages = {model: max(now - each.oldest_at, 0.0) for model, each in waiting.items() if each.oldest_at}
    received, commits = {"": counts.received_bytes}, {"": gauges.commit_count}
    metrics: Sequence[tuple[str, str, str, str, Mapping[str, float]]] = (
        ("accepted_total", COUNTER, "Events that were taken, durably.", "model", counts.accepted_events),
        ("repeated_total", COUNTER, "Events that came again under their key.", "model", counts.repeated_events),
        ("refused_total", COUNTER, "Requests that weren't taken.", "reason", counts.refused_requests),
        ("received_bytes_total", COUNTER, "Bytes of the requests that were taken.", "", received),
        ("commits_total", COUNTER, "Commits to the file.", "", commits),
        ("waiting", GAUGE, "Events that no table has yet.", "model", events),
        ("oldest_seconds", GAUGE, "For how long the oldest of them has waited.", "model", ages),
        ("file_bytes", GAUGE, "Bytes of the file that holds them.", "", {"": gauges.file_bytes}),
        ("free_bytes", GAUGE, "Bytes that are free on its disk.", "", {"": gauges.free_bytes}),
    )
    return format_metrics(
        Metric(
            f"ondatra_events_{name}",
            kind,
            text,
            [MetricSample({label: of} if label else {}, value) for of, value in sorted(values.items())],
        )
        for name, kind, text, label, values in metrics
    )
