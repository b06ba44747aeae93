"""A project whose files were read without a problem: its settings and models, and what reads what."""

import dataclasses
import graphlib
from collections.abc import Collection, Mapping
from pathlib import Path

from ondatra_dagster.errors import Problem, SelectionError
from ondatra_dagster.project.model import Model, ModelInput
from ondatra_dagster.project.settings.read_settings_and_defaults import Settings
from ondatra_dagster.project.spelling_suggestions import suggest_correction

Graph = Mapping[str, Collection[str]]


def sort_topologically(graph: Graph) -> tuple[list[str], list[list[str]]]:
    """The ids, each after those that it reads, and one cycle for each knot: [a, b, a] when a reads b reads a.

    What is in a cycle, or reads one, still has its place in the order: the caller says what is wrong with it.
    """
    left = {id_: set(graph[id_]) & set(graph) for id_ in sorted(graph)}
    cycles: list[list[str]] = []
    while True:
        sorter = graphlib.TopologicalSorter({id_: sorted(read) for id_, read in left.items()})
        try:
            return list(sorter.static_order()), cycles
        except graphlib.CycleError as error:
            cycle = _normalize_cycle(error.args[1])
            cycles.append(cycle)
            left[cycle[0]].discard(cycle[1])


def find_reachable(graph: Graph, start: str, *, steps: int | None = None) -> set[str]:
    """All that can be reached from `start`, itself left out; at most `steps` away."""
    reached: set[str] = set()
    edge = {start}
    while edge and (steps is None or steps > 0):
        edge = {near for id_ in edge for near in graph.get(id_, ())} - reached - {start}
        reached |= edge
        steps = None if steps is None else steps - 1
    return reached


def reverse_edges(graph: Graph) -> dict[str, list[str]]:
    """Who reads each id."""
    readers: dict[str, list[str]] = {id_: [] for id_ in graph}
    for id_, read in graph.items():
        for other in read:
            readers.setdefault(other, []).append(id_)
    return readers


def _normalize_cycle(path: list[str]) -> list[str]:
    """A cycle as graphlib gives it, each read by the next, as [a, b, a]: each reads the next."""
    circle = path[:0:-1]
    first = circle.index(min(circle))
    return [*circle[first:], *circle[:first], circle[first]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Project:
    root: Path
    settings: Settings
    models: Mapping[str, Model]  # by id, each after those that it reads
    sink_files: Mapping[str, Path]  # sink → lib/NAME.star
    warnings: tuple[Problem, ...] = ()

    def model(self, name: str) -> Model:
        """Return the model of that name, in any spelling; raises SelectionError."""
        try:
            return self.models[name.replace("/", ".").casefold()]
        except KeyError:
            known = [model.name for model in self.models.values()]
            raise SelectionError(
                f"there is no model {name!r}; {suggest_correction(name, known, plural='models')}"
            ) from None

    def sync(self, sync_id: str) -> Model:
        """Return the model with that sync id, or of that name; raises SelectionError."""
        for model in self.models_with_sinks():
            if model.sink and sync_id.casefold() in (model.sink.sync_id.casefold(), model.id):
                return model
        known = [model.sink.sync_id for model in self.models_with_sinks() if model.sink]
        raise SelectionError(f"there is no sync {sync_id!r}; {suggest_correction(sync_id, known, plural='syncs')}")

    def models_with_sinks(self) -> tuple[Model, ...]:
        """Return the models with a @sink, in order."""
        return tuple(model for model in self.models.values() if model.sink)

    def upstream(self, model_id: str) -> set[str]:
        """Return the ids of all models that this one is made from."""
        return find_reachable(model_graph(self.models), model_id)


def model_graph(models: Mapping[str, Model]) -> dict[str, list[str]]:
    """Return the ids of the models that each model reads."""
    return {
        model.id: [read.model for read in model.inputs if isinstance(read, ModelInput)] for model in models.values()
    }
