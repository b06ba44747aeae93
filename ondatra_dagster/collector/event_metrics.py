"""The collector's metrics as text for Prometheus, format 0.0.4."""

import collections
import time
from collections.abc import Mapping, Sequence

from ondatra_dagster.prometheus_format import COUNTER, GAUGE, Metric, MetricSample, format_metrics


class EventCounts:
    """The counts since the collector's start."""

    def __init__(self) -> None:
        self.accepted_events: collections.Counter[str] = collections.Counter()  # events by model
        self.repeated_events: collections.Counter[str] = collections.Counter()
        self.refused_requests: collections.Counter[str] = collections.Counter()  # requests by reason
        self.received_bytes = 0


def format_event_metrics(
    counts: EventCounts,
    pending_counts: Mapping[str, int],
    oldest_times: Mapping[str, float],
    *,
    commit_count: int,
    file_bytes: int,
    free_bytes: int,
) -> str:
    """Return all metrics as text, by model or by reason if there are several values."""
    now = time.time()
    ages = {model: max(now - oldest_times[model], 0.0) for model in pending_counts if model in oldest_times}
    received_bytes, commits = {"": counts.received_bytes}, {"": commit_count}
    metrics: Sequence[tuple[str, str, str, str, Mapping[str, float]]] = (
        ("accepted_total", COUNTER, "Events that were accepted and stored durably.", "model", counts.accepted_events),
        ("repeated_total", COUNTER, "Events received again with the same key.", "model", counts.repeated_events),
        ("refused_total", COUNTER, "Requests that were refused.", "reason", counts.refused_requests),
        ("received_bytes_total", COUNTER, "Bytes of the accepted requests.", "", received_bytes),
        ("commits_total", COUNTER, "Commits to the file.", "", commits),
        ("waiting", GAUGE, "Events that no table has yet.", "model", pending_counts),
        ("oldest_seconds", GAUGE, "Waiting time of the oldest of these events.", "model", ages),
        ("file_bytes", GAUGE, "Bytes of the file that holds them.", "", {"": file_bytes}),
        ("free_bytes", GAUGE, "Bytes that are free on its disk.", "", {"": free_bytes}),
    )
    return format_metrics(
        Metric(
            f"ondatra_events_{name}",
            kind,
            text,
            [
                MetricSample({label: label_value} if label else {}, value)
                for label_value, value in sorted(values.items())
            ],
        )
        for name, kind, text, label, values in metrics
    )
