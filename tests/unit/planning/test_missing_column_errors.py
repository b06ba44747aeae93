"""The columns that certainly don't exist. They are found in queries and table logs before Spark starts."""

from collections.abc import Mapping
from pathlib import Path

import orjson
import pytest

from ondatra_dagster.deltalog.commit_user_metadata import CommitMetadata
from ondatra_dagster.planning.find_table_and_columns import table_path
from ondatra_dagster.planning.input_versions import format_table_version, read_input_versions, table_state_lookup
from ondatra_dagster.planning.missing_column_errors import find_missing_columns, up_to_date_check
from ondatra_dagster.planning.unchanged_run_cache import UnchangedRun
from ondatra_dagster.project.project import Project
from ondatra_dagster.project.project_loader import load_project
from ondatra_dagster.project.settings.read_settings_and_defaults import read_settings

FILES = {
    "data/customers.csv": "email,lastname\na@example.com,A\n",
    "models/raw/customers.sql": "select * from csv.`data/customers.csv` with ('header' = 'true')",
    "models/sync/crm.sql": "-- @kind: table\nselect\n    email,\n    lastnme\nfrom raw.customers",
}
COLUMNS = ("email", "lastname", "__ondatra_rowid")
FOUND = [
    "models/sync/crm.sql:4: column 'lastnme' doesn't exist there;"
    " did you mean 'lastname'? the columns are email, lastname"
]


def write(root: Path, files: Mapping[str, str]) -> Project:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return load_project(root, read_settings(root, {}))


def write_log(folder: str | Path, columns: tuple[str, ...], note: CommitMetadata) -> None:
    """Write a Delta table that has only a log."""
    fields = [{"name": name, "type": "string", "nullable": True, "metadata": {}} for name in columns]
    schema = orjson.dumps({"type": "struct", "fields": fields}).decode()
    actions = [{"commitInfo": {"userMetadata": note.dump()}}, {"metaData": {"id": "t", "schemaString": schema}}]
    log = Path(folder) / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_bytes(b"\n".join(map(orjson.dumps, actions)))


def ran(project: Project, model_id: str, columns: tuple[str, ...] = COLUMNS) -> None:
    """Write a table for the model, as if it had run on the current inputs."""
    model = project.models[model_id]
    inputs = read_input_versions(model.inputs, project.settings, table_state_lookup(project.settings))
    note = CommitMetadata(definition=model.definition, inputs=inputs, run_id="r")
    write_log(table_path(project.settings, model_id), columns, note)


def found(project: Project, unchanged: Mapping[str, UnchangedRun] | None = None) -> list[str]:
    return [str(problem) for problem in find_missing_columns(project, up_to_date_check(project, unchanged or {}))]


@pytest.fixture
def shop(tmp_path: Path) -> Project:
    """Return a project with a table of all columns of a file, and with a query that misspells one of them."""
    project = write(tmp_path, FILES)
    ran(project, "raw.customers")
    return project


def test_a_wrong_column_of_a_table_is_found(shop: Project) -> None:
    assert FOUND == found(shop)


def test_the_table_counts_for_a_model_that_does_not_run(shop: Project) -> None:
    """Its definition was edited, but only another model is selected."""
    project = write(shop.root, {"models/raw/customers.sql": "select 'x' as email, 'y' as lastnme"})
    of_run = [str(problem) for problem in find_missing_columns(project, {"raw.customers"}.__contains__, {"sync.crm"})]
    assert FOUND == of_run
    assert [] == found(project)
    assert [] == find_missing_columns(project, {"raw.customers"}.__contains__, {"raw.customers"})


def test_a_changed_file_may_have_other_columns(shop: Project) -> None:
    """The next run reads the file before the query."""
    (shop.root / "data" / "customers.csv").write_text("email,lastname,lastnme\na@example.com,A,B\n")
    assert [] == found(shop)


def test_a_file_that_was_read_again_without_changes_has_the_same_columns(shop: Project) -> None:
    (shop.root / "data" / "customers.csv").write_text("email,lastname\na@example.com,A\n\n")
    tables = table_state_lookup(shop.settings)
    model, table = shop.models["raw.customers"], tables("raw.customers")
    assert table is not None
    unchanged = UnchangedRun(
        definition=model.definition,
        inputs=read_input_versions(model.inputs, shop.settings, tables),
        table_version=format_table_version(table),
        at=0.0,
    )
    assert FOUND == found(shop, {"raw.customers": unchanged})


def test_a_table_that_does_not_exist_yet_may_have_any_column(tmp_path: Path) -> None:
    assert [] == found(write(tmp_path, FILES))


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("select email, lastname as lastnme from csv.`data/customers.csv`", []),
        (
            "select email, firstname from csv.`data/customers.csv`",
            [
                "models/sync/crm.sql:4: column 'lastnme' doesn't exist there;"
                " did you mean 'firstname'? the columns are email, firstname"
            ],
        ),
        ("select *, 1 as one from csv.`data/customers.csv`", []),
    ],
)
def test_the_edited_query_of_a_model_counts_and_not_its_table(shop: Project, query: str, expected: list[str]) -> None:
    """The edited model runs first."""
    assert expected == found(write(shop.root, {"models/raw/customers.sql": query}))


def test_a_changed_file_may_change_the_columns_of_all_tables_above_it(tmp_path: Path) -> None:
    """With SELECT * at each level, the columns of the file decide."""
    project = write(
        tmp_path,
        {
            **FILES,
            "models/mart/customers.sql": "select * from raw.customers",
            "models/sync/crm.sql": FILES["models/sync/crm.sql"].replace("raw", "mart"),
        },
    )
    ran(project, "raw.customers")
    ran(project, "mart.customers")
    assert FOUND == found(project)
    (tmp_path / "data" / "customers.csv").write_text("email,lastnme\na@example.com,A\n")
    assert [] == found(project)


def test_a_wrong_column_of_a_delta_source_is_found(tmp_path: Path) -> None:
    files = {
        "pyproject.toml": '[tool.ondatra.sources]\ncrm = "lake/crm"\n',
        "models/a/b.sql": "select amont from crm.deals",
    }
    project = write(tmp_path, files)
    assert [] == found(project)
    write_log(tmp_path / "lake" / "crm" / "deals", ("amount",), CommitMetadata(definition="", inputs={}, run_id=""))
    message = "models/a/b.sql:1: column 'amont' doesn't exist there; did you mean 'amount'?"
    assert [f"{message} the columns are amount"] == found(project)


def test_the_system_columns_of_a_kind_exist_too(tmp_path: Path) -> None:
    project = write(
        tmp_path,
        {
            "models/a/b.sql": "-- @kind: scd2\n-- @unique_key: id\nselect 1 as id",
            "models/a/c.sql": "select id, is_current, valid_from_snapshot, is_curent from a.b",
        },
    )
    message = "column 'is_curent' doesn't exist there; did you mean 'is_current'?"
    assert [message] == [problem.partition(": ")[2].partition(" the columns")[0] for problem in found(project)]


def test_column_names_that_may_be_patterns_are_left_to_spark(shop: Project) -> None:
    settings = '[tool.ondatra.spark.conf]\n"spark.sql.parser.quotedRegexColumnNames" = "true"\n'
    assert [] == found(write(shop.root, {"pyproject.toml": settings}))
