"""A client for UI pages that reads them as a browser without scripts: their text, elements and links."""

import asyncio
import dataclasses
import html.parser
import re
from typing import Any
from urllib.parse import unquote

import httpx
from starlette.types import ASGIApp, Receive, Scope, Send

from ondatra_dagster.app.workspace import ProjectCache
from ondatra_dagster.ui.web_app_and_server import create_app

PORT = 8323
HOST = f"127.0.0.1:{PORT}"
PAGE_TOKEN = "a-token-that-nobody-else-knows"
COOKIE = f"ondatra_ui_{PORT}"


class _PageParser(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.link_targets: list[tuple[str, str]] = []  # each link's first text, and its address
        self._run_url: str | None = None

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attributes}))
        if tag == "a":
            self._run_url = dict(attributes).get("href")

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        if self._run_url is not None:
            self.link_targets.append((data, self._run_url))
            self._run_url = None


@dataclasses.dataclass(frozen=True)
class ParsedPage:
    """A parsed response."""

    response: httpx.Response
    text: str
    elements: list[tuple[str, dict[str, str]]]
    link_targets: list[tuple[str, str]]

    @classmethod
    def parse(cls, answer: httpx.Response) -> "ParsedPage":
        reader = _PageParser()
        reader.feed(answer.text)
        text = re.sub(r"\s+", " ", "\n".join(reader.texts))
        return cls(answer, text, reader.elements, reader.link_targets)

    @property
    def status(self) -> int:
        return self.response.status_code

    def tag_attributes(self, tag: str) -> list[dict[str, str]]:
        """Return the attributes of each such element."""
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def link_addresses(self) -> list[str]:
        return [link["href"] for link in self.tag_attributes("a")]


class UiClient:
    """A browser for the app in this process, without a port. It keeps cookies."""

    def __init__(self, project: ProjectCache, cookies: dict[str, str]) -> None:
        self._app = create_app(project, port=PORT, token=PAGE_TOKEN)
        self._cookies = httpx.Cookies(cookies)

    def get(self, address: str, **options: Any) -> httpx.Response:
        return self.request("GET", address, **options)

    def request(self, method: str, address: str, **options: Any) -> httpx.Response:
        return asyncio.run(self._send_once(method, address, **options))

    def get_raw_path(self, target: str) -> httpx.Response:
        return asyncio.run(self._send_once("GET", "/", transport=RawPathTransport(self._app, target)))

    async def _send_once(
        self, method: str, address: str, *, transport: httpx.AsyncBaseTransport | None = None, **options: Any
    ) -> httpx.Response:
        transport = transport or httpx.ASGITransport(self._app)
        async with httpx.AsyncClient(transport=transport, base_url=f"http://{HOST}", cookies=self._cookies) as client:
            answer = await client.request(method, address, **options)
            self._cookies = client.cookies
        return answer


class RawPathTransport(httpx.AsyncBaseTransport):
    """A transport that sends exactly the given path: a client would remove the dots from it."""

    def __init__(self, app: ASGIApp, target: str) -> None:
        self._app = app
        self._target = target

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            path, _, query = self._target.partition("?")
            address = {"path": unquote(path), "raw_path": path.encode(), "query_string": query.encode()}
            await self._app({**scope, **address}, receive, send)

        return await httpx.ASGITransport(app).handle_async_request(request)


class PageReader:
    """A reader of a project's pages, with or without the access cookie."""

    def __init__(self, project: ProjectCache, *, has_cookie: bool = True) -> None:
        self.client = UiClient(project, {COOKIE: PAGE_TOKEN} if has_cookie else {})

    def __call__(self, address: str) -> ParsedPage:
        return ParsedPage.parse(self.client.get(address))
