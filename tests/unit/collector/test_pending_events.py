"""What waits, beside what the table has by its own log: portions in order, each event once."""

import datetime
from typing import Any

import orjson
import pytest
from support.projects.event_project import VIEWS_MODEL, EventProject

from ondatra_dagster.collector.event_store import EventRequest, event_store_path, open_locked_store, read_page_after
from ondatra_dagster.collector.pending_events import ModelEvents, delete_flushed_events
from ondatra_dagster.deltalog.log_reader import read_last_transaction
from ondatra_dagster.event_batches import InvalidEvent
from ondatra_dagster.planning.find_table_and_columns import table_path

AT = datetime.datetime(2026, 11, 18, 12, tzinfo=datetime.UTC)
MODEL = "events.views"


def take(project: EventProject, *bodies: Any) -> None:
    """Each an event, or a batch of them."""
    at = int(AT.timestamp() * 1e6)
    with open_locked_store(project.settings, "a test") as file:
        file.store_requests(
            [EventRequest(MODEL, at, len(b) if isinstance(b, list) else 1, orjson.dumps(b)) for b in bodies]
        )


def pages(events: ModelEvents, after: int | None = None) -> list[tuple[int, list[str]]]:
    """Up to which number each portion is, and its pages."""
    return [(portion.last_number, [row[0] for row in portion.rows]) for portion in events.read_batches(after)]


def commit(project: EventProject, number: int, *, version: int = 0, numbering: str | None = None) -> None:
    """What a flush leaves in the table's log."""
    log = project.root / ".ondatra" / "warehouse" / "events" / "views" / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    numbering = numbering or ModelEvents(project.settings, project.model()).sequence_id
    txn = {"txn": {"appId": numbering, "version": number}}
    (log / f"{version:020}.json").write_bytes(orjson.dumps(txn))


def test_what_waits_comes_in_the_order_in_which_it_came_in_portions_that_fit_in_memory(project: EventProject) -> None:
    """However much waits; a batch stays whole."""
    take(project, {"page": "1"}, [{"page": "2"}, {"page": "3"}, {"page": "4"}], {"page": "5"}, {"page": "6"})
    model = project.model()
    assert [(4, ["1", "2", "3", "4", "5", "6"])] == pages(ModelEvents(project.settings, model))
    assert [(2, ["1", "2", "3", "4"]), (4, ["5", "6"])] == pages(ModelEvents(project.settings, model, most_events=2))
    assert 4 == len(pages(ModelEvents(project.settings, model, most_bytes=1)))


def test_what_the_table_has_waits_no_more(project: EventProject) -> None:
    """The commit that holds the rows says so: a crash after it can't make them come twice."""
    take(project, {"page": "1"}, {"page": "2"}, {"page": "3"})
    events = ModelEvents(project.settings, project.model())
    commit(project, 2)
    assert (1, [(3, ["3"])]) == (events.summarize_pending().events, pages(events))
    assert [] == pages(events, after=3)  # of a table that knows more, as its lock tells


def test_another_file_s_numbers_mean_nothing(project: EventProject) -> None:
    """The one before was lost: its numbers are in the log, and new events have the same."""
    take(project, {"page": "1"})
    commit(project, 100, numbering="ondatra.events/of-another-file")
    assert [(1, ["1"])] == pages(ModelEvents(project.settings, project.model()))


def test_what_is_in_the_table_is_dropped_and_nothing_else(project: EventProject) -> None:
    """Where no collector runs, the flush does it."""
    take(project, {"page": "1"}, {"page": "2"}, {"page": "3"})
    delete_flushed_events(project.settings, project.model())
    assert 3 == len(read_page_after(event_store_path(project.settings), MODEL, 0, most=9))
    commit(project, 2)
    delete_flushed_events(project.settings, project.model())
    assert [3] == [intake.number for intake in read_page_after(event_store_path(project.settings), MODEL, 0, most=9)]


def test_a_collector_that_runs_drops_what_is_in_the_table_itself(project: EventProject) -> None:
    """Two writers in one file are one too many: the flush leaves it alone."""
    with project.running_collector() as serving:
        for _ in range(3):
            serving.client.post({"page": "1"})
        commit(project, 2)
        delete_flushed_events(project.settings, project.model())
        assert 3 == len(read_page_after(event_store_path(project.settings), MODEL, 0, most=9))
        serving.run_periodic_tasks()
        assert [3] == [
            intake.number for intake in read_page_after(event_store_path(project.settings), MODEL, 0, most=9)
        ]
        assert {"status": "ok", "waiting": 1} == serving.client("GET", "/health").body


def test_a_restored_file_gives_numbers_above_those_of_the_table(project: EventProject) -> None:
    """Else what comes next would count as flushed, and be dropped."""
    take(project, {"page": "1"})
    commit(project, 500)
    with project.running_collector() as serving:
        serving.client.post({"page": "2"})
        assert [(501, ["2"])] == pages(ModelEvents(project.settings, project.model()))


@pytest.mark.parametrize(
    ("columns", "rows", "misfits"),
    [
        ("page STRING, more INT", [["/a", None, '{"seconds":"3"}']], []),  # one went, one came
        ("page STRING, seconds STRING", [["/a", "3", None]], []),
        (
            "page STRING, seconds INT",
            [],
            [InvalidEvent(1, AT, '{"page":"/a","seconds":"3"}', "seconds is a text; expected INT")],
        ),
        (
            "page STRING, seconds STRING, user STRING NOT NULL",
            [],
            [InvalidEvent(1, AT, '{"page":"/a","seconds":"3"}', "user is missing; it is STRING NOT NULL")],
        ),
    ],
)
def test_what_waits_is_read_by_the_columns_as_they_are_now(
    project: EventProject, columns: str, rows: list[Any], misfits: list[InvalidEvent]
) -> None:
    """What was acknowledged is never lost: it goes into the new columns, into _extra, or aside."""
    (project.root / "models/events/views.sql").write_text(VIEWS_MODEL.replace("seconds INT", "seconds STRING"))
    take(project, {"page": "/a", "seconds": "3"})
    (project.root / "models/events/views.sql").write_text(f"-- @kind: events\n{columns}\n")
    (portion,) = ModelEvents(project.settings, project.model()).read_batches(None)
    assert (1, rows, misfits) == portion


def test_without_a_file_nothing_waits(project: EventProject) -> None:
    """Most projects have no collector."""
    events = ModelEvents(project.settings, project.model())
    assert (0, []) == (events.summarize_pending().events, pages(events))
    delete_flushed_events(project.settings, project.model())
    assert not event_store_path(project.settings).exists()
    assert read_last_transaction(table_path(project.settings, MODEL), "x") is None
