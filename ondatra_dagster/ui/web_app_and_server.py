"""The UI as a Starlette application with routes and error pages, and the HTTP server that runs it in a thread."""

import socket
import threading
from collections.abc import Awaitable, Callable
from importlib import resources
from typing import TypeAlias

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from ondatra_dagster.app import ui_urls
from ondatra_dagster.app.error_traces import store_trace
from ondatra_dagster.app.ui_urls import UI_HOST, page_url
from ondatra_dagster.app.workspace import ProjectCache
from ondatra_dagster.collector.event_server import LimitedHttpProtocol
from ondatra_dagster.errors import OndatraError, SelectionError
from ondatra_dagster.ui.access_control import AccessControl, read_or_create_token
from ondatra_dagster.ui.html_builder import Html, element
from ondatra_dagster.ui.page_layout import Page, heading, render_page
from ondatra_dagster.ui.page_request import PageRequest
from ondatra_dagster.ui.pages.failure_reasons_page import failure_reasons_page
from ondatra_dagster.ui.pages.queue_counts_and_dead_letters_page import queue_page
from ondatra_dagster.ui.pages.record_list_page import download_records, records_page
from ondatra_dagster.ui.pages.run_page import run_page
from ondatra_dagster.ui.pages.sync_list_page import sync_list_page
from ondatra_dagster.ui.pages.sync_page import sync_page

PageHandler: TypeAlias = Callable[[PageRequest], Page | Response]
Endpoint: TypeAlias = Callable[[Request], Response]
PAGE_ROUTES: dict[str, PageHandler] = {
    "/": sync_list_page,
    "/syncs/{sync}": sync_page,
    "/syncs/{sync}/runs/{run}": run_page,
    "/syncs/{sync}/records": records_page,
    "/syncs/{sync}/records.{ending}": download_records,
    "/syncs/{sync}/reasons": failure_reasons_page,
    "/syncs/{sync}/queue": queue_page,
}
ASSETS = {ui_urls.STYLE_URL: ("page.css", "text/css"), ui_urls.SCRIPT_URL: ("page.js", "text/javascript")}


def create_app(project: ProjectCache, *, port: int, token: str) -> ASGIApp:
    """Return the application with all pages of the project, behind its access control."""
    pages = _PageResponder(project)
    app = Starlette(
        routes=[
            *(Route(path, pages.endpoint(answer)) for path, answer in PAGE_ROUTES.items()),
            *(Route(path, _asset_endpoint(*asset)) for path, asset in ASSETS.items()),
        ],
        exception_handlers={HTTPException: pages.respond_not_found},
    )
    return AccessControl(app, port=port, token=token, refuse=access_denied_response, public=ASSETS)


class _PageResponder:
    """The responder for all pages, which also responds with error pages."""

    def __init__(self, project: ProjectCache) -> None:
        self._project = project

    def endpoint(self, answer: PageHandler) -> Endpoint:
        """Return the endpoint of a page. Starlette runs it in a thread, because a page reads and searches files."""

        def respond_with_page(request: Request) -> Response:
            workspace, fault = self._project.load_current_project()
            page_request = PageRequest(
                workspace=workspace, path_params=request.path_params, query_params=request.query_params
            )
            try:
                page_or_response = answer(page_request)
            except SelectionError as error:
                page_or_response = error_page(404, str(error))
            except OndatraError as error:
                page_or_response = error_page(500, str(error))
            except Exception as error:  # the outermost handler: the trace goes to a file, and the page shows a sentence
                page_or_response = error_page(500, store_trace(error, workspace.settings.state))
            return (
                page_or_response
                if isinstance(page_or_response, Response)
                else self._page_response(page_or_response, fault)
            )

        return respond_with_page

    async def respond_not_found(self, _request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        sentence = "There is no page at this address; the list of syncs leads to all there are."
        return self._page_response(error_page(404 if status == 404 else 500, sentence))

    def _page_response(self, page: Page, notice: str = "") -> Response:
        root = self._project.load_current_project()[0].settings.root
        return _html_response(render_page(page, project=root.name, notice=notice), page.status)


def _asset_endpoint(file: str, media_type: str) -> Callable[[Request], Awaitable[Response]]:
    content = resources.files(__package__).joinpath(file).read_bytes()

    async def respond_with_file(_request: Request) -> Response:
        return Response(content, media_type=media_type)

    return respond_with_file


def _html_response(page: Html, status: int) -> Response:
    return Response(page.encode(), status_code=status, media_type="text/html")


ERROR_TITLES = {
    400: "Not understood",
    403: "Access denied",
    404: "Not here",
    405: "Not allowed here",
    500: "Something went wrong",
}


def error_page(status: int, sentence: str) -> Page:
    """Return an error page for a user with access, with a link to the list of syncs."""
    paragraphs = [element("p", line) for line in _capitalize(sentence).splitlines()]
    home_link = element("p", element("a", "To all syncs", href=ui_urls.HOME_URL))
    body = (heading(ERROR_TITLES[status]), element("div", paragraphs, home_link, class_="card refusal"))
    return Page(title=ERROR_TITLES[status], body=body, status=status)


def access_denied_response(status: int, sentence: str) -> Response:
    """Return a page for a user without access. It reveals nothing about the project.

    When a link on another site leads to the UI, the browser doesn't send its cookie. It sends the cookie when
    the user opens the same address from this page.
    """
    reopen_link = element("p", "Opened before? ", element("a", "Open this page again", href=""))
    body = (
        heading(ERROR_TITLES[status]),
        element("div", element("p", f"{_capitalize(sentence)}."), reopen_link, class_="card refusal"),
    )
    page = Page(title=ERROR_TITLES[status], body=body, status=status)
    return _html_response(render_page(page, project="records"), status)


def _capitalize(sentence: str) -> str:
    """Capitalize the first word of a sentence, unless it is a name such as sync.crm."""
    first_word = sentence.split(" ", 1)[0]
    return sentence[:1].upper() + sentence[1:] if first_word.isalpha() else sentence


def open_listener(port: int) -> socket.socket:
    """Return a socket that listens on a port of this machine (0: any free port); raise OSError if that fails."""
    return socket.create_server((UI_HOST, port))


class PathRequestProtocol(LimitedHttpProtocol):
    """A connection that refuses a request for a full address instead of a path, such as http://evil.example/."""

    def on_url(self, url: bytes) -> None:
        is_first_part = not self.url  # a URL may arrive in several parts
        if is_first_part and not url.startswith(b"/"):
            raise ValueError(url)  # the response is 400
        super().on_url(url)


class PageServer:
    """A server of the UI. Its port listens from the beginning, and early requests wait for start()."""

    def __init__(self, project: ProjectCache, listener: socket.socket) -> None:
        settings = project.load_current_project()[0].settings
        self.port: int = listener.getsockname()[1]
        token = read_or_create_token(settings.state)
        self.url = f"{page_url(self.port)}?token={token}"  # gives access to the UI
        config = uvicorn.Config(
            create_app(project, port=self.port, token=token),
            http=PathRequestProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,  # addresses contain identifiers
            server_header=False,
            log_level="critical",  # errors are reported where they occur, in sentences
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([listener],), name="records-page")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop the server; requests in progress have one more second to end."""
        self._server.should_exit = True
        self._thread.join()
