"""A project that was read whole and without a problem."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from ondatra_dagster.errors import Problem, SelectionError
from ondatra_dagster.project import graph
from ondatra_dagster.project.model import Model, ModelInput
from ondatra_dagster.project.settings.settings import Settings
from ondatra_dagster.project.suggestions import correction


@dataclasses.dataclass(frozen=True, kw_only=True)
class Project:
    root: Path
    settings: Settings
    models: Mapping[str, Model]  # by id, each after those that it reads
    sink_files: Mapping[str, Path]  # sink → lib/NAME.star
    warnings: tuple[Problem, ...] = ()

    def model(self, name: str) -> Model:
        """The model of that name, however it is spelled; raises SelectionError."""
        try:
            return self.models[name.replace("/", ".").casefold()]
        except KeyError:
            raise SelectionError(f"there is no model {name!r}; {self._correction(name)}") from None

    def sync(self, sync_id: str) -> Model:
        """The model whose @sink has that sync id, or that is called so; raises SelectionError."""
        for model in self.with_sinks():
            if model.sink and sync_id.casefold() in (model.sink.sync_id.casefold(), model.id):
                return model
        known = [model.sink.sync_id for model in self.with_sinks() if model.sink]
        raise SelectionError(f"there is no sync {sync_id!r}; {correction(sync_id, known, plural='syncs')}")

    def with_sinks(self) -> tuple[Model, ...]:
        """The models that are pushed somewhere, in order."""
        return tuple(model for model in self.models.values() if model.sink)

    def upstream(self, model_id: str) -> set[str]:
        """The ids of all models that this one is made from."""
        return graph.reach(self.graph(), model_id)

    def graph(self) -> dict[str, list[str]]:
        """The ids of the models that each model reads."""
        return {
            model.id: [read.model for read in model.inputs if isinstance(read, ModelInput)]
            for model in self.models.values()
        }

    def _correction(self, name: str) -> str:
        return correction(name, [model.name for model in self.models.values()], plural="models")
