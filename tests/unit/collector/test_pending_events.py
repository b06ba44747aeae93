"""The events that wait to be flushed: read in order, in batches, without those that the table's log has."""

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
    """Store these bodies: each is an event, or a batch of events."""
    at = int(AT.timestamp() * 1e6)
    with open_locked_store(project.settings, "a test") as file:
        file.store_requests(
            [EventRequest(MODEL, at, len(b) if isinstance(b, list) else 1, orjson.dumps(b)) for b in bodies]
        )


def pages(events: ModelEvents, after: int | None = None) -> list[tuple[int, list[str]]]:
    """Return each batch's last number and the pages of its events."""
    return [(portion.last_number, [row[0] for row in portion.rows]) for portion in events.read_batches(after)]


def commit(project: EventProject, number: int, *, version: int = 0, numbering: str | None = None) -> None:
    """Write the commit that a flush leaves in the table's log."""
    log = project.root / ".ondatra" / "warehouse" / "events" / "views" / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    numbering = numbering or ModelEvents(project.settings, project.model()).sequence_id
    txn = {"txn": {"appId": numbering, "version": number}}
    (log / f"{version:020}.json").write_bytes(orjson.dumps(txn))


def test_waiting_events_are_read_in_order_in_batches_that_fit_in_memory(project: EventProject) -> None:
    """This holds for any number of events. The events of one request stay together."""
    take(project, {"page": "1"}, [{"page": "2"}, {"page": "3"}, {"page": "4"}], {"page": "5"}, {"page": "6"})
    model = project.model()
    assert [(4, ["1", "2", "3", "4", "5", "6"])] == pages(ModelEvents(project.settings, model))
    assert [(2, ["1", "2", "3", "4"]), (4, ["5", "6"])] == pages(ModelEvents(project.settings, model, most_events=2))
    assert 4 == len(pages(ModelEvents(project.settings, model, most_bytes=1)))


def test_events_that_the_table_has_are_not_read_again(project: EventProject) -> None:
    """The commit with the rows also has the last number, so a crash after it repeats no event."""
    take(project, {"page": "1"}, {"page": "2"}, {"page": "3"})
    events = ModelEvents(project.settings, project.model())
    commit(project, 2)
    assert (1, [(3, ["3"])]) == (events.summarize_pending().events, pages(events))
    assert [] == pages(events, after=3)  # the caller knows a newer number of the table


def test_the_numbers_of_another_file_are_ignored(project: EventProject) -> None:
    """The former file was lost. Its numbers are in the log, and new events have the same ones."""
    take(project, {"page": "1"})
    commit(project, 100, numbering="ondatra.events/of-another-file")
    assert [(1, ["1"])] == pages(ModelEvents(project.settings, project.model()))


def test_only_events_that_the_table_has_are_deleted_from_the_file(project: EventProject) -> None:
    """Without a running collector, the flush deletes them."""
    take(project, {"page": "1"}, {"page": "2"}, {"page": "3"})
    delete_flushed_events(project.settings, project.model())
    assert 3 == len(read_page_after(event_store_path(project.settings), MODEL, 0, limit=9))
    commit(project, 2)
    delete_flushed_events(project.settings, project.model())
    assert [3] == [intake.number for intake in read_page_after(event_store_path(project.settings), MODEL, 0, limit=9)]


def test_a_running_collector_deletes_flushed_events_itself(project: EventProject) -> None:
    """The file may have only one writer, so the flush leaves it unchanged."""
    with project.running_collector() as serving:
        for _ in range(3):
            serving.client.post({"page": "1"})
        commit(project, 2)
        delete_flushed_events(project.settings, project.model())
        assert 3 == len(read_page_after(event_store_path(project.settings), MODEL, 0, limit=9))
        serving.run_periodic_tasks()
        assert [3] == [
            intake.number for intake in read_page_after(event_store_path(project.settings), MODEL, 0, limit=9)
        ]
        assert {"status": "ok", "waiting": 1} == serving.client("GET", "/health").body


def test_a_restored_file_continues_after_the_numbers_in_the_table(project: EventProject) -> None:
    """Otherwise the next events would count as flushed, and would be deleted."""
    take(project, {"page": "1"})
    commit(project, 500)
    with project.running_collector() as serving:
        serving.client.post({"page": "2"})
        assert [(501, ["2"])] == pages(ModelEvents(project.settings, project.model()))


@pytest.mark.parametrize(
    ("columns", "rows", "misfits"),
    [
        ("page STRING, more INT", [["/a", None, '{"seconds":"3"}']], []),  # one column was removed, and one was added
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
def test_waiting_events_are_read_with_the_current_columns(
    project: EventProject, columns: str, rows: list[Any], misfits: list[InvalidEvent]
) -> None:
    """An acknowledged event is never lost: it becomes a row, with `_extra` for removed columns, or an invalid row."""
    (project.root / "models/events/views.sql").write_text(VIEWS_MODEL.replace("seconds INT", "seconds STRING"))
    take(project, {"page": "/a", "seconds": "3"})
    (project.root / "models/events/views.sql").write_text(f"-- @kind: events\n{columns}\n")
    (portion,) = ModelEvents(project.settings, project.model()).read_batches(None)
    assert (1, rows, misfits) == portion


def test_without_a_file_no_event_waits(project: EventProject) -> None:
    """Most projects have no collector."""
    events = ModelEvents(project.settings, project.model())
    assert (0, []) == (events.summarize_pending().events, pages(events))
    delete_flushed_events(project.settings, project.model())
    assert not event_store_path(project.settings).exists()
    assert read_last_transaction(table_path(project.settings, MODEL), "x") is None
