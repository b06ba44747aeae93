"""The dry runs over real tables: every kind on a clone, and then the run, which does what was forecast."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from support.files.folder_contents import read_folder
from support.spark.spark_project import SparkProject

from ondatra_dagster.storage.file_lock import FileLock
from ondatra_dagster.warehouse.spark.session import Warehouse

SINK = """
API = {"destination": "Nowhere", "object": "Thing"}

def push(rows):
    return {str(row["__ondatra_rowid"]) + ":" + row["__ondatra_change_type"]: "ok" for row in rows}
"""
SELECT = "SELECT `the id`, part, value FROM raw.things"
KEYS = {
    "table": "-- @partitioned_by: part\n",
    "append": "",
    "merge": "-- @unique_key: the id\n",
    "tracked": "-- @group_key: part\n",
    "scd2": "-- @unique_key: the id\n",
    "partition": "-- @partitioned_by: part\n",
}
COLUMNS = ("the id", "part", "value")
BEFORE = [("1", "a", "x"), ("2", "a", "y"), ("3", "b", "z")]
AFTER = [("1", "a", "x"), ("2", "a", "Y"), ("4", "c", "w")]
# creates, updates, deletes; rows before and after
EXPECTED = {
    "table": (0, 3, 0, 3, 3),
    "append": (2, 0, 0, 3, 5),
    "merge": (1, 1, 0, 3, 4),
    "tracked": (1, 1, 1, 2, 2),  # groups
    "scd2": (2, 2, 0, 3, 5),
    "partition": (1, 2, 0, 3, 4),
}


@pytest.fixture
def shop(tmp_path: Path, shared_warehouse: Warehouse) -> SparkProject:
    """Return a project with a table of raw rows, and a sync of every kind below it."""
    shop = SparkProject(tmp_path / "a shop", shared_warehouse.session)
    models = {
        f"models/sync/{kind}.sql": f"-- @kind: {kind}\n{key}-- @sink: nowhere\n{SELECT}\n" for kind, key in KEYS.items()
    }
    raw = "-- @kind: table\nSELECT * FROM csv.`data/things.csv` WITH ('header' = 'true')\n"
    shop.write_files({"pyproject.toml": "[tool.ondatra]\n", "lib/nowhere.star": SINK, "models/raw/things.sql": raw})
    shop.write_files(models)
    shop.write_rows("things", COLUMNS, BEFORE)
    return shop


def kept(shop: SparkProject) -> dict[str, bytes]:
    """Return the bytes of all files that a dry run may not touch."""
    state = shop.root / ".ondatra"
    folders = ("warehouse", "queue", "tracking")
    return {name: content for folder in folders for name, content in read_folder(state / folder).items()}


def planned(shop: SparkProject) -> dict[str, object]:
    """Return how many rows the newest run of each sync planned to pass to its push function."""
    planned_by_sync = {}
    for sync in shop.workspace.syncs:
        (run,) = shop.workspace.history.list_runs(sync, limit=1, with_dry=True)
        planned_by_sync[sync] = run.counts["grid"]["planned"]
    return planned_by_sync


def dry(shop: SparkProject, capfd: pytest.CaptureFixture[str]) -> dict[str, dict[str, object]]:
    """Return what a dry run reports about each sync."""
    capfd.readouterr()
    assert 0 == shop.run(is_dry=True, as_json=True)
    lines = map(orjson.loads, capfd.readouterr().out.splitlines())
    return {line["sync"].removeprefix("sync."): line for line in lines if "sync" in line}


def test_the_forecast_for_every_kind_is_what_then_happens(
    shop: SparkProject, capfd: pytest.CaptureFixture[str]
) -> None:
    """This holds for the first run and for one over changed rows. The dry runs leave no files in between."""
    first = dry(shop, capfd)
    assert {} == kept(shop)
    groups = told(first.pop("tracked"))
    assert ({(3, 0, 0, 0, 3)}, (2, 0, 0, 0, 2)) == (set(map(told, first.values())), groups)
    assert 0 == shop.run()
    shop.write_rows("things", COLUMNS, AFTER)
    with held_by_another_run(shop):
        before = kept(shop)
        second = dry(shop, capfd)
        assert before == kept(shop)
    assert not (shop.root / ".ondatra" / "dry").exists()
    assert EXPECTED == {kind: told(line) for kind, line in second.items()}
    foreseen = planned(shop)
    assert 0 == shop.run()
    assert foreseen == planned(shop)
    for kind, line in second.items():
        assert line["source_rows"] == len(shop.rowids_by_value(f"sync.{kind}", "__ondatra_rowid"))
    opened = [row for row in second["scd2"]["samples"] if row["change"] == "insert"]  # type: ignore[attr-defined]
    version = shop.workspace.plan_inputs().tables("sync.scd2").version  # type: ignore[union-attr]
    assert [[None, version]] * 2 == [row["columns"]["valid_from_snapshot"] for row in opened]


@contextlib.contextmanager
def held_by_another_run(shop: SparkProject) -> Iterator[None]:
    """Hold the locks of every table and every queue, as a run does; a dry run waits for none of them."""
    workspace = shop.workspace
    tables = [workspace.settings.state / "locks" / f"{model}.lock" for model in workspace.project.models]
    queues = [sync.lock_file for sync in workspace.syncs.values()]
    with contextlib.ExitStack() as locks:
        for path in (*tables, *queues):
            locks.enter_context(FileLock(path, purpose="a run"))
        yield


def told(line: dict[str, object]) -> tuple[object, ...]:
    names = ("creates", "updates", "deletes", "destination_before", "destination_after")
    return tuple(line[name] for name in names)


def test_a_dry_run_covers_past_inputs_invalid_rows_and_a_new_column(
    shop: SparkProject, capfd: pytest.CaptureFixture[str]
) -> None:
    """A row that came back is new for append, though the table has it. Merge has invalid rows, and alters a clone."""
    for kind in set(KEYS) - {"merge", "append"}:
        (shop.root / "models" / "sync" / f"{kind}.sql").unlink()
    one, two, three = BEFORE
    for rows in (BEFORE, [one, two, ("4", "c", "w")]):
        shop.write_rows("things", COLUMNS, rows)
        assert 0 == shop.run()
    before = kept(shop)
    invalid = [("5", "a", "u"), ("5", "a", "v"), (None, "a", "w")]
    shop.write_rows("things", COLUMNS, [one, two, ("4", "c", "w"), three, *invalid])
    merge = shop.root / "models" / "sync" / "merge.sql"
    merge.write_text(merge.read_text().replace("value FROM", "value, upper(value) AS loud FROM"))
    lines = dry(shop, capfd)
    assert before == kept(shop)
    assert (4, 0, 0, 4, 8) == told(lines["append"])
    assert (0, 4, 0, 4, 4) == told(lines["merge"])
    assert 3 == lines["merge"]["invalid"]
    assert {"loud": [None, "X"]} == lines["merge"]["samples"][0]["columns"]  # type: ignore[index]
    reasons = [row["reason"] for row in lines["merge"]["sample_invalid"]]  # type: ignore[attr-defined]
    assert ["DUPLICATE", "NULL"] == sorted(reasons)
    foreseen = planned(shop)
    assert 0 == shop.run()
    assert foreseen == planned(shop)
    before = kept(shop)
    assert {} == dry(shop, capfd)
    assert before == kept(shop)
