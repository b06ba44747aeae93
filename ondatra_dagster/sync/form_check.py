"""Before anything is taken in or sent: have the queue's units the form in which this sync would send them?

A dead letter is a unit, too: a replay would send it, and a newer change of its row goes on from it.
"""

from collections.abc import Collection

from ondatra_dagster.delivery.frontier import NOTHING_ENQUEUED, Frontier
from ondatra_dagster.delivery.queue.form import FORM, NAMED_SINCE, Left, known_form, take_form, units_left
from ondatra_dagster.delivery.queue.tables import Queue
from ondatra_dagster.delivery.shapes import Form
from ondatra_dagster.errors import ResyncNeededError
from ondatra_dagster.sync.ports import Ports, SourceState
from ondatra_dagster.sync.sync import Sync
from ondatra_dagster.wording import count


def settle_form(queue: Queue, sync: Sync, ports: Ports, source: SourceState) -> None:
    """Make units in this sync's form from now on; ResyncNeededError when some of another are left."""
    known, form = known_form(queue), sync.form.over(source.columns)
    if known == form:
        return
    _refuse_another(queue, sync.id, form)
    _refuse_unseen(queue, sync, ports, form)
    since = named_since(known, queue.meta(NAMED_SINCE) or "", form, ports.tracking.runs(sync.id))
    with queue.store.immediate():
        take_form(queue, form, named_since=since)


def refuse_another_form(queue: Queue, sync: Sync) -> None:
    """ResyncNeededError when units are left that have another form than the sync's."""
    _refuse_another(queue, sync.id, sync.form)


def _refuse_another(queue: Queue, sync_id: str, form: Form) -> None:
    known = known_form(queue)
    if known and not known.has_units_of(form):
        _refuse(units_left(queue), known, sync_id, form)


def _refuse_unseen(queue: Queue, sync: Sync, ports: Ports, form: Form) -> None:
    """The same of changes that aren't in the queue yet: of a group they may be a few rows, of many."""
    known, watermark = known_form(queue), queue.watermark
    if known is None or known.has_units_of(form) or not form.has_many_rows or watermark == NOTHING_ENQUEUED:
        return
    if ports.has_old_changes(watermark):
        raise ResyncNeededError(
            f"{sync.id} has {form.told_beside(known)} now, and hasn't seen yet what {sync.model.name} changed"
            f" while it had {known.told_beside(form)}: that can't go out otherwise;"
            f" run `ondatra resync {sync.id}`"
        )


def refuse_form_of(frontier: Frontier, sync: Sync, source: SourceState) -> None:
    """The same, of the units that a lost queue would be made of."""
    known, form = form_of(frontier), sync.form.over(source.columns)
    if known and not known.has_units_of(form):
        left = [unit for unit in frontier.units if unit.version <= frontier.watermark]
        _refuse(Left(len(left), sum(unit.state == "dead" for unit in left)), known, sync.id, form)


def _refuse(left: Left, known: Form, sync_id: str, form: Form) -> None:
    if not left.units:
        return
    dead = f" ({count(left.dead, 'dead letter')} among them)" if left.dead else ""
    raise ResyncNeededError(
        f"{sync_id} has {form.told_beside(known)} now, but {count(left.units, 'key')} in its queue{dead}"
        f" came in with {known.told_beside(form)} and can't go out otherwise; put that back until"
        f" nothing is left of them, or run `ondatra resync {sync_id}`"
    )


def form_of(frontier: Frontier) -> Form | None:
    """In which its units are."""
    text = frontier.notes.get(FORM)
    return Form.load(text) if text else None


def named_since(known: Form | None, before: str, form: Form, runs: Collection[str]) -> str:
    """The run after which the records name keys as this form does; `before` holds for the known one."""
    if known is None or known.names_as(form):
        return before
    return max(runs, default="")
