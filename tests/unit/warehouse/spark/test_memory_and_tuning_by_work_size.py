"""The estimate of a model's work, before anything is read."""

import math
from pathlib import Path

from ondatra_dagster.project.model import FileInput, Input, Model, ModelInput, SourceInput
from ondatra_dagster.project.model_kinds import KINDS
from ondatra_dagster.project.settings.read_settings_and_defaults import read_settings
from ondatra_dagster.warehouse.spark.memory_and_tuning_by_work_size import (
    QUICK_COMPILER_OPTION,
    compiler_options,
    estimate_model_bytes,
)


def reading(*inputs: Input) -> Model:
    return Model(
        name="a.b",
        path=Path("b.sql"),
        file="b.sql",
        kind=KINDS["table"],
        sql="",
        sql_line=1,
        definition="",
        inputs=inputs,
    )


def test_the_sizes_of_the_inputs_and_of_the_models_own_table_are_added(tmp_path: Path) -> None:
    settings = read_settings(tmp_path, {})
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x.csv").write_text("12345")
    (tmp_path / "data" / "y.csv").write_text("123")
    for table, size in (("a/b", 100), ("raw/c", 1000)):
        log = Path(settings.warehouse) / table / "_delta_log"
        log.mkdir(parents=True)
        (log / f"{0:020}.json").write_text("")
        (log / f"{0:020}.crc").write_text(f'{{"tableSizeBytes":{size}}}')
    files = FileInput(format="csv", path="data/*.csv")
    assert 1108 == estimate_model_bytes(settings, reading(files, ModelInput(model="raw.c")))
    assert math.isinf(estimate_model_bytes(settings, reading(SourceInput(source="crm", table="t", location="cat.crm"))))
    assert math.isinf(estimate_model_bytes(settings, reading(FileInput(format="json", path="s3a://b/x.json"))))


def test_only_large_work_uses_the_optimizing_compiler() -> None:
    """Optimizing takes seconds, which is longer than a whole small run."""
    assert (QUICK_COMPILER_OPTION,) == compiler_options(1_000_000)
    assert () == compiler_options(500_000_000)
    assert () == compiler_options(math.inf)
