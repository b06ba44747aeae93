"""The selection of models by Dagster's selection syntax.

    mart.customers   +mart.customers   mart.customers+   2+mart.customers+1   mart.*   *
    key:"mart/customers"   group:mart   kind:merge   tag:daily   owner:team:crm
    sync.* and not (tag:slow or kind:tracked)   sinks(+mart.*)   roots(sync.*)

Several expressions select all models that at least one of them selects. The caller decides what happens to the models.
"""

import fnmatch
import re
from collections.abc import Callable, Iterable

from ondatra_dagster.errors import SelectionError
from ondatra_dagster.project.model import Model
from ondatra_dagster.project.model_order_and_dependencies import Graph, find_reachable, model_graph, reverse_edges
from ondatra_dagster.project.project import Project
from ondatra_dagster.project.spelling_suggestions import suggest_correction

WORD_PATTERN = re.compile(r"[()]|[^\s()]+")
TERM_PATTERN = re.compile(r"(?P<up>\d*\+)?(?P<core>[^+\s]+)(?P<down>\+\d*)?")
COMMON_ASSET_KINDS = ("spark", "delta")  # the asset kinds that every model has in Dagster


def _matches(text: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(text.casefold(), pattern.casefold())


ATTRIBUTES: dict[str, Callable[[Model, str], bool]] = {
    "key": lambda model, pattern: _matches(model.id, pattern.replace("/", ".")),
    "group": lambda model, pattern: _matches(model.key_path[0], pattern),
    "kind": lambda model, pattern: any(_matches(it, pattern) for it in (model.kind.name, *COMMON_ASSET_KINDS)),
    "tag": lambda model, pattern: any(_matches(tag, pattern) for tag in model.tags),
    "owner": lambda model, pattern: any(_matches(owner, pattern) for owner in model.owners),
}


def select_models(project: Project, selections: Iterable[str]) -> set[str]:
    """Return the ids of all models that the expressions select; raise SelectionError for an invalid expression."""
    return {id_ for selection in selections for id_ in _SelectionParser(selection, project).parse_selection()}


class _SelectionParser:
    """A parser of one expression, from left to right: `not` binds most strongly, then `and`, then `or`."""

    def __init__(self, text: str, project: Project) -> None:
        self.selection_text = text
        self.project = project
        self.upstream_edges = model_graph(project.models)
        self.downstream_edges = reverse_edges(self.upstream_edges)
        self.words = WORD_PATTERN.findall(text)

    def parse_selection(self) -> set[str]:
        model_ids = self._parse_or()
        if self.words:
            raise self._syntax_error()
        return model_ids

    def _parse_or(self) -> set[str]:
        model_ids = self._parse_and()
        while self._accept_word("or"):
            model_ids = model_ids | self._parse_and()
        return model_ids

    def _parse_and(self) -> set[str]:
        model_ids = self._parse_not()
        while self._accept_word("and"):
            model_ids = model_ids & self._parse_not()
        return model_ids

    def _parse_not(self) -> set[str]:
        if self._accept_word("not"):
            return set(self.project.models) - self._parse_not()
        if len(self.words) > 1 and self.words[1] == "(":
            if self._accept_word("roots"):
                return _boundary_models(self._parse_not(), self.upstream_edges)
            if self._accept_word("sinks"):
                return _boundary_models(self._parse_not(), self.downstream_edges)
        if self._accept_word("("):
            model_ids = self._parse_or()
            if not self._accept_word(")"):
                raise self._syntax_error()
            return model_ids
        return self._parse_term()

    def _parse_term(self) -> set[str]:
        term = TERM_PATTERN.fullmatch(self.words.pop(0)) if self.words else None
        if term is None:
            raise self._syntax_error()
        model_ids = _match_attribute(self.project, term["core"])
        reachable_ids = [_reachable_within(self.upstream_edges, id_, term["up"]) for id_ in model_ids]
        reachable_ids += [_reachable_within(self.downstream_edges, id_, term["down"]) for id_ in model_ids]
        return model_ids.union(*reachable_ids)

    def _accept_word(self, word: str) -> bool:
        if self.words and self.words[0].casefold() == word:
            self.words.pop(0)
            return True
        return False

    def _syntax_error(self) -> SelectionError:
        return SelectionError(f"{self.selection_text!r} is not a selection; write mart.orders, +mart.orders or mart.*")


def _match_attribute(project: Project, core: str) -> set[str]:
    attribute, colon, pattern = core.partition(":")
    if not colon:
        attribute, pattern = "key", core
    if attribute not in ATTRIBUTES:
        suggestion = suggest_correction(attribute, ATTRIBUTES, plural="attributes")
        raise SelectionError(f"{core!r} selects by an unknown attribute; {suggestion}")
    test = ATTRIBUTES[attribute]
    model_ids = {model.id for model in project.models.values() if test(model, pattern.replace('"', ""))}
    if not model_ids and pattern not in ("*", "*/*"):
        names = [model.name for model in project.models.values()]
        raise SelectionError(f"no model is meant by {core!r}; {suggest_correction(pattern, names, plural='models')}")
    return model_ids


def _boundary_models(model_ids: set[str], edges: Graph) -> set[str]:
    """Return the selected ids from which no edge leads to another selected id: the roots or sinks of the selection."""
    return {id_ for id_ in model_ids if model_ids.isdisjoint(edges.get(id_, ()))}


def _reachable_within(edges: Graph, start: str, sign: str | None) -> set[str]:
    """Return the ids upstream or downstream of `start`: all of them for '+', those at most 2 steps away for '2+'."""
    if not sign:
        return set()
    steps = sign.strip("+")
    return find_reachable(edges, start, steps=int(steps) if steps else None)
