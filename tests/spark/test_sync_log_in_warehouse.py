"""The table `ondatra.sync_log` in a real warehouse: runs write it, and users query it."""

import re
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from support.spark.spark_project import SparkProject

from ondatra_dagster.cli.commands.maintain import run_maintenance
from ondatra_dagster.deltalog.log_reader import read_table_state
from ondatra_dagster.planning.find_table_and_columns import find_named_table
from ondatra_dagster.testing.demo_api import DEMO_KEY, DemoApi
from ondatra_dagster.warehouse.append_to_sync_log_table import SyncLogTable
from ondatra_dagster.warehouse.read_rows_of_named_table import read_table_rows
from ondatra_dagster.warehouse.spark.session import Warehouse

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
CRM = """
-- @kind: merge
-- @unique_key: customer_id
-- @sink: crm_push
SELECT customer_id, name, email FROM csv.`data/customers.csv` WITH ('header' = 'true')
"""
REJECTS = """
SELECT record_identifier, status_message FROM ondatra.sync_log WHERE status = 'rejected'
"""
COLUMNS = ("customer_id", "name", "email")
ADA, BEN = ("C-1", "Ada", "ada@x.org"), ("C-2", "Ben", "ben@x.org")
BAD = """{"error":"email '%s' isn't an address"}"""
QUERIES = re.findall(r"```sql\n(.*?)```", (ROOT / "docs" / "sync-log.md").read_text(), re.DOTALL)


@pytest.fixture
def shop(tmp_path: Path, shared_warehouse: Warehouse, api: DemoApi) -> SparkProject:
    shop = SparkProject(tmp_path / "my shop", shared_warehouse.session)
    push = (ROOT / "lib" / "crm_push.star").read_text().replace('"http://127.0.0.1:8321"', f'"{api.url}"')
    shop.write_files(
        {
            "pyproject.toml": "[tool.ondatra]\n",
            ".env": f"DEMO_API_KEY={DEMO_KEY}\n",
            "lib/crm_push.star": push,
            "models/sync/crm.sql": CRM,
        }
    )
    return shop


def logged(shop: SparkProject) -> pa.Table:
    """Return what `ondatra query ondatra.sync_log` reads."""
    project = shop.workspace.project
    return pa.concat_tables(read_table_rows(project.settings, find_named_table(project, "ondatra.sync_log")).pages)


def ask(shop: SparkProject, query: str) -> list[tuple[object, ...]]:
    """Return the answer to a query, which is the same in Spark and in DuckDB."""
    path = shop.table_path("ondatra.sync_log")
    here = [tuple(row) for row in shop.session.sql(query.replace("ondatra.sync_log", f"delta.`{path}`")).collect()]
    with duckdb.connect() as there:
        there.execute("create schema ondatra; set timezone = 'UTC'")
        there.register("rows", logged(shop))
        there.execute("create view ondatra.sync_log as select * from rows")
        answer = there.sql(query).fetchall()
    assert [tuple(map(_plain, row)) for row in answer] == [tuple(map(_plain, row)) for row in here]
    return answer


def _plain(value: object) -> object:
    return value.timestamp() if hasattr(value, "timestamp") else value


