"""When alerts are looked at: as models and syncs end, and from time to time. The rules are operations'."""

import logging
import re
import uuid
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime

from ondatra_dagster.changes import Json
from ondatra_dagster.delivery.http.webhook import Webhook
from ondatra_dagster.errors import BusyError, OndatraError
from ondatra_dagster.operations.alert_book import Alert, AlertBook, Reading, Standing, SubjectType
from ondatra_dagster.operations.alerts import (
    COMPARED,
    is_judged,
    read_crash,
    read_failure,
    read_runs,
    read_silence,
)
from ondatra_dagster.operations.maintain import Done
from ondatra_dagster.orchestration.progress import SyncResult
from ondatra_dagster.orchestration.workspace import Workspace
from ondatra_dagster.planning.delta_log import read_table_state, table_path
from ondatra_dagster.planning.table_past import written_at
from ondatra_dagster.project.model import Model
from ondatra_dagster.sync.hold import hold
from ondatra_dagster.sync.sync import Sync
from ondatra_dagster.tracking.history import Result, Totals
from ondatra_dagster.wording import count

ALERTS = "alerts"
RUNS_LOOKED_AT = 3 * COMPARED  # of which some only tried again what waited
UNFINISHED = (Result.FAILED, Result.INTERRUPTED)
QUOTED = re.compile(r"'[^'\n]*'")

log = logging.getLogger(__name__)


