"""A sync of a table in plain Python; all else is real: Starlark, HTTP, queue, records, history."""

from collections.abc import Mapping
from pathlib import Path

from support.tables import LAYOUT, Table

from ondatra_dagster.delivery.push_source import read_source
from ondatra_dagster.delivery.pusher import PushContext, open_pusher
from ondatra_dagster.delivery.target import Shape
from ondatra_dagster.project.kinds import KINDS
from ondatra_dagster.project.model import Model, SinkUse
from ondatra_dagster.sync.ports import Ports
from ondatra_dagster.sync.sync import Sync
from ondatra_dagster.tracking.history import History
from ondatra_dagster.tracking.store import TrackingStore


def the_sync(state: Path, shape: Shape) -> Sync:
    """The sync whose push function is at lib/api.star in this folder."""
    kind = KINDS["tracked" if shape is Shape.GROUP else "merge"]
    sink = SinkUse(name="api", arguments=(), sync_id="sync.api", line=1)
    library = state / "lib" / "api.star"
    source, problems = read_source(library, "lib/api.star")
    assert source, problems
    model = Model(
        name="sync.api",
        path=state / "api.sql",
        file="models/sync/api.sql",
        kind=kind,
        sql="select 1",
        sql_line=1,
        definition="d",
        key_columns=LAYOUT.names[:1],
        sink=sink,
    )
    return Sync(model=model, sink=sink, config=source.config, library=library, state=state)


def the_ports(sync: Sync, table: Table, secrets: Mapping[str, str], *, now: float) -> Ports:
    context = PushContext(
        sync_id=sync.id,
        kind=sync.model.kind.name,
        key_columns=sync.model.key_columns,
        arguments=(),
    )
    rates = sync.state / "rates.sqlite"
    return Ports(
        source=table.source,
        feed=table,
        push=lambda: open_pusher(sync.library, context, secrets=secrets.get, rates=rates),
        tracking=TrackingStore(str(sync.state / "tracking")),
        history=History(sync.state / "history.sqlite"),
        clock=lambda: now,
    )
