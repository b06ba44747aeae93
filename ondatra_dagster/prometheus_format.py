"""The text format of Prometheus, version 0.0.4: metrics as lines. Other modules decide what is measured."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
GAUGE, COUNTER = "gauge", "counter"
LABEL_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class MetricSample(NamedTuple):
    """A value of a metric, and the labels that distinguish it from the metric's other values."""

    labels: Mapping[str, str]
    value: float


class Metric(NamedTuple):
    """A metric with its samples. Without samples, it has no lines in the text."""

    name: str
    type: str
    help: str
    samples: Iterable[MetricSample]


def format_metrics(metrics: Iterable[Metric]) -> str:
    """Return the metrics as a text that ends with a line feed; "" if there are no metrics."""
    return "".join(f"{line}\n" for metric in metrics for line in _format_metric(metric))


def _format_metric(metric: Metric) -> Iterator[str]:
    samples = [f"{metric.name}{_format_labels(labels)} {_format_value(value)}" for labels, value in metric.samples]
    if samples:
        yield f"# HELP {metric.name} {metric.help}"
        yield f"# TYPE {metric.name} {metric.type}"
        yield from samples


def _format_labels(labels: Mapping[str, str]) -> str:
    label_text = ",".join(f'{name}="{text.translate(LABEL_ESCAPES)}"' for name, text in labels.items())
    return f"{{{label_text}}}" if label_text else ""


def _format_value(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))
