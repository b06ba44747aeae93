"""Kind events: what was taken is in the table once, in order, in the columns' own types."""

import datetime
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import pytest
from support.collecting import EventProject
from support.model_tables import ModelTables
from support.spark_project import SparkProject

from ondatra_dagster.arrivals import Portion
from ondatra_dagster.collector.event_file import Intake, event_path, held_file, page_after
from ondatra_dagster.collector.waiting import ModelEvents
from ondatra_dagster.errors import ChecksFailedError
from ondatra_dagster.planning.commit_note import CommitNote
from ondatra_dagster.planning.delta_log import invalid_path, last_transaction
from ondatra_dagster.project.load import load_project
from ondatra_dagster.project.model import Model
from ondatra_dagster.warehouse.delta_tables import Identity, Transaction, open_target
from ondatra_dagster.warehouse.misfits import keep_misfits
from ondatra_dagster.warehouse.model_run import Written, evaluate, write_model
from ondatra_dagster.warehouse.spark_session import Warehouse

pytestmark = pytest.mark.spark

UTC = datetime.UTC
AT = datetime.datetime(2026, 11, 18, 12, tzinfo=UTC)
NOTE = CommitNote(definition="d", inputs={}, run_id="20261118T120102Z-kqzwtm")


class Desk:
    """A project with one model of kind events, over the session of the run."""

    def __init__(self, lake: ModelTables) -> None:
        self.lake = lake
        self.settings = lake.warehouse.settings

    def define(self, columns: str) -> None:
        EventProject.at(self.settings.root, models={"events/views": f"-- @kind: events\n{columns}\n"})

    @property
    def model(self) -> Model:
        return load_project(self.settings.root, self.settings).model("events.views")

    def take(self, *events: Any) -> None:
        at = int(AT.timestamp() * 1e6)
        with held_file(self.settings, "a test") as file:
            file.take([Intake("events.views", at, 1, orjson.dumps(event)) for event in events])

    def events(self, **more: Any) -> ModelEvents:
        return ModelEvents(self.settings, self.model, **more)

    def flush(self, events: Any = None) -> Written:
        frame = evaluate(self.lake.warehouse, self.model, {})
        return write_model(self.lake.warehouse, self.model, frame, NOTE, events=events or self.events())

    def rows(self, *names: str) -> list[Any]:
        found = self.lake.rows(self.model).orderBy("__ondatra_rowid").select(*names).collect()
        return [row[0] if len(names) == 1 else tuple(row) for row in found]

    def misfits(self) -> list[tuple[str, str]]:
        path = invalid_path(self.lake.path(self.model))
        rows = self.lake.warehouse.session.read.format("delta").load(path)
        return [(row["event"], row["problem"]) for row in rows.orderBy("number", "event").collect()]


@pytest.fixture
def desk(lake: ModelTables) -> Desk:
    desk = Desk(lake)
    desk.define("page STRING NOT NULL, seconds INT, received_at TIMESTAMP")
    return desk


class CutOffError(Exception):
    """The process ends here."""


class PartOfEvents:
    """Events of which only the first portions come: the run is cut off behind them."""

    def __init__(self, events: ModelEvents, portions: int) -> None:
        self._events = events
        self._portions = portions
        self.numbering = events.numbering

    def portions(self, after: int | None) -> Iterator[Portion]:
        for place, portion in enumerate(self._events.portions(after)):
            if place == self._portions:
                raise CutOffError
            yield portion


