"""The alerts of a project: noted as models and syncs end and from time to time, then sent."""

import functools
import logging
import re
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from ondatra_dagster.changes import Json
from ondatra_dagster.delivery.http.webhook import Webhook
from ondatra_dagster.errors import BusyError, OndatraError
from ondatra_dagster.operations.alert_book import Alert, AlertBook, Reading, Standing, State, SubjectType
from ondatra_dagster.operations.alerts import (
    COMPARED,
    NO_SUCCESS,
    RECOVERIES,
    read_crash,
    read_failure,
    read_runs,
    read_silence,
)
from ondatra_dagster.operations.maintain import Done
from ondatra_dagster.orchestration.alert_recovery import has_recovered, recovery_of
from ondatra_dagster.orchestration.progress import SyncResult
from ondatra_dagster.orchestration.workspace import Workspace
from ondatra_dagster.planning.delta_log import read_table_state, table_path
from ondatra_dagster.planning.table_past import written_at
from ondatra_dagster.project.model import Model
from ondatra_dagster.sync.guard import unit_noun
from ondatra_dagster.sync.hold import hold
from ondatra_dagster.sync.sync import Sync
from ondatra_dagster.tracking.history import Totals
from ondatra_dagster.wording import count

ALERTS = "alerts"
RUNS_LOOKED_AT = 3 * COMPARED  # of which some only tried again what waited
QUOTED = re.compile(r"'[^'\n]*'")

log = logging.getLogger(__name__)


class RunReference(NamedTuple):
    """The run that an alert names, and the Dagster run that it links to."""

    run_id: str | None = None
    dagster_run_id: str | None = None


