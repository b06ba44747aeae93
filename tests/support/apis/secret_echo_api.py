"""An API that repeats each request in its response's body and headers, and a token server."""

import base64
import contextlib
import http.server
import json
import threading
from collections.abc import Iterator
from urllib.parse import parse_qs, quote, unquote_plus

ACCESS_TOKEN = "access/canary+given-by-the-server"
ROTATED_REFRESH_TOKEN = "refresh/canary+given-by-the-server"


class _EchoHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
        if self.path == "/token":
            refresh = {"refresh_token": ROTATED_REFRESH_TOKEN} if "refresh_token" in parse_qs(body) else {}
            self._send(200, json.dumps({"access_token": ACCESS_TOKEN, "expires_in": 3600, **refresh}))
            return
        request = {"path": self.path, "headers": dict(self.headers.items()), "body": body}
        reply = json.dumps({**request, "again": _encode_variants(json.dumps(request))})
        status = {"1": 422, "2": 200, "3": 401, "4": 503}.get(self.path.partition("?")[0].strip("/"), 200)
        self._send(status, reply)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer_any  # noqa: N815

    def _send(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.send_header("X-Echo", text.replace("\n", " "))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        pass


def _encode_variants(text: str) -> dict[str, str]:
    """Return the text in the encodings that gateways and debug pages use."""
    octets = text.encode()
    return {
        "text": text,
        "twice": json.dumps(text),
        "quoted": quote(quote(text, safe=""), safe=""),
        "read": unquote_plus(text),
        "letters": "".join(f"%{octet:02x}" for octet in octets),
        "entities": "".join(f"&#{ord(letter)};" for letter in text),
        "base64": base64.b64encode(octets).decode(),
        "mail": base64.encodebytes(octets).decode(),
        "hex": octets.hex(),
    }


@contextlib.contextmanager
def running_echo_api() -> Iterator[str]:
    """Serve the API until the block ends; yield its address."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _EchoHandler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()
