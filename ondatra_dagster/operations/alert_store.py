"""The active alerts, and the alerts that are still to be sent, stored in `.ondatra/alerts.sqlite`.

An active alert has a subject and a rule, and lasts from the start of a problem to its end. One alert to send is
stored for the start, for each new cause, and for the end. Such an alert is stored in the transaction that
changes the active alert, and deleted when it was sent.
"""

import dataclasses
import enum
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import NamedTuple

import orjson

from ondatra_dagster.row_changes import Json
from ondatra_dagster.storage.file_lock import FileLock
from ondatra_dagster.storage.sqlite_database import SqliteSchema, SqliteStore, open_existing_database, open_transaction

ALERT_SCHEMA = SqliteSchema(
    "alerts",
    (
        (
            "first",
            """
            create table active_alert (
                type text not null,  -- of the subject: sync or model, which may have one name
                subject text not null,
                rule text not null,
                since text not null,  -- ISO 8601 in UTC
                sentence text not null,
                causes text not null default '[]',
                found integer not null default 1,
                primary key (type, subject, rule)
            ) strict;
            create table unsent_alert (
                number integer primary key,
                id text not null unique,
                body text not null,
                tries integer not null default 0,
                error text
            ) strict
            """,
        ),
    ),
    damage_advice="move it away: active alerts are sent again, and unsent alerts are lost",
)
MAX_CAUSES = 10  # causes that one active alert reports: error texts that always differ must not flood the receiver
ACTIVE_COLUMNS = "type, subject, rule, since, sentence, causes, found"
FIND_ACTIVE = f"""
select {ACTIVE_COLUMNS} from active_alert where type = :type and subject = :subject and rule = :rule
"""
ADD_ACTIVE = """
insert into active_alert (type, subject, rule, since, sentence, causes)
values (:type, :subject, :rule, :since, :sentence, :causes)
"""
UPDATE_ACTIVE = """
update active_alert set sentence = :sentence, causes = :causes, found = found + 1
where type = :type and subject = :subject and rule = :rule
"""
DELETE_ACTIVE = "delete from active_alert where type = :type and subject = :subject and rule = :rule"
ADD_UNSENT = "insert into unsent_alert (id, body) values (:id, :body)"
SELECT_UNSENT = "select number, id, body from unsent_alert order by number"
DELETE_SENT = "delete from unsent_alert where number = ?"
STORE_SEND_ERROR = "update unsent_alert set tries = tries + 1, error = ? where number = ?"
SELECT_ACTIVE = f"select {ACTIVE_COLUMNS} from active_alert order by since, subject, rule"


class SubjectType(enum.StrEnum):
    """The type of an alert's subject: a sync or a model."""

    SYNC = "sync"
    MODEL = "model"


class AlertState(enum.StrEnum):
    """The change of a problem that an alert reports."""

    FIRED = "fired"
    CHANGED = "changed"  # still alerting, for another cause
    RECOVERED = "recovered"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RuleResult:
    """The result of a rule for one sync or model."""

    type: SubjectType = SubjectType.SYNC
    subject: str
    rule: str
    sentence: str | None  # None: there is no problem
    local_sentence: str = ""  # with an API's message: shown on this machine, and never sent
    cause: str = ""  # the sentence without numbers, times and quoted values; "": the rule has only one cause
    recovery: str = ""  # why the problem is over; "": for the usual reason
    is_ignored_if_active: bool = False  # whether the result adds nothing to an alert that is active already
    numbers: Mapping[str, Json] = dataclasses.field(default_factory=dict)


class ActiveAlert(NamedTuple):
    """A problem that hasn't ended, with its newest cause."""

    type: str
    subject: str
    rule: str
    since: str
    sentence: str
    causes: str  # a JSON array of the causes that were reported
    occurrences: int  # how often the problem was found since it began


class UnsentAlert(NamedTuple):
    """An alert that no receiver has accepted yet."""

    number: int
    id: str
    body: str


class Alert(NamedTuple):
    """An alert to send, which is stored when a problem begins, changes or ends."""

    id: str
    created_at: str
    body: Mapping[str, Json]


BuildAlert = Callable[[RuleResult, AlertState], Alert]


