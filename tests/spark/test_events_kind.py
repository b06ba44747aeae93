"""The kind events: each event that was accepted is in the table once, in order, with the types of its columns."""

import datetime
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import pytest
from support.projects.event_project import EventProject
from support.spark.model_tables import ModelTables
from support.spark.spark_project import SparkProject

from ondatra_dagster.collector.event_store import EventRequest, event_store_path, open_locked_store, read_page_after
from ondatra_dagster.collector.pending_events import ModelEvents
from ondatra_dagster.deltalog.commit_user_metadata import CommitMetadata
from ondatra_dagster.deltalog.log_reader import read_last_transaction
from ondatra_dagster.errors import ChecksFailedError
from ondatra_dagster.event_batches import EventBatch
from ondatra_dagster.planning.find_table_and_columns import invalid_table_path
from ondatra_dagster.project.model import Model
from ondatra_dagster.project.project_loader import load_project
from ondatra_dagster.warehouse.create_and_write_target_table import TableSpec, Transaction, open_target
from ondatra_dagster.warehouse.kinds.events_from_collector import write_invalid_events
from ondatra_dagster.warehouse.model_run import evaluate_query, write_model
from ondatra_dagster.warehouse.model_write_request import ModelWrite
from ondatra_dagster.warehouse.result_of_write_and_checks import ModelWriteResult
from ondatra_dagster.warehouse.spark.session import Warehouse

pytestmark = pytest.mark.spark

UTC = datetime.UTC
AT = datetime.datetime(2026, 11, 18, 12, tzinfo=UTC)
NOTE = CommitMetadata(definition="d", inputs={}, run_id="20261118T120102Z-kqzwtm")


class EventModelHarness:
    """A project with one model of kind events, over the Spark session of the test run."""

    def __init__(self, model_tables: ModelTables) -> None:
        self.lake = model_tables
        self.settings = model_tables.warehouse.settings

    def define(self, columns: str) -> None:
        EventProject.create(self.settings.root, models={"events/views": f"-- @kind: events\n{columns}\n"})

    @property
    def model(self) -> Model:
        return load_project(self.settings.root, self.settings).model("events.views")

    def store_events(self, *events: Any) -> None:
        at = int(AT.timestamp() * 1e6)
        with open_locked_store(self.settings, "a test") as file:
            file.store_requests([EventRequest("events.views", at, 1, orjson.dumps(event)) for event in events])

    def events(self, **more: Any) -> ModelEvents:
        return ModelEvents(self.settings, self.model, **more)

    def flush(self, events: Any = None) -> ModelWriteResult:
        frame = evaluate_query(self.lake.warehouse, self.model, {})
        write = ModelWrite(model=self.model, frame=frame, note=NOTE, events=events or self.events())
        return write_model(self.lake.warehouse, write)

    def rows(self, *names: str) -> list[Any]:
        rows = self.lake.rows(self.model).orderBy("__ondatra_rowid").select(*names).collect()
        return [row[0] if len(names) == 1 else tuple(row) for row in rows]

    def invalid_events(self) -> list[tuple[str, str]]:
        path = invalid_table_path(self.lake.path(self.model))
        rows = self.lake.warehouse.session.read.format("delta").load(path)
        return [(row["event"], row["problem"]) for row in rows.orderBy("number", "event").collect()]


@pytest.fixture
def harness(model_tables: ModelTables) -> EventModelHarness:
    desk = EventModelHarness(model_tables)
    desk.define("page STRING NOT NULL, seconds INT, received_at TIMESTAMP")
    return desk


class CutOffError(Exception):
    """The end of the process at this point."""


class TruncatedEvents:
    """Events of which only the first batches can be read; then the run is cut off."""

    def __init__(self, events: ModelEvents, portions: int) -> None:
        self._events = events
        self._portions = portions
        self.sequence_id = events.sequence_id

    def read_batches(self, after: int | None) -> Iterator[EventBatch]:
        for place, portion in enumerate(self._events.read_batches(after)):
            if place == self._portions:
                raise CutOffError
            yield portion


