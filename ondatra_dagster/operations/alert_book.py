"""What is amiss now, and which alerts are still to be sent: kept in `.ondatra/alerts.sqlite`.

What is amiss is one row of a subject and a rule, from when it was noticed until it is over. Each end of it is
one alert, which is noted in the same transaction and stays until the receiver has taken it.
"""

import dataclasses
import enum
from collections.abc import Callable, Mapping
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
    ),
)
IS_STANDING = "select 1 from standing where type = :type and subject = :subject and rule = :rule"
ADD_STANDING = "insert into standing values (:type, :subject, :rule, :since, :sentence)"
END_STANDING = "delete from standing where type = :type and subject = :subject and rule = :rule"
ADD_OUTGOING = "insert into outgoing (id, body) values (:id, :body)"
OUTGOING = "select number, id, body from outgoing order by number"
TAKEN = "delete from outgoing where number = ?"
REFUSED = "update outgoing set tries = tries + 1, error = ? where number = ?"
STANDING = "select type, subject, rule, since, sentence from standing order by since, subject, rule"
COUNT_OUTGOING = "select count(*) from outgoing"


class SubjectType(enum.StrEnum):
    """What a subject is."""

    SYNC = "sync"
    MODEL = "model"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a rule says of a subject now."""

    type: SubjectType = SubjectType.SYNC
    subject: str
    rule: str
    sentence: str | None  # None: all is well
    numbers: Mapping[str, Json] = dataclasses.field(default_factory=dict)


class Standing(NamedTuple):
    """Something that is amiss."""

    type: str
    subject: str
    rule: str
    since: str
    sentence: str


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


MakeAlert = Callable[[Reading, bool], Alert]  # the reading, and whether it fires; else it has recovered


class AlertBook:
    """The file. Any number of processes may use it at once."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def note(self, readings: list[Reading], make: MakeAlert) -> int:
        """Write down what has begun or ended since the last time; how many alerts that makes."""
        if not readings or (not self._path.exists() and all(each.sentence is None for each in readings)):
            return 0
        with self._writing() as store:
            return sum(_note(store, reading, make) for reading in readings)

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
        """What is amiss now, the oldest first."""
        with self._reading() as store:
            return [Standing(*row) for row in store.rows(STANDING)] if store else []

    def sending(self) -> FileLock:
        """Held by who sends, so that two don't send the same; BusyError at once."""
        return FileLock(self._path.parent / "locks" / "alerts.sending.lock", purpose="sends alerts")

    def _reading(self) -> AbstractContextManager[Store | None]:
        return open_existing(self._path, SCHEMA)

    def _writing(self) -> AbstractContextManager[Store]:
        return transaction(self._path, SCHEMA, purpose="writing alerts")


def _note(store: Store, reading: Reading, make: MakeAlert) -> bool:
    of = {"type": reading.type, "subject": reading.subject, "rule": reading.rule}
    is_standing = bool(store.rows(IS_STANDING, of))
    fires = reading.sentence is not None
    if is_standing == fires:
        return False
    alert = make(reading, fires)
    if reading.sentence is not None:
        store.run(ADD_STANDING, {**of, "since": alert.at, "sentence": reading.sentence})
    else:
        store.run(END_STANDING, of)
    store.run(ADD_OUTGOING, {"id": alert.id, "body": orjson.dumps(dict(alert.body)).decode()})
    return True
