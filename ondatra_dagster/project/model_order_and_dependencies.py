"""The order of the models and their direct and indirect dependencies, as pure functions on a graph of model ids."""

import graphlib
from collections.abc import Collection, Mapping

from ondatra_dagster.project.model import Model, ModelInput

Graph = Mapping[str, Collection[str]]


def sort_topologically(graph: Graph) -> tuple[list[str], list[list[str]]]:
    """Return the ids in an order in which each follows the ids that it reads, and a list of cycles.

    In the cycle [a, b, a], a reads b and b reads a. The order also contains the ids of cycles and the ids that read
    them, because the caller reports the cycle.
    """
    remaining_edges = {id_: set(graph[id_]) & set(graph) for id_ in sorted(graph)}
    cycles: list[list[str]] = []
    while True:
        sorter = graphlib.TopologicalSorter({id_: sorted(ids) for id_, ids in remaining_edges.items()})
        try:
            return list(sorter.static_order()), cycles
        except graphlib.CycleError as error:
            cycle = _normalize_cycle(error.args[1])
            cycles.append(cycle)
            remaining_edges[cycle[0]].discard(cycle[1])


def find_reachable(graph: Graph, start: str, *, steps: int | None = None) -> set[str]:
    """Return all ids that can be reached from `start` in at most `steps` steps, without `start`."""
    reachable_ids: set[str] = set()
    newest_ids = {start}
    while newest_ids and (steps is None or steps > 0):
        newest_ids = {neighbor for id_ in newest_ids for neighbor in graph.get(id_, ())} - reachable_ids - {start}
        reachable_ids |= newest_ids
        steps = None if steps is None else steps - 1
    return reachable_ids


def reverse_edges(graph: Graph) -> dict[str, list[str]]:
    """Return the reversed graph: for each id, the ids that read it."""
    readers: dict[str, list[str]] = {id_: [] for id_ in graph}
    for id_, read_ids in graph.items():
        for read_id in read_ids:
            readers.setdefault(read_id, []).append(id_)
    return readers


def _normalize_cycle(path: list[str]) -> list[str]:
    """Return graphlib's cycle reversed, as [a, b, a] where each id reads the next. graphlib has the opposite order."""
    circle = path[:0:-1]
    first_index = circle.index(min(circle))
    return [*circle[first_index:], *circle[:first_index], circle[first_index]]


def model_graph(models: Mapping[str, Model]) -> dict[str, list[str]]:
    """Return the graph of the models: for each id, the ids of the models that it reads."""
    return {
        model.id: [input_.model for input_ in model.inputs if isinstance(input_, ModelInput)]
        for model in models.values()
    }