class Alerts:
    """The alerts of one project. Without a webhook there are none; what goes wrong here fails no run."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._settings = workspace.settings.alerts
        self._book = AlertBook(workspace.settings.state / "alerts.sqlite")
        self._known = self._read_known()  # at the time of which the project was read
        self.dagster_run_id: str | None = None  # of the run that this process works for

    @property
    def is_on(self) -> bool:
        return self._settings.webhook is not None

    def model_ended(self, model: Model) -> None:
        """Note that a model has its table as it should be."""
        self._note(lambda: [read_failure(SubjectType.MODEL, model.name, ())], run=self._own_run)

    def failed(self, subject_type: SubjectType, name: str, message: str) -> None:
        """Note that a model or a sync has ended with that. Spark quotes values of rows, which are masked."""
        masked = QUOTED.sub("'…'", message)
        self._note(lambda: [read_failure(subject_type, name, [masked])], run=self._own_run)

    def sync_ended(self, result: SyncResult) -> None:
        """Note how a sync's turn ended; of one that another process delivers nothing can be said."""
        if result.errors or result.summary.queue:
            self._note(lambda: self._of_run(result), run=self._own_run)

    def settle(self) -> None:
        """Note which alerts are over without a run, because an edit was undone or the subject is gone.

        For whoever has just read the project. What was found again since then is left alone.
        """
        if self._known:
            self._note(self._settled, run=lambda _: RunReference(), known=self._known)

    def look(self, *, is_current: bool = False) -> Done:
        """Note which syncs have crashed, or been silent for too long, and send what is to be sent.

        With `is_current` also what is over: for whoever has just read the project.
        """
        if not self.is_on:
            return Done(duty=ALERTS, did="none are sent: alerts.webhook isn't set")
        if is_current:
            self.settle()
        self._note(lambda: [*self._crashes(), *self._silences()], run=self._newest_run)
        sent = self.send()
        left, alerting = self._book.outgoing(), self._book.standing()
        waits = f"; {count(len(left), 'alert')} couldn't be sent and will be at the next look" if left else ""
        return Done(
            duty=ALERTS,
            did=f"{count(sent, 'alert')} sent, {len(alerting)} still alerting{waits}",
            counts={"sent": sent, "waiting": len(left), "alerting": len(alerting)},
            each=tuple(
                {each.type: each.subject, "rule": each.rule, "since": each.since} for each in alerting
            ),
        )

    def standing(self) -> list[Standing]:
        """Return what is alerting, the oldest first; nothing without a webhook, when nobody looks at it."""
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

    def _read_known(self) -> list[Standing]:
        try:
            return self.standing()
        except OndatraError as error:
            log.warning("alerts can't be read: %s", error)
            return []

    def _note(
        self,
        read: Callable[[], Iterable[Reading]],
        *,
        run: Callable[[Reading], RunReference],
        known: Collection[Standing] | None = None,
    ) -> None:
        if not self.is_on:
            return
        try:
            self._book.note(list(read()), functools.partial(self._alert, run=run), known=known)
        except OndatraError as error:
            log.warning("alerts are left as they are: %s", error)

    def _settled(self) -> Iterator[Reading]:
        for each in self._known:
            if why := recovery_of(self._workspace, each):
                yield Reading(
                    type=SubjectType(each.type),
                    subject=each.subject,
                    rule=each.rule,
                    sentence=None,
                    recovery=why,
                )
        late = {each.subject for each in self._known if each.rule == NO_SUCCESS}
        for reading in self._silences(sync for name, sync in self._workspace.syncs.items() if name in late):
            if reading.sentence is None:
                yield reading

    def _of_run(self, result: SyncResult) -> Iterator[Reading]:
        sync_id, summary = result.sync.id, result.summary
        errors = [verdict.description for verdict in result.errors]
        pending = summary.queue.depth if summary.queue else 0
        if errors or has_recovered(self._workspace, sync_id, pending=pending):
            detail = next(_row_errors(result), "")
            yield read_failure(SubjectType.SYNC, sync_id, errors, detail=detail)
        if summary.run_id:
            runs = self._workspace.history.runs(sync_id, limit=RUNS_LOOKED_AT)
            yield from read_runs(sync_id, runs, self._settings, noun=unit_noun(result.sync))
        yield from self._silences([result.sync])

    def _crashes(self) -> Iterator[Reading]:
        """Return the failure of each sync whose process was killed: it couldn't note that itself."""
        crashed = self._workspace.history.crashed()
        for sync_id in self._workspace.syncs:
            if crashed[sync_id]:
                yield read_crash(sync_id)

    def _silences(self, syncs: Iterable[Sync] | None = None) -> Iterator[Reading]:
        """Return what no_success says of these syncs, or of all."""
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

    def _alert(self, reading: Reading, state: State, *, run: Callable[[Reading], RunReference]) -> Alert:
        at = datetime.fromtimestamp(self._workspace.clock(), UTC).isoformat(timespec="seconds")
        reference = run(reading)
        body: dict[str, Json] = {
            "id": uuid.uuid4().hex,
            "project": self._workspace.settings.root.name,
            reading.type.value: reading.subject,
            "rule": reading.rule,
            "state": state.value,
            "at": at,
            "sentence": _sentence(reading, state),
            "numbers": dict(reading.numbers),
            "run": reference.run_id,
            "link": self._link(reference.dagster_run_id),
        }
        return Alert(str(body["id"]), at, body)

    def _own_run(self, reading: Reading) -> RunReference:
        """Return the run of this process."""
        own = self.dagster_run_id
        if reading.type is SubjectType.MODEL:
            return RunReference(own, own)
        newest = self._newest_run(reading)
        is_of_another = own is not None and newest.dagster_run_id != own
        return RunReference(None, own) if is_of_another else newest

    def _newest_run(self, reading: Reading) -> RunReference:
        """Return the sync's newest run."""
        newest = next(iter(self._workspace.history.runs(reading.subject, limit=1)), None)
        return RunReference(newest.run_id, newest.dagster_run_id) if newest else RunReference()

    def _link(self, dagster_run_id: str | None) -> str | None:
        page = self._workspace.settings.dagster_url
        return f"{page}/runs/{dagster_run_id}" if dagster_run_id else None


def _sentence(reading: Reading, state: State) -> str:
    if state is State.RECOVERED:
        return f"{reading.subject} {reading.recovery or RECOVERIES[reading.rule]}"
    still = " is still failing, now because" if state is State.CHANGED else ""
    return f"{reading.subject}{still}: {reading.sentence}"


def _row_errors(result: SyncResult) -> Iterator[str]:
    """Return what was said of the rows of a run; a turn that never came to them has no errors of its own."""
    if result.summary.run_id:
        yield from result.summary.errors
        yield from (reason.message for reason in result.summary.rejects)


def waiting_since(workspace: Workspace, sync: Sync) -> float | None:
    """Return since when there is something to send, in seconds since 1970.

    None when there isn't, when nothing may be sent, or when that is unknown.
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
