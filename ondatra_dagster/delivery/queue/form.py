"""The form of a queue's units, kept beside them: none is sent in a form that it doesn't have."""

from typing import NamedTuple

from ondatra_dagster.delivery.queue.removals import KNOWN_SIZE, forget_contents
from ondatra_dagster.delivery.queue.tables import Queue
from ondatra_dagster.delivery.shapes import Form

FORM = "form"
NAMED_SINCE = "named_since"  # the run after which the records name keys as the units do now

# what an enqueue that was cut off left isn't there yet
LEFT = "select count(*), coalesce(sum(state = 'dead'), 0) from unit where version <= ?"


class Left(NamedTuple):
    """Units that have their form."""

    units: int
    dead: int  # of these


def known_form(queue: Queue) -> Form | None:
    """What its units were made as; None: there never was one."""
    text = queue.meta(FORM)
    return Form.load(text) if text else None


def units_left(queue: Queue) -> Left:
    units, dead = queue.store.rows(LEFT, (queue.watermark,))[0]
    return Left(int(units), int(dead))


def take_form(queue: Queue, form: Form, *, named_since: str) -> None:
    """Make units of this form from now on; the caller has the transaction, and no unit of another is left."""
    known = known_form(queue)
    if known and not known.has_units_of(form):
        forget_contents(queue)  # they count other units
        queue.forget_meta(KNOWN_SIZE)
    queue.set_meta(FORM, form.dump())
    queue.set_meta("shape", form.shape.value)
    queue.set_meta(NAMED_SINCE, named_since)
