"""The records page as an application: which address is which page, and how a fault is told."""

from collections.abc import Awaitable, Callable
from importlib import resources
from typing import TypeAlias

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from ondatra_dagster.browser import links
from ondatra_dagster.browser.asked import Asked
from ondatra_dagster.browser.door import Door
from ondatra_dagster.browser.elements import Html
from ondatra_dagster.browser.pages.queue import queue_page
from ondatra_dagster.browser.pages.reasons import reasons_page
from ondatra_dagster.browser.pages.records import records_file, records_page
from ondatra_dagster.browser.pages.refusal import door_page, refusal_page
from ondatra_dagster.browser.pages.run import run_page
from ondatra_dagster.browser.pages.sync import sync_page
from ondatra_dagster.browser.pages.syncs import syncs_page
from ondatra_dagster.browser.shell import Page, whole_page
from ondatra_dagster.errors import OndatraError, SelectionError
from ondatra_dagster.orchestration.project_reader import ProjectReader
from ondatra_dagster.orchestration.traces import keep_trace

Answer: TypeAlias = Callable[[Asked], Page | Response]
Endpoint: TypeAlias = Callable[[Request], Response]

PAGES: dict[str, Answer] = {
    "/": syncs_page,
    "/syncs/{sync}": sync_page,
    "/syncs/{sync}/runs/{run}": run_page,
    "/syncs/{sync}/records": records_page,
    "/syncs/{sync}/records.{ending}": records_file,
    "/syncs/{sync}/reasons": reasons_page,
    "/syncs/{sync}/queue": queue_page,
}
ASSETS = {links.STYLE: ("page.css", "text/css"), links.SCRIPT: ("page.js", "text/javascript")}


def records_app(project: ProjectReader, *, port: int, token: str) -> ASGIApp:
    """All pages of the project behind their door, for who asks at this port."""
    pages = _Pages(project)
    app = Starlette(
        routes=[
            *(Route(path, pages.endpoint(answer)) for path, answer in PAGES.items()),
            *(Route(path, _asset(*asset)) for path, asset in ASSETS.items()),
        ],
        exception_handlers={HTTPException: pages.nothing_there},
    )
    return Door(app, port=port, token=token, refuse=_refuse, public=ASSETS)


class _Pages:
    """Makes answers of pages, and of faults."""

    def __init__(self, project: ProjectReader) -> None:
        self._project = project

    def endpoint(self, answer: Answer) -> Endpoint:
        """Run in a thread: files are read and searched."""

        def respond(request: Request) -> Response:
            workspace, fault = self._project.read()
            asked = Asked(workspace=workspace, path=request.path_params, query=request.query_params)
            try:
                answered = answer(asked)
            except SelectionError as error:
                answered = refusal_page(404, str(error))
            except OndatraError as error:
                answered = refusal_page(500, str(error))
            except Exception as error:  # the edge: a trace is for us, a sentence for the reader
                answered = refusal_page(500, keep_trace(error, workspace.settings.state))
            return answered if isinstance(answered, Response) else self._shown(answered, fault)

        return respond

    async def nothing_there(self, _request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        sentence = "There is no page at this address; the list of syncs leads to all there are."
        return self._shown(refusal_page(404 if status == 404 else 500, sentence))

    def _shown(self, page: Page, notice: str = "") -> Response:
        root = self._project.read()[0].settings.root
        return _response(whole_page(page, project=root.name, notice=notice), page.status)


def _asset(file: str, media_type: str) -> Callable[[Request], Awaitable[Response]]:
    content = resources.files(__package__).joinpath(file).read_bytes()

    async def respond(_request: Request) -> Response:
        return Response(content, media_type=media_type)

    return respond


def _refuse(status: int, sentence: str) -> Response:
    return _response(door_page(status, sentence), status)


def _response(page: Html, status: int) -> Response:
    return Response(page.encode(), status_code=status, media_type="text/html")
