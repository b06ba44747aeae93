"""Which models are meant by what a user types: Dagster's selection syntax over model names.

    mart.customers   +mart.customers   mart.customers+   2+mart.customers+1   mart.*   *
    key:mart/customers   group:mart   kind:merge   tag:daily   owner:team:crm

Several selections are put together. Nothing here says what is done with a model.
"""

import fnmatch
import re
from collections.abc import Callable, Iterable

from ondatra_dagster.errors import SelectionError
from ondatra_dagster.project import graph
from ondatra_dagster.project.model import Model
from ondatra_dagster.project.project import Project
from ondatra_dagster.project.suggestions import correction

TERM = re.compile(r"(?P<up>\d*\+)?(?P<core>[^+\s]+)(?P<down>\+\d*)?")
ATTRIBUTES: dict[str, Callable[[Model, str], bool]] = {
    "key": lambda model, pattern: _matches(model.id, pattern.replace("/", ".")),
    "group": lambda model, pattern: _matches(model.key_path[0], pattern),
    "kind": lambda model, pattern: _matches(model.kind.name, pattern),
    "tag": lambda model, pattern: any(_matches(tag, pattern) for tag in model.tags),
    "owner": lambda model, pattern: any(_matches(owner, pattern) for owner in model.owners),
}


def select(project: Project, selections: Iterable[str]) -> set[str]:
    """The ids of all models that the selections mean; raises SelectionError for one that means none."""
    reads = project.graph()
    read_by = graph.turned_round(reads)
    selected: set[str] = set()
    for written in selections:
        term = TERM.fullmatch(written.strip())
        if term is None:
            raise SelectionError(f"{written!r} is not a selection; write mart.orders, +mart.orders or mart.*")
        chosen = _chosen(project, term["core"])
        selected |= chosen
        for id_ in chosen:
            selected |= _around(reads, id_, term["up"]) | _around(read_by, id_, term["down"])
    return selected


def _chosen(project: Project, core: str) -> set[str]:
    attribute, colon, pattern = core.partition(":")
    if not colon:
        attribute, pattern = "key", core
    if attribute not in ATTRIBUTES:
        known = correction(attribute, ATTRIBUTES, plural="attributes")
        raise SelectionError(f"{core!r} selects by an unknown attribute; {known}")
    test = ATTRIBUTES[attribute]
    chosen = {model.id for model in project.models.values() if test(model, pattern.strip('"'))}
    if not chosen and pattern not in ("*", "*/*"):
        names = [model.name for model in project.models.values()]
        raise SelectionError(f"no model is meant by {core!r}; {correction(pattern, names, plural='models')}")
    return chosen


def _around(edges: graph.Graph, start: str, sign: str | None) -> set[str]:
    """What lies on one side: everything for '+', so many steps for '2+'."""
    if not sign:
        return set()
    steps = sign.strip("+")
    return graph.reach(edges, start, steps=int(steps) if steps else None)


def _matches(text: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(text.casefold(), pattern.casefold())
