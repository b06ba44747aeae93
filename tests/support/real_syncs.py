"""A sync of a table in plain Python; all else is real: Starlark, HTTP, queue, records, history."""

from collections.abc import Mapping
from pathlib import Path

from support.kind_tables import KindTable
from support.tables import Table

from ondatra_dagster.delivery.push.push_source import read_source
from ondatra_dagster.delivery.push.pusher import PushContext, open_pusher
from ondatra_dagster.project.kinds import KINDS
from ondatra_dagster.project.model import Model, SinkUse
from ondatra_dagster.store.state_id import take_state_id
from ondatra_dagster.sync.ports import Ports
from ondatra_dagster.sync.sync import Sync
from ondatra_dagster.tracking.history import History
from ondatra_dagster.tracking.store import TrackingStore


def the_sync(state: Path, kind: str, *arguments: str) -> Sync:
    """The sync whose push function is at lib/api.star in this folder."""
    sink = SinkUse(name="api", arguments=arguments, sync_id="sync.api", line=1)
    library = state / "lib" / "api.star"
    source, problems = read_source(library, "lib/api.star")
    assert source, problems
    model = Model(
        name="sync.api",
        path=state / "api.sql",
        file="models/sync/api.sql",
        kind=KINDS[kind],
        sql="select 1",
        sql_line=1,
        definition="d",
        key_columns=("id",) if KINDS[kind].needs_key else (),
        sink=sink,
    )
    return Sync(model=model, sink=sink, config=source.config, library=library, state=state)


def the_ports(sync: Sync, table: Table | KindTable, secrets: Mapping[str, str], *, now: float) -> Ports:
    context = PushContext(
        sync_id=sync.id,
        kind=sync.model.kind.name,
        key_columns=sync.model.key_columns,
        arguments=sync.sink.arguments,
    )
    rates = sync.state / "rates.sqlite"
    return Ports(
        source=table.source,
        feed=table,
        push=lambda: open_pusher(sync.library, context, secrets=secrets.get, rates=rates),
        tracking=TrackingStore(str(sync.state / "tracking"), state=lambda: take_state_id(sync.state)),
        history=History(sync.state / "history.sqlite"),
        clock=lambda: now,
    )
