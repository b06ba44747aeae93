"""The real push: the user's Starlark over HTTP, as deliver asks for it."""

import contextlib
import dataclasses
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ondatra_dagster.changes import Column
from ondatra_dagster.delivery.http.http_api import BatchCalls, HttpApi
from ondatra_dagster.delivery.http.rate_limit import RateLimit
from ondatra_dagster.delivery.journal import Journal
from ondatra_dagster.delivery.push.batch_modes import run_poll, run_push
from ondatra_dagster.delivery.push.bisection import bisect
from ondatra_dagster.delivery.push.push_port import Parcel, Pushed
from ondatra_dagster.delivery.push.starlark.push_library import Context, PushLibrary, load_library

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PushContext:
    """What every batch of a sync is handed to push with."""

    sync_id: str
    kind: str
    key_columns: tuple[str, ...]
    arguments: tuple[str, ...]


class Pusher:
    """Hands batches to one library through one API."""

    def __init__(self, library: PushLibrary, api: HttpApi, context: PushContext) -> None:
        self._library = library
        self._api = api
        self._context = context

    def __call__(self, parcel: Parcel, journal: Journal) -> Pushed:
        calls = self._api.begin(journal)
        if self._library.config.push.on_batch_error == "bisect":
            result = bisect(
                parcel, lambda part: self._push(part, calls), last_status=lambda: calls.log.last_status
            )
        else:
            result = self._push(parcel, calls)
        self._warn(parcel, result)
        made = calls.log
        return result._replace(
            calls=made.calls,
            unanswered=made.unanswered,
            is_outage=made.is_outage,
            is_answered=made.is_answered,
        )

    def poll(self, parcel: Parcel, job: str) -> Pushed:
        calls = self._api.begin()

        def poll() -> object:
            given = self._given(parcel.number, parcel.layout.columns)
            return self._library.poll(json.loads(job), parcel.text, http=calls, **given)

        redact = self._api.redactor.redact
        result = run_poll(poll, parcel.keys, redact=redact, is_outage=lambda: calls.log.is_outage)
        self._warn(parcel, result)
        # the job itself was a call: of a row without a status nobody knows whether it was taken
        return result._replace(calls=1, unanswered=0, is_outage=calls.log.is_outage)

    def _warn(self, parcel: Parcel, result: Pushed) -> None:
        for warning in result.warnings:
            log.warning("sync=%s batch=%d %s", self._context.sync_id, parcel.number, warning)

    def _push(self, parcel: Parcel, calls: BatchCalls) -> Pushed:
        """One call of push()."""
        calls.log.last_status = None

        def push() -> object:
            given = self._given(parcel.number, parcel.layout.columns)
            return self._library.push(parcel.text, http=calls, **given)

        mode = self._library.config.push.batch_mode
        return run_push(mode, push, parcel.keys, redact=self._api.redactor.redact)

    def finalize(self, succeeded: int, failed: int, *, columns: Sequence[Column], journal: Journal) -> None:
        calls = self._api.begin(journal)
        self._library.finalize(succeeded, failed, http=calls, **self._given(0, columns))

    def _given(self, batch_number: int, columns: Sequence[Column]) -> Context:
        return Context(
            batch_number=batch_number,
            kind=self._context.kind,
            key_columns=self._context.key_columns,
            columns=columns,
            arguments=self._context.arguments,
        )


@contextlib.contextmanager
def open_pusher(
    library: Path, context: PushContext, *, secrets: Callable[[str], str | None], rates: Path
) -> Iterator[Pusher]:
    """The push of a lib/*.star file, its connections kept open until the end."""
    loaded = load_library(library)
    with contextlib.ExitStack() as stack:
        rate_limit = RateLimit.of(loaded.config, rates, lib=library.parent)
        if rate_limit:
            stack.callback(rate_limit.close)
        tokens = rates.with_name("tokens")
        api = stack.enter_context(
            HttpApi(loaded.config, secrets=secrets, rate_limit=rate_limit, token_folder=tokens)
        )
        yield Pusher(loaded, api, context)