class Alerts:
    """Of one project. Without a webhook nothing is looked at; what goes wrong here fails no run."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._settings = workspace.settings.alerts
        self._book = AlertBook(workspace.settings.state / "alerts.sqlite")

    @property
    def is_on(self) -> bool:
        return self._settings.webhook is not None

    def model_ended(self, model: Model) -> None:
        """A model has its table as it should be."""
        self._note(lambda: [read_failure(SubjectType.MODEL, model.name, ())])

    def failed(self, subject_type: SubjectType, name: str, message: str) -> None:
        """A model or a sync has ended with that. Spark quotes values of rows, which are nobody's business."""
        self._note(lambda: [read_failure(subject_type, name, [QUOTED.sub("'…'", message)])])

    def sync_ended(self, result: SyncResult) -> None:
        """A sync has had its turn; of one that another process delivers nothing can be said."""
        if result.errors or result.summary.queue:
            self._note(lambda: self._of_run(result))

    def look(self, *, with_gone: bool = False) -> Done:
        """See which syncs have crashed, or been silent for too long, and send what is to be sent.

        With what is gone, too, for who has just read the project: a sensor may have done so days ago.
        """
        if not self.is_on:
            return Done(duty=ALERTS, did="none are sent: alerts.webhook isn't set")
        self._note(lambda: [*(self._gone() if with_gone else ()), *self._crashes(), *self._silences()])
        sent = self.send()
        left, standing = self._book.outgoing(), self._book.standing()
        waits = f"; {count(len(left), 'alert')} couldn't be sent and will be at the next look" if left else ""
        return Done(
            duty=ALERTS,
            did=f"{count(sent, 'alert')} sent, {len(standing)} amiss{waits}",
            counts={"sent": sent, "waiting": len(left), "standing": len(standing)},
            each=tuple(
                {each.type: each.subject, "rule": each.rule, "since": each.since} for each in standing
            ),
        )

    def standing(self) -> list[Standing]:
        """What is amiss, the oldest first; nothing while nobody looks whether it still is."""
        return self._book.standing() if self.is_on else []

    def send(self) -> int:
        """Send what is noted, the oldest first, until one isn't taken; how many were."""
        try:
            return self._send() if self.is_on and self._book.outgoing() else 0
        except BusyError:
            return 0  # another process is at it
        except OndatraError as error:
            log.warning("alerts are not sent: %s", error)
            return 0

    def _send(self) -> int:
        sent = 0
        with (
            self._book.sending(),
            Webhook(self._settings, secrets=self._workspace.settings.secret) as webhook,
        ):
            for alert in self._book.outgoing():
                if why := webhook.send(alert.id, alert.body):
                    self._book.refused(alert, why)
                    log.warning("an alert was not taken: %s", why)
                    break
                self._book.taken(alert)
                sent += 1
        return sent

    def _note(self, read: Callable[[], Iterable[Reading]]) -> None:
        if not self.is_on:
            return
        try:
            self._book.note(list(read()), self._alert)
        except OndatraError as error:
            log.warning("alerts are left as they are: %s", error)

    def _of_run(self, result: SyncResult) -> Iterator[Reading]:
        sync_id = result.sync.id
        errors = [verdict.description for verdict in result.errors]
        if errors or self._ended_well(result):
            yield read_failure(SubjectType.SYNC, sync_id, errors)
        if result.summary.run_id:
            runs = self._workspace.history.runs(sync_id, limit=RUNS_LOOKED_AT)
            yield from read_runs(sync_id, runs, self._settings)
        yield from self._silences([result.sync])

    def _ended_well(self, result: SyncResult) -> bool:
        """Whether what was amiss is over, after a turn without errors.

        A turn with nothing to do says nothing of a run that crashed, or that left rows when it failed or was
        interrupted.
        """
        if result.summary.run_id:
            return True
        history, sync_id = self._workspace.history, result.sync.id
        if history.crashed()[sync_id]:
            return False
        left = result.summary.queue and result.summary.queue.depth
        return not left or all(run.result not in UNFINISHED for run in history.runs(sync_id, limit=1))

    def _gone(self) -> Iterator[Reading]:
        """Of what nobody will ever call well: the project no longer has it, or its rule is off."""
        models = {model.name for model in self._workspace.project.models.values()}
        known = {SubjectType.SYNC: set(self._workspace.syncs), SubjectType.MODEL: models}
        for each in self._book.standing():
            of_type = SubjectType(each.type)
            if each.subject not in known[of_type] or not is_judged(each.rule, self._settings):
                yield Reading(type=of_type, subject=each.subject, rule=each.rule, sentence=None)

    def _crashes(self) -> Iterator[Reading]:
        """Of syncs whose process was killed: nobody was left to say so."""
        crashed = self._workspace.history.crashed()
        for sync_id in self._workspace.syncs:
            if crashed[sync_id]:
                yield read_crash(sync_id)

    def _silences(self, syncs: Iterable[Sync] | None = None) -> Iterator[Reading]:
        """Of these syncs, or of all."""
        totals = self._workspace.history.totals()
        for sync in self._workspace.syncs.values() if syncs is None else syncs:
            yield from self._silence(sync, totals.get(sync.id))

    def _silence(self, sync: Sync, last: Totals | None) -> Iterator[Reading]:
        workspace = self._workspace
        reading = read_silence(
            sync.id,
            waiting_since=waiting_since(workspace, sync),
            last_success=last.last_success.timestamp() if last and last.last_success else None,
            now=workspace.clock(),
            settings=self._settings,
        )
        if reading:
            yield reading

    def _alert(self, reading: Reading, fires: bool) -> Alert:  # noqa: FBT001 - the book calls it
        at = datetime.fromtimestamp(self._workspace.clock(), UTC).isoformat(timespec="seconds")
        is_sync = reading.type is SubjectType.SYNC
        newest = self._workspace.history.runs(reading.subject, limit=1) if is_sync else ()
        run = newest[0] if newest else None
        body: dict[str, Json] = {
            "id": uuid.uuid4().hex,
            "project": self._workspace.settings.root.name,
            reading.type.value: reading.subject,
            "rule": reading.rule,
            "state": "fired" if fires else "recovered",
            "at": at,
            "sentence": f"{reading.subject}: {reading.sentence or f'{reading.rule} is over'}",
            "numbers": dict(reading.numbers),
            "run": run.run_id if run else None,
            "link": self._link(run.dagster_run_id if run else None),
        }
        return Alert(str(body["id"]), at, body)

    def _link(self, dagster_run_id: str | None) -> str | None:
        page = self._workspace.settings.dagster_url
        return f"{page}/runs/{dagster_run_id}" if dagster_run_id else None


def waiting_since(workspace: Workspace, sync: Sync) -> float | None:
    """Since when there is something to send, in seconds since 1970.

    None when there isn't, when nothing may, or when nobody knows.
    """
    settings = workspace.settings
    table = read_table_state(table_path(settings, sync.model.id))
    if settings.sinks == "off" or hold(sync, settings) or table is None:
        return None
    queue, unread, _lost = workspace.queue_seen(sync.id)
    if unread:
        return None  # its runs fail for it
    moments = [queue.oldest_since if queue else None]
    watermark = queue.watermark if queue else -1
    if table.version > watermark:
        newest = table.changed_at.timestamp() if table.changed_at else None
        moments.append(written_at(table_path(settings, sync.model.id), watermark + 1) or newest)
    return min((moment for moment in moments if moment is not None), default=None)
