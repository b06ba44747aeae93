"""Where a model's columns come from, as Dagster draws it: columns of the assets right above it."""

from collections.abc import Mapping

import dagster as dg

from ondatra_dagster.orchestration.naming import file_key, model_key
from ondatra_dagster.orchestration.source_assets import source_keys
from ondatra_dagster.orchestration.workspace import Workspace
from ondatra_dagster.project.model import FileInput, Input, Model, ModelInput


def column_lineage(workspace: Workspace, model: Model) -> dg.TableColumnLineage:
    """Of each column that can be followed; Dagster has no word for one that can't, so that is left out."""
    models = workspace.project.models
    sources = source_keys(models.values())
    return dg.TableColumnLineage(
        {
            column.name: [
                dg.TableColumnDep(asset_key=key, column_name=name)
                # a file that is read in two ways is one asset
                for key, name in dict.fromkeys(
                    (_key(origin.input, models, sources), origin.column) for origin in column.origins
                )
            ]
            for column in workspace.lineage.columns(model)
            if column.is_known
        }
    )


def _key(read: Input, models: Mapping[str, Model], sources: Mapping[str, dg.AssetKey]) -> dg.AssetKey:
    if isinstance(read, ModelInput):
        return model_key(models[read.model])
    return file_key(read) if isinstance(read, FileInput) else sources[read.name.casefold()]
