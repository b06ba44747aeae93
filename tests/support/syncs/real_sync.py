"""A sync of a table in plain Python. Everything else is real: Starlark, HTTP, queue, records, history."""

from collections.abc import Mapping
from pathlib import Path

from support.syncs.keyed_feed_table import KeyedFeedTable
from support.syncs.kind_feed_table import KindFeedTable

from ondatra_dagster.delivery.push.push_file_parser import parse_push_file
from ondatra_dagster.delivery.push.starlark.load_and_call_push_functions import PushContext
from ondatra_dagster.delivery.push.starlark_sink_and_batch_halving import open_starlark_sink
from ondatra_dagster.project.model import Model, ModelSink
from ondatra_dagster.project.model_kinds import KINDS
from ondatra_dagster.records.record_store import RecordStore
from ondatra_dagster.storage.state_folder_id import ensure_state_id
from ondatra_dagster.sync.run_context import Ports
from ondatra_dagster.sync.run_history_store import RunHistory
from ondatra_dagster.sync.sync_definition import Sync


def build_sync(state: Path, kind: str, *arguments: str) -> Sync:
    """Return the sync whose push function is lib/api.star in this folder."""
    sink = ModelSink(name="api", arguments=arguments, sync_id="sync.api", line=1)
    library = state / "lib" / "api.star"
    source, problems = parse_push_file(library, "lib/api.star")
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
    return Sync(model=model, sink=sink, push_config=source.config, push_library=library, state_folder=state)


def build_ports(sync: Sync, table: KeyedFeedTable | KindFeedTable, secrets: Mapping[str, str], *, now: float) -> Ports:
    context = PushContext(
        sync_id=sync.id, kind=sync.model.kind.name, key_columns=sync.model.key_columns, arguments=sync.sink.arguments
    )
    rates = sync.state_folder / "rates.sqlite"
    return Ports(
        read_source=table.source,
        feed=table,
        open_push=lambda: open_starlark_sink(sync.push_library, context, secrets=secrets.get, rates=rates),
        record_store=RecordStore(str(sync.state_folder / "tracking"), state=lambda: ensure_state_id(sync.state_folder)),
        history=RunHistory(sync.state_folder / "history.sqlite"),
        clock=lambda: now,
    )
