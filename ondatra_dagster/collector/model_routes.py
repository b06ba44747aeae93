"""The routes from paths to models: /collect/SCHEMA/TABLE for one event, /collect/SCHEMA/TABLE/batch for many.

Models are read again when their files change, so a new column doesn't need a restart of the collector.
"""

from typing import NamedTuple

from ondatra_dagster.collector.event_to_row_parser import EventParser
from ondatra_dagster.collector.http_messages import RequestRejectedError
from ondatra_dagster.errors import SelectionError
from ondatra_dagster.project.model import Model
from ondatra_dagster.project.project import Project
from ondatra_dagster.project.spelling_suggestions import suggest_correction

COLLECT_SEGMENT, BATCH_SEGMENT = "collect", "batch"
SEGMENT_COUNTS = (3, 4)  # collect, SCHEMA, TABLE, and batch


class ModelRoute(NamedTuple):
    """The destination of a path: a model, with the parser of its events."""

    model: Model
    parser: EventParser
    is_batch: bool


class ModelRoutes:
    """The routes to a project's models of kind events. A project without such a model raises SelectionError."""

    def __init__(self, project: Project) -> None:
        self.models = {model.id: model for model in project.models.values() if not model.kind.has_query}
        if not self.models:
            remedy = "write one, such as models/events/page_views.sql: -- @kind: events, then page STRING NOT NULL"
            raise SelectionError(f"the project has no model of kind events; {remedy}")
        keeps_unknown = project.settings.events.unknown_fields == "keep"
        self._kinds = {model.id: model.kind.name for model in project.models.values()}
        self._routes: dict[str, ModelRoute] = {}
        for model in self.models.values():
            reader = EventParser(model.event_columns, keeps_unknown=keeps_unknown)
            path = f"/{COLLECT_SEGMENT}/{model.id.replace('.', '/')}"
            self._routes[path] = ModelRoute(model, reader, is_batch=False)
            self._routes[f"{path}/{BATCH_SEGMENT}"] = ModelRoute(model, reader, is_batch=True)

    def find_route(self, path: str) -> ModelRoute:
        """Return the path's route, in upper or lower case; refuse the request if there is no such route."""
        if route := self._routes.get(path) or self._routes.get(path.casefold()):
            return route
        raise self._not_found_error(path)

    def _not_found_error(self, path: str) -> RequestRejectedError:
        segments = path.strip("/").split("/")
        if segments[0] != COLLECT_SEGMENT or len(segments) not in SEGMENT_COUNTS:
            remedy = "POST an event to /collect/SCHEMA/TABLE, or an array of them to /collect/SCHEMA/TABLE/batch"
            return RequestRejectedError(404, "path", f"there is nothing at {path}; {remedy}")
        name = ".".join(segments[1:3])
        kind = self._kinds.get(name.casefold())
        if kind == "events":
            return RequestRejectedError(
                404, "path", f"there is nothing at {path}; for an array of events write …/batch"
            )
        suggestion = suggest_correction(
            name, [model.name for model in self.models.values()], plural="models of kind events"
        )
        problem = f"{name} is of kind {kind}" if kind else f"there is no model {name!r}"
        return RequestRejectedError(404, "model", f"{problem}; {suggestion}")