def test_values_of_every_type_arrive_as_they_were_sent(harness: EventModelHarness) -> None:
    """Arrow carries the values. They don't become a text that a second parser reads in another way."""
    harness.define(
        "a STRING, b BOOLEAN, c TINYINT, d BIGINT, e FLOAT, f DOUBLE, g DECIMAL(38, 10), h DATE, i TIMESTAMP,"
        " j TIMESTAMP_NTZ, k BINARY, l ARRAY<INT>, m MAP<INT, DATE>, n STRUCT<x: INT, `y z`: ARRAY<STRING>>"
    )
    event = {
        "a": "é😀\0", "b": False, "c": -128, "d": 2**63 - 1, "e": 1.5, "f": 1e300,
        "g": "-1234567890123456789012345678.0123456789", "h": "0001-01-01",
        "i": "1899-12-31T23:59:59.123456Z", "j": "9999-12-31T23:59:59", "k": "aGk=", "l": [1, None],
        "m": {"-1": "2026-01-01"}, "n": {"x": 1, "Y Z": ["q"]}, "new": [1.5],
    }  # fmt: skip
    harness.store_events(event, {})
    assert 2 == harness.flush().inserted
    first, second = harness.rows(*"abcdefghijklmn", "_extra")
    expected = (
        "é😀\0", False, -128, 2**63 - 1, 1.5, 1e300, Decimal("-1234567890123456789012345678.0123456789"),
        datetime.date(1, 1, 1), datetime.datetime(1899, 12, 31, 23, 59, 59, 123456),  # noqa: DTZ001
        datetime.datetime(9999, 12, 31, 23, 59, 59), bytearray(b"hi"), [1, None],  # noqa: DTZ001
        {-1: datetime.date(2026, 1, 1)}, (1, ["q"]), '{"new":[1.5]}',
    )  # fmt: skip
    assert expected == first
    assert (None,) * 15 == second


def test_events_arrive_once_in_order_with_one_commit_for_each_batch(harness: EventModelHarness) -> None:
    """Rowids rise in the order of arrival. A second run has nothing to do, and makes no commit."""
    harness.store_events(*({"page": f"{number:03}"} for number in range(300)))
    events = harness.events(most_events=120)
    assert (300, 300) == (harness.flush(events).inserted, harness.flush().rows)
    assert [f"{number:03}" for number in range(300)] == harness.rows("page")
    assert 3 == harness.lake.state(harness.model).log_version
    harness.store_events({"page": "300"})
    result = harness.flush()
    assert (1, 301, True) == (result.inserted, result.rows, result.has_changes)
    assert {AT.replace(tzinfo=None)} == set(harness.rows("received_at"))


def test_a_run_that_was_cut_off_is_continued_after_its_last_commit(harness: EventModelHarness) -> None:
    """The events that it wrote are in the table once, and the others wait."""
    harness.store_events(*({"page": str(number)} for number in range(6)))
    with pytest.raises(CutOffError):
        harness.flush(TruncatedEvents(harness.events(most_events=2), 2))
    assert ["0", "1", "2", "3"] == harness.rows("page")
    assert 2 == harness.events().summarize_pending().events
    harness.flush()
    assert [str(number) for number in range(6)] == harness.rows("page")


def test_a_late_commit_of_a_dead_run_is_not_repeated(harness: EventModelHarness) -> None:
    """The JVM lives on for seconds and may commit after the next run has planned.

    Delta knows the number of the commit.
    """
    harness.store_events({"page": "0"}, {"page": "1"})
    (portion,) = harness.events().read_batches(None)

    class Late:
        sequence_id = harness.events().sequence_id

        def read_batches(self, after: int | None) -> Iterator[EventBatch]:
            yield portion
            yield portion

    harness.flush(Late())
    assert ["0", "1"] == harness.rows("page")


def test_a_changed_definition_loses_no_event(harness: EventModelHarness) -> None:
    """Events that fit are written. Values without a column go to _extra, and the other events are invalid."""
    harness.store_events({"page": "/a", "seconds": 1})
    harness.flush()
    harness.store_events({"page": "/b", "seconds": 2}, {"page": "/c", "user": "u"})
    harness.define("page STRING NOT NULL, user STRING")
    harness.flush()
    assert [("/a", None, None), ("/b", None, '{"seconds":2}'), ("/c", "u", None)] == harness.rows(
        "page", "user", "_extra"
    )
    harness.store_events({"page": "/d"}, {"page": "/e", "user": "v"})
    harness.define("page STRING NOT NULL, user STRING NOT NULL")
    result = harness.flush()
    assert ({"MISFIT": 1}, 1) == (result.invalid_counts, result.inserted)
    assert [('{"page":"/d"}', "user is missing; it is STRING NOT NULL")] == harness.invalid_events()
    harness.store_events({"page": "/f"})
    result = harness.flush()  # no event fits, and still none waits any longer
    assert ({"MISFIT": 1}, False, 0) == (
        result.invalid_counts,
        result.has_changes,
        harness.events().summarize_pending().events,
    )
    assert 2 == len(harness.invalid_events())


