"""What has to be done from time to time, one duty after the other; each says what it did.

A duty is a module beside. When they are done: by `ondatra maintain`, and by Dagster's schedules.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping

from ondatra_dagster import interruption
from ondatra_dagster.changes import Json
from ondatra_dagster.errors import OndatraError


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """How one duty ended."""

    duty: str
    did: str  # a sentence for people
    counts: Mapping[str, int] = dataclasses.field(default_factory=dict)
    each: tuple[Mapping[str, Json], ...] = ()  # the same of each thing that something was done to
    is_good: bool = True


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Duty:
    """Something to be done, under the name by which it is told of."""

    name: str
    do: Callable[[], Done]


def maintain(duties: Iterable[Duty], explain: Callable[[Exception], str]) -> Iterator[Done]:
    """Do each of them in turn, whatever became of the others; one that fails says why.

    `explain` makes a sentence of an unforeseen error.
    """
    for duty in duties:
        yield _do(duty, explain)


@interruption.interruptible()
def _do(duty: Duty, explain: Callable[[Exception], str]) -> Done:
    try:
        return duty.do()
    except Exception as error:  # the edge of a duty: the others have their turn
        interruption.check()  # the duty fails because it was interrupted
        why = str(error) if isinstance(error, OndatraError) else explain(error)
        return Done(duty=duty.name, did=why, is_good=False)