def test_values_of_every_type_arrive_as_they_were_sent(desk: Desk) -> None:
    """By Arrow, and not by way of a text that a second parser reads in its own way."""
    desk.define(
        "a STRING, b BOOLEAN, c TINYINT, d BIGINT, e FLOAT, f DOUBLE, g DECIMAL(38, 10), h DATE, i TIMESTAMP,"
        " j TIMESTAMP_NTZ, k BINARY, l ARRAY<INT>, m MAP<INT, DATE>, n STRUCT<x: INT, `y z`: ARRAY<STRING>>"
    )
    event = {
        "a": "é😀\0", "b": False, "c": -128, "d": 2**63 - 1, "e": 1.5, "f": 1e300,
        "g": "-1234567890123456789012345678.0123456789", "h": "0001-01-01",
        "i": "1899-12-31T23:59:59.123456Z", "j": "9999-12-31T23:59:59", "k": "aGk=", "l": [1, None],
        "m": {"-1": "2026-01-01"}, "n": {"x": 1, "Y Z": ["q"]}, "new": [1.5],
    }  # fmt: skip
    desk.take(event, {})
    assert 2 == desk.flush().inserted
    first, second = desk.rows(*"abcdefghijklmn", "_extra")
    expected = (
        "é😀\0", False, -128, 2**63 - 1, 1.5, 1e300, Decimal("-1234567890123456789012345678.0123456789"),
        datetime.date(1, 1, 1), datetime.datetime(1899, 12, 31, 23, 59, 59, 123456),  # noqa: DTZ001
        datetime.datetime(9999, 12, 31, 23, 59, 59), bytearray(b"hi"), [1, None],  # noqa: DTZ001
        {-1: datetime.date(2026, 1, 1)}, (1, ["q"]), '{"new":[1.5]}',
    )  # fmt: skip
    assert expected == first
    assert (None,) * 15 == second


def test_events_come_in_order_once_in_a_commit_a_portion(desk: Desk) -> None:
    """Rowids rise as they came; a second run has nothing to do, and makes no commit."""
    desk.take(*({"page": f"{number:03}"} for number in range(300)))
    events = desk.events(most_events=120)
    assert (300, 300) == (desk.flush(events).inserted, desk.flush().rows)
    assert [f"{number:03}" for number in range(300)] == desk.rows("page")
    assert 3 == desk.lake.state(desk.model).log_version
    desk.take({"page": "300"})
    written = desk.flush()
    assert (1, 301, True) == (written.inserted, written.rows, written.changed)
    assert {AT.replace(tzinfo=None)} == set(desk.rows("received_at"))


def test_a_run_that_is_cut_off_is_gone_on_with_after_its_last_commit(desk: Desk) -> None:
    """What it wrote is there, once; what it didn't, waits."""
    desk.take(*({"page": str(number)} for number in range(6)))
    with pytest.raises(CutOffError):
        desk.flush(PartOfEvents(desk.events(most_events=2), 2))
    assert ["0", "1", "2", "3"] == desk.rows("page")
    assert 2 == desk.events().waiting().events
    desk.flush()
    assert [str(number) for number in range(6)] == desk.rows("page")


def test_a_commit_that_a_dead_run_still_made_is_not_made_again(desk: Desk) -> None:
    """Its JVM lives on for seconds, and may commit after the next run has planned: Delta knows the number."""
    desk.take({"page": "0"}, {"page": "1"})
    (portion,) = desk.events().portions(None)

    class Late:
        numbering = desk.events().numbering

        def portions(self, after: int | None) -> Iterator[Portion]:
            yield portion
            yield portion

    desk.flush(Late())
    assert ["0", "1"] == desk.rows("page")


def test_a_changed_definition_loses_no_event(desk: Desk) -> None:
    """What fits goes in, what has no column goes into _extra, the rest stands aside."""
    desk.take({"page": "/a", "seconds": 1})
    desk.flush()
    desk.take({"page": "/b", "seconds": 2}, {"page": "/c", "user": "u"})
    desk.define("page STRING NOT NULL, user STRING")
    desk.flush()
    assert [("/a", None, None), ("/b", None, '{"seconds":2}'), ("/c", "u", None)] == desk.rows(
        "page", "user", "_extra"
    )
    desk.take({"page": "/d"}, {"page": "/e", "user": "v"})
    desk.define("page STRING NOT NULL, user STRING NOT NULL")
    written = desk.flush()
    assert ({"MISFIT": 1}, 1) == (written.invalid, written.inserted)
    assert [('{"page":"/d"}', "user is missing; it is STRING NOT NULL")] == desk.misfits()
    desk.take({"page": "/f"})
    written = desk.flush()  # none fits: and yet they wait no more
    assert ({"MISFIT": 1}, False, 0) == (written.invalid, written.changed, desk.events().waiting().events)
    assert 2 == len(desk.misfits())