def test_the_four_questions_are_one_query_each(shop: SparkProject) -> None:
    """They are: when was a row updated, why was it rejected, which reason is most frequent, what was sent over time."""
    shop.write_rows("customers", COLUMNS, [ADA, BEN, ("C-3", "Cyn", "none"), ("C-4", "Dan", "none")])
    assert 0 == shop.run(keeps_log=True)
    shop.write_rows("customers", COLUMNS, [ADA, ("C-2", "Ben", "lost"), (None, "Eve", "eve@x.org")])
    assert 1 == shop.run(keeps_log=True)  # all attempted rows were rejected
    shop.write_rows("customers", COLUMNS, [ADA, ("C-2", "Bea", "bea@x.org")])
    assert 0 == shop.run(keeps_log=True)

    when, why, which, what = (ask(shop, query) for query in QUERIES)
    records = [(operation, status, payload) for _, operation, status, payload in what]
    assert [
        ("upsert", "succeeded", '{"customer_id":"C-2","name":"Ben","email":"ben@x.org"}'),
        ("upsert", "rejected", '{"customer_id":"C-2","name":"Ben","email":"lost"}'),
        ("upsert", "succeeded", '{"customer_id":"C-2","name":"Bea","email":"bea@x.org"}'),
    ] == records
    assert [what[-1][0]] == [row[0] for row in when]
    assert [(what[1][0], BAD % "lost")] == why
    assert [(BAD % "none", 2), (BAD % "lost", 1)] == which
    by_status = ask(shop, "SELECT status, count(*) FROM ondatra.sync_log GROUP BY 1 ORDER BY 1")
    assert [("NULL", 1), ("rejected", 3), ("succeeded", 3)] == by_status


def test_the_sync_log_can_be_joined_with_the_fact_tables(shop: SparkProject) -> None:
    """The fact tables have the names for the log's ids."""
    shop.write_rows("customers", COLUMNS, [ADA])
    shop.run(keeps_log=True)
    facts = f"{shop.workspace.settings.tracking}/metadata/1"
    rows = logged(shop)  # noqa: F841 - DuckDB finds it by its name
    names = duckdb.sql(
        f"""
        SELECT s.name, d.name, o.name
        FROM rows
        JOIN '{facts}/source_objects.parquet' s ON s.id = source_object_id
        JOIN '{facts}/destinations.parquet' d ON d.id = destination_id
        JOIN '{facts}/destination_objects.parquet' o ON o.id = destination_object_id
        """
    ).fetchall()
    sync = shop.workspace.sync("sync.crm")
    assert [("sync.crm", sync.push_config.destination, sync.push_config.object)] == names


def test_a_model_may_read_the_sync_log(shop: SparkProject, capfd: pytest.CaptureFixture[str]) -> None:
    """The log isn't declared. It has versions like any table, so the model runs when there are new records."""
    shop.write_rows("customers", COLUMNS, [ADA, ("C-3", "Cyn", "none")])
    shop.run(keeps_log=True)
    shop.write_files({"models/ops/rejects.sql": REJECTS})
    assert 0 == shop.run(keeps_log=True)
    table = shop.session.read.format("delta").load(shop.table_path("ops.rejects"))
    assert [("C-3", BAD % "none")] == [(row[0], row[1]) for row in table.collect()]
    assert not shop.workspace.plan(None).has_work


def test_maintain_appends_the_records_of_runs_without_spark(
    shop: SparkProject, api: DemoApi, capfd: pytest.CaptureFixture[str]
) -> None:
    """A second maintenance appends none of them again."""
    shop.write_rows("customers", COLUMNS, [ADA, BEN])
    shop.run()
    assert not Path(shop.table_path("ondatra.sync_log")).exists()
    for message in ("2 records appended", "0 records appended"):
        capfd.readouterr()
        assert 0 == run_maintenance(shop.workspace, as_json=False, open_service=shop.open_engine)
        assert message in capfd.readouterr().err
    assert 2 == logged(shop).num_rows


def test_a_late_commit_of_an_abandoned_process_is_not_repeated(shop: SparkProject) -> None:
    """There may be two machines, or a JVM that outlives its run. Delta itself knows the number of the commit."""
    shop.write_rows("customers", COLUMNS, [ADA])
    shop.run(keeps_log=True)
    rows = logged(shop)
    state = read_table_state(shop.table_path("ondatra.sync_log"))
    assert (0, "interval 3650 days") == (state.version, state.properties["delta.logRetentionDuration"])
    with shop.open_tables() as tables:
        SyncLogTable(tables.warehouse).append(rows, note="late", number=1)
        assert 1 == logged(shop).num_rows
        SyncLogTable(tables.warehouse).append(rows, note="next", number=2)
        assert 2 == logged(shop).num_rows
