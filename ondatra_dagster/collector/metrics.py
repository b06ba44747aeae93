"""What the collector counts, as text for Prometheus, format 0.0.4."""

import collections
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ondatra_dagster.collector.event_file import Waiting

ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Metric(NamedTuple):
    name: str
    kind: str  # counter or gauge
    help: str
    label: str | None  # the label's name
    values: Mapping[str, float]  # by the label's value


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
    return "".join(line + "\n" for metric in _metrics(counts, gauges, now) for line in _lines(metric))


def _metrics(counts: Counts, gauges: Gauges, now: float) -> Iterator[Metric]:
    def plain(name: str, kind: str, text: str, value: float) -> Metric:
        return Metric(name, kind, text, None, {"": value})

    waiting = gauges.waiting
    yield Metric("accepted_total", "counter", "Events that were taken, durably.", "model", counts.accepted)
    yield Metric(
        "repeated_total", "counter", "Events that came again under their key.", "model", counts.repeated
    )
    yield Metric("refused_total", "counter", "Requests that weren't taken.", "reason", counts.refused)
    yield plain("received_bytes_total", "counter", "Bytes of the requests that were taken.", counts.bytes)
    yield plain("commits_total", "counter", "Commits to the file.", gauges.commits)
    yield Metric(
        "waiting",
        "gauge",
        "Events that no table has yet.",
        "model",
        {m: w.events for m, w in waiting.items()},
    )
    ages = {model: max(now - each.oldest_at, 0.0) for model, each in waiting.items() if each.oldest_at}
    yield Metric("oldest_seconds", "gauge", "For how long the oldest of them has waited.", "model", ages)
    yield plain("file_bytes", "gauge", "Bytes of the file that holds them.", gauges.file_bytes)
    yield plain("free_bytes", "gauge", "Bytes that are free on its disk.", gauges.free_bytes)


def _lines(metric: Metric) -> Iterator[str]:
    name = f"ondatra_events_{metric.name}"
    yield f"# HELP {name} {metric.help}"
    yield f"# TYPE {name} {metric.kind}"
    for label, value in sorted(metric.values.items()):
        labels = f'{{{metric.label}="{label.translate(ESCAPED)}"}}' if metric.label else ""
        yield f"{name}{labels} {float(value)!r}"