class AlertStore:
    """The file with the alerts. Several processes may use it at once."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def apply_results(
        self,
        readings: list[RuleResult],
        build_alert: BuildAlert,
        *,
        known_alerts: Collection[ActiveAlert] | None = None,
    ) -> int:
        """Store which problems began, changed or ended according to these results; return the number of new alerts.

        With `known_alerts`, only an alert in this collection can end. So an alert whose problem was found
        again since it was read stays active.
        """
        if not readings or (not self._path.exists() and all(result.sentence is None for result in readings)):
            return 0
        with open_transaction(self._path, ALERT_SCHEMA, purpose="writing alerts") as store:
            return sum(_apply_result(store, reading, build_alert, known_alerts) for reading in readings)

    def read_unsent(self) -> list[UnsentAlert]:
        """Return the alerts that are still to be sent, oldest first."""
        with open_existing_database(self._path, ALERT_SCHEMA) as store:
            return [UnsentAlert(*row) for row in store.fetch_rows(SELECT_UNSENT)] if store else []

    def delete_sent(self, alert: UnsentAlert) -> None:
        """Delete an alert that the receiver has accepted."""
        with open_transaction(self._path, ALERT_SCHEMA, purpose="writing alerts") as store:
            store.execute(DELETE_SENT, (alert.number,))

    def store_send_error(self, alert: UnsentAlert, reason: str) -> None:
        """Store the reason why an alert wasn't accepted. The alert stays, and the next check sends it again."""
        with open_transaction(self._path, ALERT_SCHEMA, purpose="writing alerts") as store:
            store.execute(STORE_SEND_ERROR, (reason, alert.number))

    def read_active_alerts(self) -> list[ActiveAlert]:
        """Return the active alerts, oldest first."""
        with open_existing_database(self._path, ALERT_SCHEMA) as store:
            return [ActiveAlert(*row) for row in store.fetch_rows(SELECT_ACTIVE)] if store else []

    def sending_lock(self) -> FileLock:
        """Return the lock that a process holds while it sends, so that no alert is sent twice.

        If another process holds it, the lock raises BusyError at once.
        """
        return FileLock(self._path.parent / "locks" / "alerts.sending.lock", purpose="sends alerts")


def _apply_result(
    store: SqliteStore, rule_result: RuleResult, build_alert: BuildAlert, known_alerts: Collection[ActiveAlert] | None
) -> bool:
    parameters = {"type": rule_result.type, "subject": rule_result.subject, "rule": rule_result.rule}
    active_alert = next((ActiveAlert(*row) for row in store.fetch_rows(FIND_ACTIVE, parameters)), None)
    state = _next_state(rule_result, active_alert, known_alerts)
    alert = build_alert(rule_result, state) if state else None
    if state is AlertState.RECOVERED:
        store.execute(DELETE_ACTIVE, parameters)
    elif rule_result.sentence is not None and not (active_alert and rule_result.is_ignored_if_active):
        causes: list[str] = orjson.loads(active_alert.causes) if active_alert else []
        if state and rule_result.cause:
            causes.append(rule_result.cause)
        parameters |= {
            "sentence": rule_result.local_sentence or rule_result.sentence,
            "causes": orjson.dumps(causes).decode(),
        }
        if alert and active_alert is None:
            store.execute(ADD_ACTIVE, {**parameters, "since": alert.created_at})
        else:
            store.execute(UPDATE_ACTIVE, parameters)
    if alert:
        store.execute(ADD_UNSENT, {"id": alert.id, "body": orjson.dumps(dict(alert.body)).decode()})
    return alert is not None


def _next_state(
    rule_result: RuleResult, active_alert: ActiveAlert | None, known_alerts: Collection[ActiveAlert] | None
) -> AlertState | None:
    """Return the state that an alert has to report; None if no alert is needed."""
    if rule_result.sentence is None:
        return AlertState.RECOVERED if active_alert and (known_alerts is None or active_alert in known_alerts) else None
    if active_alert is None:
        return AlertState.FIRED
    causes = orjson.loads(active_alert.causes)
    is_new = rule_result.cause not in ("", *causes) and len(causes) < MAX_CAUSES
    return AlertState.CHANGED if is_new and not rule_result.is_ignored_if_active else None
