"""Helpers for files that a test writes, and for models that read them."""

from pathlib import Path

from support.spark.model_tables import ModelTables, build_model

from ondatra_dagster.project.model import FileInput, Model, Reference
from ondatra_dagster.warehouse.model_run import evaluate_query


def write_input_file(lake: ModelTables, path: str, content: str | bytes) -> Path:
    file = lake.warehouse.settings.root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file


def build_file_model(path: str, file_format: str = "csv", **options: str) -> Model:
    source = FileInput(format=file_format, path=path, options=tuple(options.items()))
    name = f"{file_format}.`{path}`"
    reference = Reference(start=14, end=14 + len(name), input=source)
    return build_model("table", f"select * from {name}", inputs=(source,), references=(reference,))


def evaluate_rows(lake: ModelTables, model: Model) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in evaluate_query(lake.warehouse, model, {}).collect())
