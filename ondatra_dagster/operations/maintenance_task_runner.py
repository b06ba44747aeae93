"""The runner of maintenance tasks: one after the other, each with a message about what it did.

`ondatra maintain` and Dagster's schedules use it. The tasks are in modules of their own.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping

from ondatra_dagster import interruption
from ondatra_dagster.errors import OndatraError
from ondatra_dagster.row_changes import Json


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """The result of one task."""

    task: str
    message: str  # a sentence for the user
    counts: Mapping[str, int] = dataclasses.field(default_factory=dict)
    details: tuple[Mapping[str, Json], ...] = ()  # the same for each sync, table or alert
    is_successful: bool = True


MaintenanceTask = Callable[[], TaskResult]


def run_tasks(tasks: Mapping[str, MaintenanceTask], explain: Callable[[Exception], str]) -> Iterator[TaskResult]:
    """Run the tasks one after the other, and yield their results. A failed task doesn't stop the others.

    The result of a failed task says why; `explain` makes a sentence of an unexpected error.
    """
    for name, task in tasks.items():
        yield _run_task(name, task, explain)


@interruption.raise_on_signal()
def _run_task(name: str, task: MaintenanceTask, explain: Callable[[Exception], str]) -> TaskResult:
    try:
        return task()
    except Exception as error:  # the outermost handler of a task: the others still run
        interruption.raise_if_interrupted()  # the task fails because it was interrupted
        message = str(error) if isinstance(error, OndatraError) else explain(error)
        return TaskResult(task=name, message=message, is_successful=False)
