"""The assets of files and tables that another program writes, or another asset of the user.

Their versions are read in planning, their contents in the warehouse.
"""

from collections.abc import Iterable, Mapping

import dagster as dg

from ondatra_dagster.orchestration.asset_keys import file_key, source_key
from ondatra_dagster.project.model import FileInput, Model, SourceInput

FILE_GROUP = "files"  # the asset group of files


def source_keys_by_name(models: Iterable[Model]) -> Mapping[str, dg.AssetKey]:
    """Return the key of each source table that a model reads, by its case-folded name."""
    return {name: source_key(source) for name, source in _source_inputs(models).items()}


def source_specs(models: Iterable[Model]) -> list[dg.AssetSpec]:
    """Return the specs of the assets for these files and tables, each once."""
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
    """Return each source table once, as the first model spells it."""
    inputs_by_key: dict[str, SourceInput] = {}
    for model in models:
        for model_input in model.inputs:
            if isinstance(model_input, SourceInput):
                inputs_by_key.setdefault(model_input.name.casefold(), model_input)
    return inputs_by_key
