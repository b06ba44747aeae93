"""The assets of files and tables that models read, and that another program or another asset of the user writes.

Planning reads their versions, and the warehouse reads their contents.
"""

from collections.abc import Iterable, Mapping

import dagster as dg

from ondatra_dagster.orchestration.asset_keys import file_key, source_key
from ondatra_dagster.project.model import FileInput, Model, SourceInput

FILE_GROUP = "files"  # the asset group of files


def source_keys_by_name(models: Iterable[Model]) -> Mapping[str, dg.AssetKey]:
    """Return the asset key of each source table that a model reads, by the table's case-folded name."""
    return {name: source_key(source) for name, source in _source_inputs(models).items()}


def source_specs(models: Iterable[Model]) -> list[dg.AssetSpec]:
    """Return the asset specs of the files and source tables that models read, each once."""
    files = {
        file_key(file_input): file_input
        for model in models
        for file_input in model.inputs
        if isinstance(file_input, FileInput)
    }
    return [
        dg.AssetSpec(
            source_key(source),
            group_name=source.source,
            description=f"A table that exists already, in {source.location}",
            metadata={"dagster/table_name": source.name, "dagster/uri": f"{source.location}/{source.table}"}
            if "/" in source.location
            else {"dagster/table_name": f"{source.location}.{source.table}"},
        )
        for source in _source_inputs(models).values()
    ] + [
        dg.AssetSpec(
            key,
            group_name=FILE_GROUP,
            kinds={file_input.format},
            description=f"Files that models read: {file_input.path}",
            metadata={"path": dg.MetadataValue.path(file_input.path)},
        )
        for key, file_input in files.items()
    ]


def _source_inputs(models: Iterable[Model]) -> dict[str, SourceInput]:
    """Return each source table once, by case-folded name, as the first model spells it."""
    inputs_by_key: dict[str, SourceInput] = {}
    for model in models:
        for model_input in model.inputs:
            if isinstance(model_input, SourceInput):
                inputs_by_key.setdefault(model_input.name.casefold(), model_input)
    return inputs_by_key
