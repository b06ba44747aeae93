"""What is alerting now, and which alerts are still to be sent: kept in `.ondatra/alerts.sqlite`.

A row is a subject and a rule, from when they began to be alerting until that is over. Its begin, each new
cause and its end are one alert each. An alert is noted in the same transaction and stays until it is sent.
"""

import dataclasses
import enum
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

import orjson

from ondatra_dagster.changes import Json
from ondatra_dagster.store.database import Schema, Store
from ondatra_dagster.store.lock import FileLock
from ondatra_dagster.store.shared_file import open_existing, transaction

SCHEMA = Schema(
    "alerts",
    (
        (
            "first",
            """
            create table standing (
                type text not null,  -- of the subject: sync or model, which may have one name
                subject text not null,
                rule text not null,
                since text not null,  -- ISO 8601 in UTC
                sentence text not null,
                primary key (type, subject, rule)
            ) strict;
            create table outgoing (
                number integer primary key,
                id text not null unique,
                body text not null,
                tries integer not null default 0,
                error text
            ) strict
            """,
        ),
        (
            "causes",
            """
            alter table standing add column causes text not null default '[]';
            alter table standing add column found integer not null default 1
            """,
        ),
    ),
    if_damaged="move it away: what is alerting is told again, and alerts that weren't sent yet are lost",
)
MOST_CAUSES = 10  # that are told of one alert: a text that nobody could normalize floods no receiver
COLUMNS = "type, subject, rule, since, sentence, causes, found"
FIND_STANDING = f"""
select {COLUMNS} from standing where type = :type and subject = :subject and rule = :rule
"""
ADD_STANDING = """
insert into standing (type, subject, rule, since, sentence, causes)
values (:type, :subject, :rule, :since, :sentence, :causes)
"""
UPDATE_STANDING = """
update standing set sentence = :sentence, causes = :causes, found = found + 1
where type = :type and subject = :subject and rule = :rule
"""
END_STANDING = "delete from standing where type = :type and subject = :subject and rule = :rule"
ADD_OUTGOING = "insert into outgoing (id, body) values (:id, :body)"
OUTGOING = "select number, id, body from outgoing order by number"
TAKEN = "delete from outgoing where number = ?"
REFUSED = "update outgoing set tries = tries + 1, error = ? where number = ?"
STANDING = f"select {COLUMNS} from standing order by since, subject, rule"
COUNT_OUTGOING = "select count(*) from outgoing"


class SubjectType(enum.StrEnum):
    """What a subject is."""

    SYNC = "sync"
    MODEL = "model"


class State(enum.StrEnum):
    """What an alert says of its subject and rule."""

    FIRED = "fired"
    CHANGED = "changed"  # alerting still, for another cause
    RECOVERED = "recovered"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a rule says of a subject now."""

    type: SubjectType = SubjectType.SYNC
    subject: str
    rule: str
    sentence: str | None  # None: all is well
    local_sentence: str = ""  # with an API's own words: shown on this machine, and never sent
    cause: str = ""  # the sentence without what differs each time; "": the rule has but one cause
    recovery: str = ""  # why it is over, where that isn't the usual reason
    only_begins: bool = False  # says nothing new of what is alerting already
    numbers: Mapping[str, Json] = dataclasses.field(default_factory=dict)


class Standing(NamedTuple):
    """Something that is alerting, for its newest cause."""

    type: str
    subject: str
    rule: str
    since: str
    sentence: str
    causes: str  # JSON: those that were told
    found: int  # how often, since it began


class Outgoing(NamedTuple):
    """An alert that nobody has taken yet."""

    number: int
    id: str
    body: str


class Alert(NamedTuple):
    """What is written down when something begins or ends."""

    id: str
    at: str
    body: Mapping[str, Json]


MakeAlert = Callable[[Reading, State], Alert]


class AlertBook:
    """The file. Any number of processes may use it at once."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def note(
        self, readings: list[Reading], make: MakeAlert, *, known: Collection[Standing] | None = None
    ) -> int:
        """Store what has begun, changed or ended since the last time; return how many alerts that makes.

        With `known`, an alert ends only if it is among these: what was found again since then stays.
        """
        if not readings or (not self._path.exists() and all(each.sentence is None for each in readings)):
            return 0
        with self._writing() as store:
            return sum(_note(store, reading, make, known) for reading in readings)

    def outgoing(self) -> list[Outgoing]:
        """What is to be sent, the oldest first."""
        with self._reading() as store:
            return [Outgoing(*row) for row in store.rows(OUTGOING)] if store else []

    def taken(self, alert: Outgoing) -> None:
        """The receiver has it."""
        with self._writing() as store:
            store.run(TAKEN, (alert.number,))

    def refused(self, alert: Outgoing, why: str) -> None:
        """It stays, and is sent at the next look."""
        with self._writing() as store:
            store.run(REFUSED, (why, alert.number))

    def standing(self) -> list[Standing]:
        """Return what is alerting now, the oldest first."""
        with self._reading() as store:
            return [Standing(*row) for row in store.rows(STANDING)] if store else []

    def sending(self) -> FileLock:
        """Held by who sends, so that two don't send the same; BusyError at once."""
        return FileLock(self._path.parent / "locks" / "alerts.sending.lock", purpose="sends alerts")

    def _reading(self) -> AbstractContextManager[Store | None]:
        return open_existing(self._path, SCHEMA)

    def _writing(self) -> AbstractContextManager[Store]:
        return transaction(self._path, SCHEMA, purpose="writing alerts")


def _note(store: Store, reading: Reading, make: MakeAlert, known: Collection[Standing] | None) -> bool:
    of = {"type": reading.type, "subject": reading.subject, "rule": reading.rule}
    before = next((Standing(*row) for row in store.rows(FIND_STANDING, of)), None)
    state = _next_state(reading, before, known)
    alert = make(reading, state) if state else None
    if state is State.RECOVERED:
        store.run(END_STANDING, of)
    elif reading.sentence is not None and not (before and reading.only_begins):
        told: list[str] = orjson.loads(before.causes) if before else []
        if state and reading.cause:
            told.append(reading.cause)
        of |= {"sentence": reading.local_sentence or reading.sentence, "causes": orjson.dumps(told).decode()}
        if alert and before is None:
            store.run(ADD_STANDING, {**of, "since": alert.at})
        else:
            store.run(UPDATE_STANDING, of)
    if alert:
        store.run(ADD_OUTGOING, {"id": alert.id, "body": orjson.dumps(dict(alert.body)).decode()})
    return alert is not None


def _next_state(
    reading: Reading, before: Standing | None, known: Collection[Standing] | None
) -> State | None:
    """Return what is to be told; None when that is nothing."""
    if reading.sentence is None:
        return State.RECOVERED if before and (known is None or before in known) else None
    if before is None:
        return State.FIRED
    told = orjson.loads(before.causes)
    is_new = reading.cause not in ("", *told) and len(told) < MOST_CAUSES
    return State.CHANGED if is_new and not reading.only_begins else None
