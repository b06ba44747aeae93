"""A sync's queue and dead letters: what is still to be sent, and what a replay would send."""

from collections.abc import Iterator
from datetime import datetime

import orjson

from ondatra_dagster.browser import links
from ondatra_dagster.browser.asked import Asked
from ondatra_dagster.browser.elements import Content, Html, element
from ondatra_dagster.browser.payloads import payload
from ondatra_dagster.browser.shell import Column, Crumb, Page, facts, heading, pager, section, table
from ondatra_dagster.browser.told import age, count_of, message, number, time_of, until
from ondatra_dagster.browser.ways import crumbs, lost_notice
from ondatra_dagster.delivery.queue.letters import DeadLetter
from ondatra_dagster.delivery.queue.states import QueueState
from ondatra_dagster.sync.dead_letters import dead_letters, name_of, refusal
from ondatra_dagster.sync.hold import hold
from ondatra_dagster.sync.sync import Sync
from ondatra_dagster.tracking.found import Stage

SHOWN = 25
ROWS = 10  # of a letter: a whole table may be one
COLUMNS = (
    Column("Key", class_="key"),
    Column("Died"),
    Column("Attempts", is_number=True),
    Column("Error", class_="reason"),
    Column("A replay would send", class_="wide"),
)


def queue_page(asked: Asked) -> Page:
    """The queue of the sync that the path names."""
    sync = asked.sync
    lost = lost_notice(asked.workspace, sync)
    queue = asked.workspace.queue(sync.id) if lost is None else None
    letters = list(dead_letters(sync, limit=SHOWN + 1, offset=SHOWN * (asked.page - 1), most_rows=ROWS))
    held = hold(sync, asked.workspace.settings)
    return Page(
        title=f"{sync.id} · queue",
        crumbs=crumbs(sync, Crumb("Queue", links.queue(sync.id))),
        body=(
            heading("Queue and dead letters", under=sync.id),
            element("p", f"Held: {held}.", class_="notice") if held else None,
            lost or _waiting(sync, queue, asked.now),
            section(
                "Dead letters",
                _command(sync) if letters else None,
                element(
                    "div",
                    table(
                        f"Dead letters of {sync.id}, the oldest first",
                        COLUMNS,
                        (_row(letter, sync) for letter in letters[:SHOWN]),
                        none=_none(page=asked.page, is_lost=lost is not None),
                    ),
                    class_="card",
                ),
                pager(
                    page=asked.page,
                    link_of=lambda page: links.queue(sync.id, page=page),
                    has_more=len(letters) > SHOWN,
                    newer="older ones",
                    older="later ones",
                ),
                beside=element("span", number(queue.dead), class_="count") if queue else None,
            ),
        ),
    )


def _none(*, page: int, is_lost: bool) -> str:
    if is_lost:
        return "Nobody knows of dead letters."
    return "There are no more dead letters." if page > 1 else "There are no dead letters."


def _waiting(sync: Sync, queue: QueueState | None, now: datetime) -> Html:
    if queue is None:
        return element("p", "There is no queue yet: the sync has never run.", class_="none")
    return facts(
        [
            ("Pending", _rows(sync, Stage.PENDING, queue.pending)),
            ("Waiting", _rows(sync, Stage.WAITING, queue.waiting)),
            ("Of these due", number(queue.due)),
            ("In open jobs", number(queue.in_jobs)),
            ("Oldest waits for", age(queue.oldest_since, now)),
            ("Next retry", until(queue.next_due_at, now)),
            ("Taken in up to version", number(queue.watermark) if queue.watermark >= 0 else "none yet"),
        ]
    )


def _rows(sync: Sync, stage: Stage, count: int) -> Content:
    return element("a", number(count), href=links.records(sync.id, status=stage)) if count else number(count)


def _command(sync: Sync) -> Html:
    return element(
        "p",
        "Mend the rows at their source, or send them as they are: ",
        element("code", f"ondatra replay {sync.id}"),
        " sends what is shown here, with fresh attempts. This page changes nothing.",
        class_="under",
    )


def _row(letter: DeadLetter, sync: Sync) -> Iterator[Content]:
    yield element("code", name_of(letter, sync) or "(none)")
    yield time_of(letter.died_at)
    yield refusal(letter) or number(letter.attempts)
    yield message(letter.error)
    yield _sends(letter)


def _sends(letter: DeadLetter) -> Content:
    if not letter.rows:
        return "its content, which has no rows" if letter.weight else "nothing: it is as it should be"
    shown = [payload(orjson.dumps(row).decode(), change.value) for change, row in letter.sends]
    left = letter.rows - len(letter.sends)
    more = f"… and {count_of(left, 'row')} more, {number(letter.rows)} in all"
    return (shown, element("small", more) if left else None)
