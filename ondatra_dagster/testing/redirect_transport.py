"""A transport that takes every request to one server, whatever its address: for tests of push functions."""

import httpx

from ondatra_dagster.delivery.http.request_transport import DeadlineTransport


class RedirectTransport(DeadlineTransport):
    """All else, credentials and hosts that may be called, is judged by the real address before."""

    def __init__(self, address: str, *, connections: int = 8) -> None:
        super().__init__(connections=connections)
        self._address = httpx.URL(address)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        place = {"scheme": self._address.scheme, "host": self._address.host, "port": self._address.port}
        request.url = request.url.copy_with(**place)
        return super().handle_request(request)
