"""The access control of the UI: a middleware that checks a request's host, path, method and token.

The UI is on the user's own machine, and any web page in their browser could send requests to it. A request with
a foreign host name is refused, because DNS rebinding can make this name mean this machine. A request without
the token is refused, too. The token is first in the address, then in a cookie.
"""

import contextlib
import hmac
import os
import re
import secrets
from collections.abc import Callable, Collection
from pathlib import Path
from urllib.parse import quote, urlencode

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ondatra_dagster.storage.file_errors import explain_file_errors
from ondatra_dagster.storage.private_files import make_state_folder_private

ALLOWED_METHODS = ("GET", "HEAD")
# paths that no browser and no proxy interprets as the address of another host
PATH_PATTERN = re.compile(r"/(?!/)[^\\\x00-\x1f\x7f]*")
TOKEN_PARAMETER = "token"  # noqa: S105 - the name of a query parameter
YEAR_SECONDS = 31_536_000
SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
INVALID_PATH_MESSAGE = "this isn't the path of a page: use the address that `ondatra ui` printed"
FOREIGN_HOST_MESSAGE = "this page is on this machine only: use the address that `ondatra ui` printed"
READ_ONLY_MESSAGE = "this page is read-only: commands make changes, see `ondatra --help`"
NO_TOKEN_MESSAGE = "the address has no token, or a wrong one: use the address that `ondatra ui` printed"  # noqa: S105
RefusalBuilder = Callable[[int, str], Response]


class AccessControl:
    """A middleware that passes a request to the pages or refuses it. Each response gets SECURITY_HEADERS."""

    def __init__(
        self, pages: ASGIApp, *, port: int, token: str, refuse: RefusalBuilder, public: Collection[str]
    ) -> None:
        self._app = pages
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        self._cookie = f"ondatra_ui_{port}"  # browsers separate cookies by host, not by port
        self._token = token
        self._build_refusal = refuse
        self._public_paths = public

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(SECURITY_HEADERS)
            await send(message)

        answer = self._refuse_or_redirect(Request(scope)) or self._app
        await answer(scope, receive, send_with_headers)

    def _refuse_or_redirect(self, request: Request) -> Response | None:
        """Return the response that refuses or redirects the request; None if the request is allowed."""
        if request.headers.getlist("host") != [request.headers.get("host")] or (
            request.headers["host"] not in self._hosts
        ):
            return self._build_refusal(403, FOREIGN_HOST_MESSAGE)
        if not PATH_PATTERN.fullmatch(_raw_path(request)):
            return self._build_refusal(400, INVALID_PATH_MESSAGE)
        if request.method not in ALLOWED_METHODS:
            refusal = self._build_refusal(405, READ_ONLY_MESSAGE)
            refusal.headers["Allow"] = ", ".join(ALLOWED_METHODS)
            return refusal
        if _raw_path(request) in self._public_paths or self._is_token(request.cookies.get(self._cookie, "")):
            return self._redirect_without_token(request) if TOKEN_PARAMETER in request.query_params else None
        if self._is_token(request.query_params.get(TOKEN_PARAMETER, "")):
            answer = self._redirect_without_token(request)
            answer.set_cookie(
                self._cookie, self._token, max_age=YEAR_SECONDS, path="/", httponly=True, samesite="strict"
            )
            return answer
        return self._build_refusal(403, NO_TOKEN_MESSAGE)

    def _redirect_without_token(self, request: Request) -> Response:
        """Return a redirect to the same page without the token, so that the user may keep and share the address."""
        parameters = [(name, value) for name, value in request.query_params.multi_items() if name != TOKEN_PARAMETER]
        query = f"?{urlencode(parameters)}" if parameters else ""
        address = f"http://{request.headers['host']}{quote(_raw_path(request))}{query}"
        return RedirectResponse(address, status_code=303)

    def _is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode("utf-8", "replace"), self._token.encode())


def _raw_path(request: Request) -> str:
    """Return the requested path as received. `request.url` would raise an error if the path isn't a valid URL."""
    path: str = request.scope["path"]
    return path


FILE_NAME = "ui-token"
TOKEN_PATTERN = re.compile(r"[A-Za-z0-9_-]{43}")  # the format of token_urlsafe(32)


def read_or_create_token(state: Path) -> str:
    """Return the token in the project's state folder, which only the owner can read; create a missing token."""
    make_state_folder_private(state)
    path = state / FILE_NAME
    with explain_file_errors(path), contextlib.suppress(FileNotFoundError):
        token = path.read_text(encoding="ascii", errors="replace")
        if TOKEN_PATTERN.fullmatch(token) and not path.stat().st_mode & 0o077:
            return token
        path.unlink()  # the token is incomplete, or other users may have read it
    return _create_token(path)


def _create_token(path: Path) -> str:
    token = secrets.token_urlsafe(32)
    with explain_file_errors(path):
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with open(descriptor, "w", encoding="ascii") as file:  # noqa: PTH123 - it is a descriptor
            file.write(token)
    return token
