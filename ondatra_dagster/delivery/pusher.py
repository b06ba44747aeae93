"""The real push: the user's Starlark over HTTP, as deliver asks for it."""

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

from ondatra_dagster.delivery.batch_modes import BATCH_MODES
from ondatra_dagster.delivery.http_api import HttpApi
from ondatra_dagster.delivery.journal import Journal
from ondatra_dagster.delivery.push_library import PushLibrary, load_library
from ondatra_dagster.delivery.push_port import Parcel, Pushed
from ondatra_dagster.delivery.rate_limit import RateLimit

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

        def push() -> object:
            return self._library.push(
                parcel.text,
                batch_number=parcel.number,
                kind=self._context.kind,
                key_columns=self._context.key_columns,
                columns=parcel.layout.columns,
                arguments=self._context.arguments,
                http=calls,
            )

        mode = BATCH_MODES[self._library.config.push.batch_mode]
        result = mode(push, parcel.keys, redact=self._api.redactor.redact)
        for warning in result.warnings:
            log.warning("sync=%s batch=%d %s", self._context.sync_id, parcel.number, warning)
        return Pushed(result.outcomes, calls.log.calls, calls.log.unanswered, calls.log.is_outage)


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
