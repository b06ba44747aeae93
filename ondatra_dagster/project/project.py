"""A project whose files were read without a problem: its settings, its models, and which model reads which."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from ondatra_dagster.errors import Problem, SelectionError
from ondatra_dagster.project.model import Model
from ondatra_dagster.project.model_order_and_dependencies import find_reachable, model_graph
from ondatra_dagster.project.settings.read_settings_and_defaults import Settings
from ondatra_dagster.project.spelling_suggestions import suggest_correction


@dataclasses.dataclass(frozen=True, kw_only=True)
class Project:
    root: Path
    settings: Settings
    models: Mapping[str, Model]  # by id; each model follows those that it reads
    sink_files: Mapping[str, Path]  # sink → path of its file lib/NAME.star
    warnings: tuple[Problem, ...] = ()

    def model(self, name: str) -> Model:
        """Return the model with this name, in any case; raise SelectionError if there is no such model."""
        try:
            return self.models[name.replace("/", ".").casefold()]
        except KeyError:
            model_names = [model.name for model in self.models.values()]
            raise SelectionError(
                f"there is no model {name!r}; {suggest_correction(name, model_names, plural='models')}"
            ) from None

    def sync(self, sync_id: str) -> Model:
        """Return the model whose sync id or name this is; raise SelectionError if there is no such model."""
        for model in self.models_with_sinks():
            if model.sink and sync_id.casefold() in (model.sink.sync_id.casefold(), model.id):
                return model
        sync_ids = [model.sink.sync_id for model in self.models_with_sinks() if model.sink]
        raise SelectionError(f"there is no sync {sync_id!r}; {suggest_correction(sync_id, sync_ids, plural='syncs')}")

    def models_with_sinks(self) -> tuple[Model, ...]:
        """Return the models with a @sink, in the order of `models`."""
        return tuple(model for model in self.models.values() if model.sink)

    def upstream(self, model_id: str) -> set[str]:
        """Return the ids of all models that the model reads, directly or indirectly."""
        return find_reachable(model_graph(self.models), model_id)