def test_what_was_put_aside_before_a_crash_is_there_once(desk: Desk) -> None:
    """The run ended between the two commits; in the next more waits, and the portion is another."""
    desk.take({"page": "/a"})
    desk.flush()
    desk.define("page STRING NOT NULL, user STRING NOT NULL")
    desk.take({"page": "/b"}, {"page": "/c", "user": "u"})
    (portion,) = desk.events().portions(None)
    target = _target(desk)
    keep_misfits(target, portion.misfits, NOTE, Transaction(desk.events().numbering, portion.upto))
    desk.take({"page": "/d"})
    desk.flush()
    assert ['{"page":"/b"}', '{"page":"/d"}'] == [event for event, _ in desk.misfits()]
    assert [("/a", None), ("/c", "u")] == desk.rows("page", "user")


def _target(desk: Desk) -> Any:
    """The table as a write has it."""
    identity = Identity(kind="events", key_columns=(), own_columns={"_extra": "string"})
    rows = desk.lake.rows(desk.model)
    fields = [field for field in rows.schema if field.name not in ("_extra", "__ondatra_rowid")]
    return open_target(desk.lake.warehouse.session, desk.lake.path(desk.model), fields, identity)


def test_checks_are_judged_before_each_commit(desk: Desk) -> None:
    """One that fails writes nothing, and nothing is lost: the events wait until somebody mends it."""
    columns = "-- @constraint: seconds >= 0\n-- @warning: seconds < 100\npage STRING, seconds INT"
    desk.define(columns)
    desk.take({"seconds": 5}, {"seconds": 500}, {"seconds": 1000})
    written = desk.flush(desk.events(most_events=2))
    (constraint, warning) = sorted(written.findings, key=lambda finding: finding.check.word)
    assert (0, 3, 2) == (constraint.failed, constraint.rows, warning.failed)
    assert {warning.check.name: 2} == dict(desk.lake.state(desk.model).note.warned)  # type: ignore[union-attr]
    desk.take({"seconds": -1})
    with pytest.raises(ChecksFailedError):
        desk.flush()
    assert (3, 1) == (len(desk.rows("seconds")), desk.events().waiting().events)
    desk.define("page STRING, seconds INT")
    assert 1 == desk.flush().inserted


def test_an_audit_sees_the_table_as_it_would_be(desk: Desk) -> None:
    """The rows that are there, and those that come."""
    desk.define("-- @audit: seconds >= 0\npage STRING, seconds INT")
    desk.take({"seconds": 1}, {"seconds": 2}, {"seconds": 3})
    (finding,) = desk.flush(desk.events(most_events=1)).findings
    assert (0, 3) == (finding.failed, finding.rows)


def test_where_a_table_has_come_to_outlives_a_checkpoint(desk: Desk) -> None:
    """After which the commits may be cleaned away."""
    for number in range(12):
        desk.take({"page": str(number)})
        desk.flush()
    path = desk.lake.path(desk.model)
    numbering = desk.events().numbering
    assert 12 == last_transaction(path, numbering)
    assert last_transaction(path, "another") is None


def test_a_run_flushes_and_a_dry_run_only_tells(shared_warehouse: Warehouse, tmp_path: Path) -> None:
    """As users start them, from the plan to the file that is empty in the end."""
    project = EventProject.at(tmp_path / "my shop")
    settings = project.settings
    spark = SparkProject(project.root, shared_warehouse.session)

    def take(*pages: str) -> None:
        with held_file(settings, "a test") as file:
            file.take([Intake("events.views", 1, 1, orjson.dumps({"page": page})) for page in pages])

    take("/a", "/b")
    assert 0 == spark.run()
    assert ["/a", "/b"] == [page for _, (page, *_) in spark.feed("events.views", after=0)]
    take("/c")
    version = spark.log_version("events.views")
    before = event_path(settings).read_bytes()
    assert 0 == spark.run(is_dry=True)
    assert (version, before) == (spark.log_version("events.views"), event_path(settings).read_bytes())
    assert 1 == spark.workspace.events_waiting("events.views").events
    assert 0 == spark.run()
    assert {"/a": 1, "/b": 2, "/c": 3} == spark.rowids("events.views", "page")
    assert not spark.workspace.plan().has_work
    assert {} == spark.workspace.homeless_events()
    assert [] == page_after(event_path(settings), "events.views", 0, most=9)
