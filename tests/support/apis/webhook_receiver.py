"""A webhook on loopback that stores what it receives and can fail; and a project's settings for it."""

import contextlib
import dataclasses
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

WEBHOOK_SECRET = "T0KEN/abcdef-123456"


@dataclasses.dataclass
class WebhookReceiver:
    """The received requests, in order; `status` is the webhook's answer."""

    status: int = 200
    received_bodies: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    headers: list[dict[str, str]] = dataclasses.field(default_factory=list)
    paths: list[str] = dataclasses.field(default_factory=list)
    url: str = ""

    def alerts(self) -> list[tuple[str, str, str]]:
        return [(body.get("sync") or body["model"], body["rule"], body["state"]) for body in self.received_bodies]


@contextlib.contextmanager
def running_webhook_receiver() -> Iterator[WebhookReceiver]:
    received = WebhookReceiver()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            text = self.rfile.read(int(self.headers["content-length"]))
            if received.status == 200:
                received.received_bodies.append(orjson.loads(text))
                received.paths.append(self.path)
                received.headers.append({name.lower(): value for name, value in self.headers.items()})
            answer = f"path {self.path}".encode()  # the answer repeats the secret that is in the path
            self.send_response(received.status)
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Write no log."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        received.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield received
        finally:
            server.shutdown()
            thread.join()


def set_webhook(root: Path, url: str, **settings: str) -> None:
    """Configure the project below `root` to send alerts to an address that contains a secret."""
    lines = [f'webhook = "{url}/hooks/${{HOOK_TOKEN}}"', *(f'{name} = "{value}"' for name, value in settings.items())]
    (root / "pyproject.toml").write_text("[tool.ondatra.alerts]\n" + "\n".join(lines))
    (root / ".env").write_text(f"DEMO_API_KEY=shop-demo-key-0001\nHOOK_TOKEN={WEBHOOK_SECRET}\nBEARER=bearer-0001\n")