def test_events_found_invalid_before_a_crash_are_stored_once(harness: EventModelHarness) -> None:
    """The run ended between its two commits. More events wait in the next run, so its batch is another one."""
    harness.store_events({"page": "/a"})
    harness.flush()
    harness.define("page STRING NOT NULL, user STRING NOT NULL")
    harness.store_events({"page": "/b"}, {"page": "/c", "user": "u"})
    (portion,) = harness.events().read_batches(None)
    target = _target(harness)
    write_invalid_events(
        target, portion.invalid_events, NOTE, Transaction(harness.events().sequence_id, portion.last_number)
    )
    harness.store_events({"page": "/d"})
    harness.flush()
    assert ['{"page":"/b"}', '{"page":"/d"}'] == [event for event, _ in harness.invalid_events()]
    assert [("/a", None), ("/c", "u")] == harness.rows("page", "user")


def _target(harness: EventModelHarness) -> Any:
    """Return the table as a write opens it."""
    identity = TableSpec(kind="events", key_columns=(), own_columns={"_extra": "string"})
    rows = harness.lake.rows(harness.model)
    fields = [field for field in rows.schema if field.name not in ("_extra", "__ondatra_rowid")]
    return open_target(harness.lake.warehouse.session, harness.lake.path(harness.model), fields, identity)


def test_checks_are_evaluated_before_each_commit(harness: EventModelHarness) -> None:
    """A failed check writes nothing and loses nothing. The events wait until the user fixes the model or the check."""
    columns = "-- @constraint: seconds >= 0\n-- @warning: seconds < 100\npage STRING, seconds INT"
    harness.define(columns)
    harness.store_events({"seconds": 5}, {"seconds": 500}, {"seconds": 1000})
    result = harness.flush(harness.events(most_events=2))
    (constraint, warning) = sorted(result.findings, key=lambda finding: finding.check.check_type)
    assert (0, 3, 2) == (constraint.failed_rows, constraint.rows, warning.failed_rows)
    assert {warning.check.name: 2} == dict(harness.lake.state(harness.model).commit_metadata.warned)  # type: ignore[union-attr]
    harness.store_events({"seconds": -1})
    with pytest.raises(ChecksFailedError):
        harness.flush()
    assert (3, 1) == (len(harness.rows("seconds")), harness.events().summarize_pending().events)
    harness.define("page STRING, seconds INT")
    assert 1 == harness.flush().inserted


def test_an_audit_reads_the_table_as_the_run_would_leave_it(harness: EventModelHarness) -> None:
    """It reads the rows in the table and those that the run adds."""
    harness.define("-- @audit: seconds >= 0\npage STRING, seconds INT")
    harness.store_events({"seconds": 1}, {"seconds": 2}, {"seconds": 3})
    (finding,) = harness.flush(harness.events(most_events=1)).findings
    assert (0, 3) == (finding.failed_rows, finding.rows)


def test_the_number_of_the_last_event_survives_a_checkpoint(harness: EventModelHarness) -> None:
    """After a checkpoint, the commits before it may be deleted."""
    for number in range(12):
        harness.store_events({"page": str(number)})
        harness.flush()
    path = harness.lake.path(harness.model)
    numbering = harness.events().sequence_id
    assert 12 == read_last_transaction(path, numbering)
    assert read_last_transaction(path, "another") is None


def test_a_run_flushes_events_and_a_dry_run_only_reports_them(shared_warehouse: Warehouse, tmp_path: Path) -> None:
    """The test runs all steps of the user's command, from the plan until the event store is empty."""
    project = EventProject.create(tmp_path / "my shop")
    settings = project.settings
    spark = SparkProject(project.root, shared_warehouse.session)

    def take(*pages: str) -> None:
        with open_locked_store(settings, "a test") as file:
            file.store_requests([EventRequest("events.views", 1, 1, orjson.dumps({"page": page})) for page in pages])

    take("/a", "/b")
    assert 0 == spark.run()
    assert ["/a", "/b"] == [page for _, (page, *_) in spark.read_feed("events.views", after=0)]
    take("/c")
    version = spark.log_version("events.views")
    before = event_store_path(settings).read_bytes()
    assert 0 == spark.run(is_dry=True)
    assert (version, before) == (spark.log_version("events.views"), event_store_path(settings).read_bytes())
    assert 1 == spark.workspace.events_waiting("events.views").events
    assert 0 == spark.run()
    assert {"/a": 1, "/b": 2, "/c": 3} == spark.rowids_by_value("events.views", "page")
    assert not spark.workspace.plan().has_work
    assert {} == spark.workspace.events_without_model()
    assert [] == read_page_after(event_store_path(settings), "events.views", 0, limit=9)
