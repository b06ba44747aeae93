"""A Delta table that pyarrow writes: a log and data files, without Spark."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

TYPES = {"int64": "long", "string": "string", "double": "double"}


def write_table(table: Path, rows: pa.Table, **of_file: Any) -> None:
    """Add a file to the table, which is created if needed; `of_file` goes into the file's entry in the log."""
    log = table / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    version = len(list(log.glob("*.json")))
    file = f"part {version}.parquet"
    pq.write_table(rows, table / file)
    fields = [
        {"name": field.name, "type": TYPES[str(field.type)], "nullable": True, "metadata": {}} for field in rows.schema
    ]
    schema = json.dumps({"type": "struct", "fields": fields})
    entry = {
        "path": file.replace(" ", "%20"),
        "partitionValues": {},
        "size": (table / file).stat().st_size,
        "dataChange": True,
        "stats": json.dumps({"numRecords": rows.num_rows}),
        **of_file,
    }
    actions = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": {"id": "t", "schemaString": schema, "partitionColumns": [], "configuration": {}}},
        {"add": entry},
    ]
    (log / f"{version:020}.json").write_text("\n".join(map(json.dumps, actions)) + "\n")
