"""The request to write a query's result to a model's table. This module doesn't load Spark; model_run.py writes."""

import dataclasses
from typing import TYPE_CHECKING

from ondatra_dagster.deltalog.commit_user_metadata import CommitMetadata
from ondatra_dagster.event_batches import EventBatchSource
from ondatra_dagster.project.model import Model

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ModelWrite:
    """The result of a model's query, and how to write it to the model's table."""

    model: Model
    frame: "DataFrame"  # the query's rows
    note: CommitMetadata
    is_full: bool = False  # True: also delete rows that the query no longer returns, if the kind would keep them
    # the table's version at the plan; if another run has written since then, the query is evaluated again
    planned_version: str | None = None
    events: EventBatchSource | None = None  # only for kind events: the events to append
