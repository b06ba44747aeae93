"""Which models are meant by what a user types: Dagster's selection syntax over model names.

    mart.customers   +mart.customers   mart.customers+   2+mart.customers+1   mart.*   *
    key:"mart/customers"   group:mart   kind:merge   tag:daily   owner:team:crm
    sync.* and not (tag:slow or kind:tracked)   sinks(+mart.*)   roots(sync.*)

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

WORD = re.compile(r"[()]|[^\s()]+")
TERM = re.compile(r"(?P<up>\d*\+)?(?P<core>[^+\s]+)(?P<down>\+\d*)?")
OF_EACH_ASSET = ("spark", "delta")  # kinds that every model has in Dagster
ATTRIBUTES: dict[str, Callable[[Model, str], bool]] = {
    "key": lambda model, pattern: _matches(model.id, pattern.replace("/", ".")),
    "group": lambda model, pattern: _matches(model.key_path[0], pattern),
    "kind": lambda model, pattern: any(_matches(it, pattern) for it in (model.kind.name, *OF_EACH_ASSET)),
    "tag": lambda model, pattern: any(_matches(tag, pattern) for tag in model.tags),
    "owner": lambda model, pattern: any(_matches(owner, pattern) for owner in model.owners),
}


def select(project: Project, selections: Iterable[str]) -> set[str]:
    """The ids of all models that the selections mean; raises SelectionError for one that can't be meant."""
    edges = _Edges(project.graph())
    return {id_ for written in selections for id_ in _Selection(written, project, edges).read()}


class _Edges:
    """Who reads whom, both ways."""

    def __init__(self, reads: graph.Graph) -> None:
        self.up = reads
        self.down = graph.turned_round(reads)


class _Selection:
    """One selection, read from left to right: `or` binds least, then `and`, then `not`."""

    def __init__(self, written: str, project: Project, edges: _Edges) -> None:
        self.written = written
        self.project = project
        self.edges = edges
        self.words = WORD.findall(written)

    def read(self) -> set[str]:
        chosen = self._any()
        if self.words:
            raise self._unreadable()
        return chosen

    def _any(self) -> set[str]:
        chosen = self._all()
        while self._takes("or"):
            chosen = chosen | self._all()
        return chosen

    def _all(self) -> set[str]:
        chosen = self._one()
        while self._takes("and"):
            chosen = chosen & self._one()
        return chosen

    def _one(self) -> set[str]:
        if self._takes("not"):
            return set(self.project.models) - self._one()
        if len(self.words) > 1 and self.words[1] == "(":
            if self._takes("roots"):
                return _ends(self._one(), self.edges.up)
            if self._takes("sinks"):
                return _ends(self._one(), self.edges.down)
        if self._takes("("):
            chosen = self._any()
            if not self._takes(")"):
                raise self._unreadable()
            return chosen
        return self._term()

    def _term(self) -> set[str]:
        term = TERM.fullmatch(self.words.pop(0)) if self.words else None
        if term is None:
            raise self._unreadable()
        chosen = _chosen(self.project, term["core"])
        around = [_around(self.edges.up, id_, term["up"]) for id_ in chosen]
        around += [_around(self.edges.down, id_, term["down"]) for id_ in chosen]
        return chosen.union(*around)

    def _takes(self, word: str) -> bool:
        if self.words and self.words[0].casefold() == word:
            self.words.pop(0)
            return True
        return False

    def _unreadable(self) -> SelectionError:
        return SelectionError(
            f"{self.written!r} is not a selection; write mart.orders, +mart.orders or mart.*"
        )


def _chosen(project: Project, core: str) -> set[str]:
    attribute, colon, pattern = core.partition(":")
    if not colon:
        attribute, pattern = "key", core
    if attribute not in ATTRIBUTES:
        known = correction(attribute, ATTRIBUTES, plural="attributes")
        raise SelectionError(f"{core!r} selects by an unknown attribute; {known}")
    test = ATTRIBUTES[attribute]
    chosen = {model.id for model in project.models.values() if test(model, pattern.replace('"', ""))}
    if not chosen and pattern not in ("*", "*/*"):
        names = [model.name for model in project.models.values()]
        raise SelectionError(f"no model is meant by {core!r}; {correction(pattern, names, plural='models')}")
    return chosen


def _ends(chosen: set[str], edges: graph.Graph) -> set[str]:
    """Those of the chosen from which no edge leads to another one."""
    return {id_ for id_ in chosen if chosen.isdisjoint(edges.get(id_, ()))}


def _around(edges: graph.Graph, start: str, sign: str | None) -> set[str]:
    """What lies on one side: everything for '+', so many steps for '2+'."""
    if not sign:
        return set()
    steps = sign.strip("+")
    return graph.reach(edges, start, steps=int(steps) if steps else None)


def _matches(text: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(text.casefold(), pattern.casefold())
