"""A Maven repository on loopback, with the jars that a test adds."""

import contextlib
import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from ondatra_dagster.warehouse.spark.jar_download import JarSet, PinnedJar


def build_jar(artifact: str, content: bytes) -> PinnedJar:
    return PinnedJar(
        group="org.example",
        artifact=artifact,
        version="1.0",
        size=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
    )


def build_jar_set(contents: Mapping[str, bytes]) -> JarSet:
    return JarSet(title="the test's jars", jars=tuple(build_jar(name, text) for name, text in contents.items()))


class MavenRepository:
    """A repository that serves `files` by path, and records each requested path and its credentials."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.files: dict[str, bytes] = {}
        self.requested_paths: list[str] = []
        self.credentials: list[str | None] = []
        self.on_half_sent: Callable[[], object] = lambda: None  # called when half of an answer is sent

    def add_jars(self, jars: JarSet, contents: Mapping[str, bytes]) -> None:
        self.files |= {f"/{jar.path}": contents[jar.artifact] for jar in jars.jars}


@contextlib.contextmanager
def running_maven_repository() -> Iterator[MavenRepository]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            repository.requested_paths.append(self.path)
            repository.credentials.append(self.headers["Authorization"])
            content = repository.files.get(self.path)
            if content is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) // 2])
            self.wfile.flush()
            repository.on_half_sent()
            with contextlib.suppress(ConnectionError):  # the process that sent the request was killed
                self.wfile.write(content[len(content) // 2 :])

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        repository = MavenRepository(server.server_port)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield repository
        server.shutdown()
        thread.join()
