"""The order of the models, and which models read each other, directly or not: pure functions on a graph of ids."""

import graphlib
from collections.abc import Collection, Mapping

from ondatra_dagster.project.model import Model, ModelInput

Graph = Mapping[str, Collection[str]]


def sort_topologically(graph: Graph) -> tuple[list[str], list[list[str]]]:
    """Return the ids, each after the ids that it reads, and a list of cycles.

    [a, b, a] is the cycle in which a reads b and b reads a. The ids of a cycle, and those that read one, are in the
    order too: the caller reports the cycle.
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
    """Return all ids that can be reached from `start` in at most `steps` steps, without `start`."""
    reached: set[str] = set()
    edge = {start}
    while edge and (steps is None or steps > 0):
        edge = {near for id_ in edge for near in graph.get(id_, ())} - reached - {start}
        reached |= edge
        steps = None if steps is None else steps - 1
    return reached


def reverse_edges(graph: Graph) -> dict[str, list[str]]:
    """Return the ids that read each id."""
    readers: dict[str, list[str]] = {id_: [] for id_ in graph}
    for id_, read in graph.items():
        for other in read:
            readers.setdefault(other, []).append(id_)
    return readers


def _normalize_cycle(path: list[str]) -> list[str]:
    """Return graphlib's cycle as [a, b, a] where each reads the next. In graphlib's each is read by the next."""
    circle = path[:0:-1]
    first = circle.index(min(circle))
    return [*circle[first:], *circle[:first], circle[first]]


def model_graph(models: Mapping[str, Model]) -> dict[str, list[str]]:
    """Return the ids of the models that each model reads."""
    return {
        model.id: [read.model for read in model.inputs if isinstance(read, ModelInput)] for model in models.values()
    }
