"""The runner of maintenance tasks: it runs one task after the other, and each result has a message for the user.

`ondatra maintain` and Dagster's schedules use this runner. The tasks are in other modules.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping

from ondatra_dagster import interruption
from ondatra_dagster.errors import OndatraError
from ondatra_dagster.row_changes import Json


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """The result of one maintenance task."""

    task: str
    message: str  # a sentence for the user
    counts: Mapping[str, int] = dataclasses.field(default_factory=dict)
    details: tuple[Mapping[str, Json], ...] = ()  # the counts or other facts of each sync, table or alert
    is_successful: bool = True


MaintenanceTask = Callable[[], TaskResult]


def run_tasks(tasks: Mapping[str, MaintenanceTask], explain: Callable[[Exception], str]) -> Iterator[TaskResult]:
    """Run the tasks one after the other, and yield their results. A failed task doesn't stop the others.

    The result of a failed task says why it failed; `explain` makes a sentence of an unexpected error.
    """
    for name, task in tasks.items():
        yield _run_task(name, task, explain)


@interruption.raise_on_signal()
def _run_task(name: str, task: MaintenanceTask, explain: Callable[[Exception], str]) -> TaskResult:
    try:
        return task()
    except Exception as error:  # the outermost handler of a task: the other tasks still run
        interruption.raise_if_interrupted()  # an interruption caused the error
        message = str(error) if isinstance(error, OndatraError) else explain(error)
        return TaskResult(task=name, message=message, is_successful=False)
