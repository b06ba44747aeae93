"""What the collector counts, as text for Prometheus, format 0.0.4."""

import collections
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ondatra_dagster.collector.event_file import Waiting
from ondatra_dagster.prometheus import COUNTER, GAUGE, Metric, Sample, format_metrics


class Counts:
    """What happened since the start."""

    def __init__(self) -> None:
        self.accepted: collections.Counter[str] = collections.Counter()  # events by model
        self.repeated: collections.Counter[str] = collections.Counter()
        self.refused: collections.Counter[str] = collections.Counter()  # requests by reason
        self.bytes = 0


class Gauges(NamedTuple):
    """How it stands."""

    waiting: Mapping[str, Waiting]  # by model
    commits: int
    file_bytes: int
    free_bytes: int


def metrics_text(counts: Counts, gauges: Gauges, *, now: float) -> str:
    """Return all that is counted, by model or reason where there are several."""
    return format_metrics(_metrics(counts, gauges, now))


def _metrics(counts: Counts, gauges: Gauges, now: float) -> Iterator[Metric]:
    waiting = gauges.waiting
    events = {model: each.events for model, each in waiting.items()}
    ages = {model: max(now - each.oldest_at, 0.0) for model, each in waiting.items() if each.oldest_at}
    yield _each("accepted_total", COUNTER, "Events that were taken, durably.", "model", counts.accepted)
    yield _each(
        "repeated_total", COUNTER, "Events that came again under their key.", "model", counts.repeated
    )
    yield _each("refused_total", COUNTER, "Requests that weren't taken.", "reason", counts.refused)
    yield _one("received_bytes_total", COUNTER, "Bytes of the requests that were taken.", counts.bytes)
    yield _one("commits_total", COUNTER, "Commits to the file.", gauges.commits)
    yield _each("waiting", GAUGE, "Events that no table has yet.", "model", events)
    yield _each("oldest_seconds", GAUGE, "For how long the oldest of them has waited.", "model", ages)
    yield _one("file_bytes", GAUGE, "Bytes of the file that holds them.", gauges.file_bytes)
    yield _one("free_bytes", GAUGE, "Bytes that are free on its disk.", gauges.free_bytes)


def _each(name: str, of_type: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    samples = [Sample({label: of}, value) for of, value in sorted(values.items())]
    return Metric(f"ondatra_events_{name}", of_type, text, samples)


def _one(name: str, of_type: str, text: str, value: float) -> Metric:
    return Metric(f"ondatra_events_{name}", of_type, text, [Sample({}, value)])
