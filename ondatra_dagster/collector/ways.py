"""Which path leads to which model: /collect/SCHEMA/TABLE for one event, /collect/SCHEMA/TABLE/batch for many.

Models are read anew when their files change: a collector need not stop for a column more.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from ondatra_dagster.collector.answers import Answer, refused
from ondatra_dagster.collector.event_reader import EventReader
from ondatra_dagster.errors import SelectionError
from ondatra_dagster.project.load import load_project
from ondatra_dagster.project.model import Model
from ondatra_dagster.project.project import Project
from ondatra_dagster.project.settings.settings import Settings
from ondatra_dagster.project.suggestions import correction

COLLECT, BATCH = "collect", "batch"
SEGMENTS = (3, 4)  # collect, SCHEMA, TABLE, and batch


class Way(NamedTuple):
    """Where a path leads."""

    model: Model
    reader: EventReader
    is_batch: bool


class Ways:
    """The ways to all models of kind events that a project has."""

    def __init__(self, project: Project) -> None:
        self.models = event_models(project)
        keeps_unknown = project.settings.events.unknown_fields == "keep"
        self._kinds = {model.id: model.kind.name for model in project.models.values()}
        self._ways: dict[str, Way] = {}
        for model in self.models.values():
            reader = EventReader(model.event_columns, keeps_unknown=keeps_unknown)
            path = f"/{COLLECT}/{model.id.replace('.', '/')}"
            self._ways[path] = Way(model, reader, is_batch=False)
            self._ways[f"{path}/{BATCH}"] = Way(model, reader, is_batch=True)

    def find(self, path: str) -> Way | Answer:
        """Where the path leads, however it is spelled; an answer where it leads nowhere."""
        return self._ways.get(path) or self._ways.get(path.casefold()) or self._nowhere(path)

    def _nowhere(self, path: str) -> Answer:
        segments = path.strip("/").split("/")
        if segments[0] != COLLECT or len(segments) not in SEGMENTS:
            how = "POST an event to /collect/SCHEMA/TABLE, or an array of them to /collect/SCHEMA/TABLE/batch"
            return refused(404, "path", f"there is nothing at {path}; {how}")
        name = ".".join(segments[1:3])
        kind = self._kinds.get(name.casefold())
        if kind == "events":
            return refused(404, "path", f"there is nothing at {path}; for an array of events write …/batch")
        known = correction(
            name, [model.name for model in self.models.values()], plural="models of kind events"
        )
        what = f"{name} is of kind {kind}" if kind else f"there is no model {name!r}"
        return refused(404, "model", f"{what}; {known}")


def event_models(project: Project) -> dict[str, Model]:
    """The models of kind events, by id."""
    return {model.id: model for model in project.models.values() if not model.kind.has_query}


class ModelFiles:
    """The files that say what models there are, to be read anew when one has changed."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._seen = self._state()

    def changed(self) -> Project | None:
        """The project as it is now, if its files have changed; raises ProjectError for what can't be read."""
        state = self._state()
        if state == self._seen:
            return None
        self._seen = state  # broken ones are told of once
        return load_project(self._settings.root, self._settings)

    def _state(self) -> Mapping[Path, tuple[int, int]]:
        states = {}
        for path in (self._settings.root / "models").rglob("*"):
            if path.suffix.casefold() != ".sql":
                continue
            try:
                state = path.stat()
            except FileNotFoundError:
                continue
            states[path] = (state.st_mtime_ns, state.st_size)
        return states


def ways_of(project: Project) -> Ways:
    """The ways of a project; raises SelectionError when it has no model of kind events."""
    ways = Ways(project)
    if not ways.models:
        how = "write one, such as models/events/page_views.sql: -- @kind: events, then page STRING NOT NULL"
        raise SelectionError(f"the project has no model of kind events; {how}")
    return ways
