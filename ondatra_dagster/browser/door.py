"""Who gets in: before any page is looked for, each request is judged by its host, path, method and token.

The page is on the user's own machine, where any web page in their browser could ask for it. So a name that
somebody else's server answers to is refused (it could be made to mean this machine), and so is who doesn't
show the token: in the address once, then in a cookie.
"""

import hmac
import re
from collections.abc import Callable, Collection
from urllib.parse import quote, urlencode

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

METHODS = ("GET", "HEAD")
PATH = re.compile(r"/(?!/)[^\\\x00-\x1f\x7f]*")  # what no browser and no proxy takes for another host's
TOKEN = "token"  # noqa: S105 - a word in an address
YEAR_SECONDS = 31_536_000
HEADERS = {
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
NO_PATH = "what was asked for is no path of a page: use the address that `ondatra ui` printed"
FOREIGN = "this page is on this machine only: use the address that `ondatra ui` printed"
LOOKS_ONLY = "this page is for looking only: what changes something is a command, see `ondatra --help`"
NO_TOKEN = "the address has no token, or a wrong one: use the address that `ondatra ui` printed"  # noqa: S105

Refuse = Callable[[int, str], Response]


class Door:
    """Lets requests through to the pages, or refuses them; no answer leaves without HEADERS."""

    def __init__(
        self, pages: ASGIApp, *, port: int, token: str, refuse: Refuse, public: Collection[str]
    ) -> None:
        self._pages = pages
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        self._cookie = f"ondatra_ui_{port}"  # a browser tells cookies apart by host, and not by port
        self._token = token
        self._refuse = refuse
        self._public = public

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        answer = self._answer(Request(scope)) or self._pages
        await answer(scope, receive, send_with_headers)

    def _answer(self, request: Request) -> Response | None:
        """What is said at the door; None: come in."""
        if request.headers.getlist("host") != [request.headers.get("host")] or (
            request.headers["host"] not in self._hosts
        ):
            return self._refuse(403, FOREIGN)
        if not PATH.fullmatch(_path(request)):
            return self._refuse(400, NO_PATH)
        if request.method not in METHODS:
            refusal = self._refuse(405, LOOKS_ONLY)
            refusal.headers["Allow"] = ", ".join(METHODS)
            return refusal
        if _path(request) in self._public or self._is_token(request.cookies.get(self._cookie, "")):
            return self._without_token(request) if TOKEN in request.query_params else None
        if self._is_token(request.query_params.get(TOKEN, "")):
            return self._welcome(request)
        return self._refuse(403, NO_TOKEN)

    def _welcome(self, request: Request) -> Response:
        """Who came with the token gets a cookie for the next time."""
        answer = self._without_token(request)
        answer.set_cookie(
            self._cookie, self._token, max_age=YEAR_SECONDS, path="/", httponly=True, samesite="strict"
        )
        return answer

    def _without_token(self, request: Request) -> Response:
        """To the same page under an address that may be kept and shown."""
        asked = [(name, value) for name, value in request.query_params.multi_items() if name != TOKEN]
        query = f"?{urlencode(asked)}" if asked else ""
        address = f"http://{request.headers['host']}{quote(_path(request))}{query}"
        return RedirectResponse(address, status_code=303)

    def _is_token(self, shown: str) -> bool:
        return hmac.compare_digest(shown.encode("utf-8", "replace"), self._token.encode())


def _path(request: Request) -> str:
    """As it was asked for: `request.url` makes an address of it, and fails where that can't be."""
    path: str = request.scope["path"]
    return path
