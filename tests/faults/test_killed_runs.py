"""The command `ondatra run`, killed while its JVM works: the next run completes it, and one call may be repeated.

Nothing is lost. Each round starts two JVMs, so this belongs to `make soak`.
"""

import collections
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from support.processes.killable_command import KillableCommand
from support.projects.shop_project import write_contacts, write_shop_files

from ondatra_dagster.deltalog.active_files import read_table_snapshot
from ondatra_dagster.testing.demo_api import DemoApi
from ondatra_dagster.warehouse.read_rows_of_named_table import read_row_pages

pytestmark = pytest.mark.soak


def calls(api: DemoApi, count: int) -> Callable[[KillableCommand], bool]:
    calls_before = len(api.calls)
    return lambda run: len(api.calls) >= calls_before + count


def said(text: str) -> Callable[[KillableCommand], bool]:
    return lambda run: text in run.output


MOMENTS: dict[str, Callable[[DemoApi], Callable[[KillableCommand], bool]]] = {
    "as its JVM comes up": lambda api: lambda run: run.jvm_pid is not None,
    "after the first table": lambda api: said("raw.contacts"),
    "after the table that is pushed": lambda api: said("sync.crm  "),
    "in the first call": lambda api: calls(api, 1),
    "among the calls": lambda api: calls(api, 40),
}


def test_a_run_killed_at_five_moments_is_completed_by_the_next(api: DemoApi, tmp_path: Path) -> None:
    """A laptop that goes to sleep, or a node that is removed, ends a run like this."""
    root = write_shop_files(tmp_path / "a shop", url=api.url)
    for kills, (moment, event) in enumerate(MOMENTS.items(), start=1):
        emails = {f"c{n}": f"{kills}.{n}@example.com" for n in range(100)}
        write_contacts(root, **emails)
        run = KillableCommand(root)
        run.wait_until(event(api))
        run.kill()
        again = KillableCommand(root)
        assert 0 == again.wait(), f"{moment}: {again.output}"
        assert emails == {key: row["email"] for key, row in api.contacts().items()}, moment
        call_counts = collections.Counter((call.method, json.dumps(call.body)) for call in api.calls)
        assert call_counts.total() - len(call_counts) <= kills, moment
    assert 0 == KillableCommand(root, "maintain").wait()  # runs that have only calls left start no Spark
    assert recorded(root) == logged(root)


def recorded(root: Path) -> list[tuple[str, str]]:
    """Return every published record with its run."""
    files = (root / ".ondatra" / "tracking" / "sync_tracking_datasets").rglob("*.parquet")
    columns = ["sync_run_id", "identifier"]
    tables = [pq.read_table(file, columns=columns, partitioning=None) for file in files]
    return sorted(tuple(row.values()) for table in tables for row in table.to_pylist())


def logged(root: Path) -> list[tuple[str, str]]:
    """Return every record in the sync log with its run."""
    path = str(root / ".ondatra" / "warehouse" / "ondatra" / "sync_log")
    rows = [row for page in read_row_pages(read_table_snapshot(path), path) for row in page.to_pylist()]
    return sorted((row["sync_run_id"], row["record_identifier"]) for row in rows)


def test_a_deleted_queue_folder_loses_nothing(api: DemoApi, tmp_path: Path) -> None:
    """Recorded rows aren't sent again, and the others are sent."""
    root = write_shop_files(tmp_path / "shop", url=api.url)
    emails = {f"c{n}": f"{n}@example.com" for n in range(100)}
    write_contacts(root, **emails)
    assert 0 == KillableCommand(root).wait()
    for file in (root / ".ondatra" / "queue").iterdir():
        file.unlink()
    before = len(api.calls)
    write_contacts(root, **{**emails, "c7": "seven@example.com"})
    assert 0 == KillableCommand(root).wait()
    assert [("PATCH", "/crm/contacts/c7")] == [(call.method, call.path) for call in api.calls[before:]]
