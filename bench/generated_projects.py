"""The generated projects of any size.

The first model reads a file; each other one joins the previous and an earlier one.
"""

from pathlib import Path

import orjson

from ondatra_dagster.app.workspace import load_workspace
from ondatra_dagster.deltalog.commit_user_metadata import CommitMetadata
from ondatra_dagster.planning.find_table_and_columns import table_path
from ondatra_dagster.planning.input_versions import read_input_versions

QUERY = """
WITH recent AS (
    SELECT id, email, upper(name) AS name, country, orders FROM {before} WHERE orders > 3
)
SELECT r.id, r.email, r.name, coalesce(r.country, o.country) AS country, sum(r.orders) AS orders
FROM recent AS r
LEFT JOIN {other} AS o ON o.id = r.id
GROUP BY r.id, r.email, r.name, coalesce(r.country, o.country)
"""
FIRST_QUERY = "SELECT * FROM csv.`data/rows.csv`"


def build_queries(models: int) -> dict[str, str]:
    """Return the query of each model, by the model's name."""
    texts = {"m0": FIRST_QUERY}
    for number in range(1, models):
        texts[f"m{number}"] = QUERY.format(before=f"mart.m{number - 1}", other=f"mart.m{number // 2}")
    return texts


def write_project(root: Path, models: int) -> Path:
    (root / "models" / "mart").mkdir(parents=True)
    (root / "data").mkdir()
    (root / "data" / "rows.csv").write_text("id,email,name,country,orders\n", encoding="utf-8")
    (root / "pyproject.toml").write_text("[tool.ondatra]\n", encoding="utf-8")
    for name, query in build_queries(models).items():
        header = "-- @kind: merge\n-- @unique_key: id\n-- @description: One of many.\n"
        (root / "models" / "mart" / f"{name}.sql").write_text(header + query, encoding="utf-8")
    return root


def write_tables(root: Path) -> None:
    """Write a Delta log for each model as if its table were up to date, so that a run has nothing to do."""
    workspace = load_workspace(root)
    for model in workspace.project.models.values():
        inputs = read_input_versions(model.inputs, workspace.settings, workspace.plan_inputs().tables)
        metadata = CommitMetadata(definition=model.definition, inputs=inputs, run_id="bench", rows=0)
        schema = orjson.dumps({"type": "struct", "fields": []}).decode()
        actions = (
            {"commitInfo": {"userMetadata": metadata.dump()}},
            {"metaData": {"id": model.id, "schemaString": schema, "configuration": {}}},
            {"add": {"path": "x", "size": 1, "dataChange": True}},
        )
        log_folder = Path(table_path(workspace.settings, model.id)) / "_delta_log"
        log_folder.mkdir(parents=True)
        (log_folder / f"{0:020}.json").write_bytes(b"\n".join(map(orjson.dumps, actions)))
