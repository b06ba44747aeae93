"""An S3 server with only listings, objects and their ETags: enough to read tables and files."""

import hashlib
import http.server
import threading
from typing import Self
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from ondatra_dagster.project.settings.storage_access import S3Access

LAST_MODIFIED = "2026-01-01T00:00:00.000Z"  # of every object: only ETags differ between two states


class MinimalS3Server:
    """A server on a loopback port; `objects` maps bucket/key to content."""

    def __init__(self, objects: dict[str, bytes] | None = None) -> None:
        self.objects = objects or {}
        self.denies_access = False
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _S3Handler)
        self._server.store = self  # type: ignore[attr-defined]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def access(self) -> S3Access:
        endpoint = f"http://127.0.0.1:{self._server.server_port}"
        return S3Access(endpoint=endpoint, key="a-key", secret="hush-hush")

    @property
    def variables(self) -> dict[str, str]:
        """Return the access as environment variables."""
        access = self.access
        return {
            "AWS_ENDPOINT_URL": str(access.endpoint),
            "AWS_ACCESS_KEY_ID": str(access.key),
            "AWS_SECRET_ACCESS_KEY": str(access.secret),
        }

    def list_objects(self, bucket: str, prefix: str, delimiter: str) -> bytes:
        """Return a listing of the keys below a prefix; with a delimiter, folders replace the keys in them."""
        keys = [name.partition("/")[2] for name in sorted(self.objects) if name.startswith(f"{bucket}/{prefix}")]
        folders = {
            prefix + key[len(prefix) :].partition("/")[0] + "/"
            for key in keys
            if delimiter and "/" in key[len(prefix) :]
        }
        files = [key for key in keys if not delimiter or "/" not in key[len(prefix) :]]
        return (
            f"<ListBucketResult><Name>{bucket}</Name><IsTruncated>false</IsTruncated>"
            f"<KeyCount>{len(files) + len(folders)}</KeyCount>"
            + "".join(
                f"<Contents><Key>{escape(key)}</Key><Size>{len(self.objects[f'{bucket}/{key}'])}</Size>"
                f"<LastModified>{LAST_MODIFIED}</LastModified></Contents>"
                for key in files
            )
            + "".join(
                f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>" for folder in sorted(folders)
            )
            + "</ListBucketResult>"
        ).encode()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _S3Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        store: MinimalS3Server = self.server.store  # type: ignore[attr-defined]
        address = urlsplit(self.path)
        parameters = {name: values[0] for name, values in parse_qs(address.query).items()}
        path = unquote(address.path).strip("/")
        if store.denies_access:
            self._send_response(403, b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>")
        elif "list-type" in parameters:
            self._send_response(
                200, store.list_objects(path, parameters.get("prefix", ""), parameters.get("delimiter", ""))
            )
        elif path in store.objects:
            self._send_response(200, store.objects[path])
        else:
            self._send_response(404, b"<Error><Code>NoSuchKey</Code></Error>")

    do_HEAD = do_GET  # noqa: N815 - the name that the server looks for

    def _send_response(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.send_header("ETag", f'"{hashlib.md5(body).hexdigest()}"')
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Write no log."""
