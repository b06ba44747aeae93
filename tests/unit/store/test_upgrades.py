"""State that an older ondatra has left opens in this one, with all that is in it; a newer one's doesn't."""

import sqlite3
from pathlib import Path

import pytest

from ondatra_dagster.delivery.http import rate_limit
from ondatra_dagster.delivery.queue import tables
from ondatra_dagster.delivery.queue.states import queue_state
from ondatra_dagster.errors import StateError
from ondatra_dagster.operations import alert_book
from ondatra_dagster.planning import noop_cache
from ondatra_dagster.planning.noop_cache import NoopCache
from ondatra_dagster.store.database import Schema, connect, read_only
from ondatra_dagster.tracking import history
from ondatra_dagster.tracking.history import History

SCHEMAS = {
    "queue": tables.SCHEMA,
    "history": history.SCHEMA,
    "rates": rate_limit.SCHEMA,
    "cache": noop_cache.SCHEMA,
    "alerts": alert_book.SCHEMA,
}
ROWS = {
    "queue": (
        "insert into meta values ('table_id', 't'), ('watermark', 7), ('shape', 'row')",
        "insert into unit (key, belongs_to, version, base, target, rows, phase, state, since)"
        " values ('C-1', '', 7, '', '[]', 1, 0, 'pending', 1.5)",
    ),
    "history": (
        "insert into sync_runs values ('sync.crm', 'r1', 'sync.crm', null, '2026-01-02T03:04:05+00:00', null,"
        " 'ondatra run', 'full', 'the first', null, 7, '{}', 'succeeded', '[]')",
    ),
    "rates": ("insert into send values ('http://api', 1, 10.0, 11.0)",),
    "cache": ("""insert into unchanged values ('mart.a', 'd', '{"raw.a": "t@1"}', 't@2')""",),
    "alerts": ("insert into standing values ('sync', 'sync.crm', 'failed', '2026-01-02T03:04', 'down')",),
}


def first_of(schema: Schema) -> Schema:
    return Schema(schema.name, schema.steps[:1])


def content(path: Path) -> dict[str, list[tuple[object, ...]]]:
    with sqlite3.connect(path) as connection:
        names = [
            name
            for (name,) in connection.execute("select name from sqlite_master where type = 'table'")
            if not name.startswith(("sqlite_", "_"))
        ]
        found = {name: connection.execute(f"select * from {name}").fetchall() for name in names}
    connection.close()
    return {name: rows for name, rows in found.items() if rows}


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_file_of_the_first_ondatra_keeps_its_rows(tmp_path: Path, name: str) -> None:
    """Every later step is taken when it is opened, and what was there stays."""
    path = tmp_path / f"{name}.sqlite"
    with connect(path, first_of(SCHEMAS[name])) as store:
        for statement in ROWS[name]:
            store.run(statement)
    before = content(path)
    connect(path, SCHEMAS[name]).close()
    after = content(path)
    assert before.keys() == after.keys()
    for table, rows in before.items():
        assert rows == [row[: len(old)] for row, old in zip(after[table], rows, strict=True)]


def test_who_only_looks_reads_an_old_file_too(tmp_path: Path) -> None:
    """The first command after an upgrade may be `ondatra status`."""
    for name in ("queue", "history", "cache"):
        with connect(tmp_path / f"{name}.sqlite", first_of(SCHEMAS[name])) as store:
            for statement in ROWS[name]:
                store.run(statement)
    queue = queue_state(tmp_path / "queue.sqlite", now=2.0)
    assert queue is not None
    assert (7, 1) == (queue.watermark, queue.pending)
    assert ["r1"] == [run.run_id for run in History(tmp_path / "history.sqlite").runs()]
    assert {"mart.a"} == NoopCache(tmp_path / "cache.sqlite").read().keys()


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_file_of_a_newer_ondatra_is_refused_by_all(tmp_path: Path, name: str) -> None:
    """Who writes it would spoil it, who reads it would misread it; the sentence says which one to use."""
    path = tmp_path / f"{name}.sqlite"
    schema = SCHEMAS[name]
    newer = Schema(schema.name, (*schema.steps, ("of the future", "create table future (x)")))
    connect(path, newer).close()
    for opened in (lambda: connect(path, schema), lambda: read_only(path, schema).__enter__()):
        with pytest.raises(StateError, match=r"was written by ondatra .* \(it has of the future\).* use"):
            opened()
