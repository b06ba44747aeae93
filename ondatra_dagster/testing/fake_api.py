"""A fake API for tests of push functions. It serves any path, stores records, and fails on request.

It is a plain REST API: POST to a collection creates a record. PUT, PATCH and DELETE change one record, which the whole
path names. An `answer` function can change this.
"""

import contextlib
import dataclasses
import itertools
import socket
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from starlette.requests import Request as HttpRequest

from ondatra_dagster.row_changes import Json
from ondatra_dagster.testing.fake_api_server import (
    LOOPBACK_HOST,
    Answer,
    LoopbackApi,
    RecordedCall,
    ScriptedFaults,
    path_segments,
    refusal,
)

GENERATED_ID_PREFIX = "*"  # the prefix of a generated id; in a real id this character is quoted
State: TypeAlias = dict[str, Json]  # the API's content: the path of a record → the record


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A call, as an `answer` function gets it."""

    method: str
    path: str  # "/crm/contacts/C-1"; each part is quoted, so that a / in an id is a %2F
    parts: tuple[str, ...]  # ("crm", "contacts", "C-1"), unquoted
    params: Mapping[str, str]
    body: Json


# returns the answer to a call, or None to answer it as a plain REST API does
AnswerFunction = Callable[[Request, State], Answer | None]


class FakeApi(LoopbackApi):
    """The running fake API, which serves any path."""

    def __init__(
        self,
        listener: socket.socket,
        *,
        answer: AnswerFunction | None = None,
        id_fields: tuple[str, ...] = ("id",),
        heeds_idempotency_keys: bool = False,
    ) -> None:
        self.answer = answer  # tests may change it between calls
        self.state: State = {}
        self.calls: list[RecordedCall] = []
        self.answers: dict[str, Answer] = {}
        self.faults: ScriptedFaults = ScriptedFaults()
        self._id_fields = id_fields
        self._uses_idempotency_keys = heeds_idempotency_keys
        self._numbers = itertools.count(1)
        super().__init__(listener, paths=["/{path:path}"])

    def clear(self) -> None:
        """Delete all records, calls and faults. This is faster than starting a new API."""
        self.state.clear()
        self.calls.clear()
        self.answers.clear()
        self.faults.clear()
        self._numbers = itertools.count(1)

    def _store_call(self, call: RecordedCall, answer: Answer) -> None:
        self.calls.append(call)
        if self._uses_idempotency_keys and call.idempotency_key and answer.status:
            self.answers[call.idempotency_key] = answer

    def _answer(self, http: HttpRequest, body: Json) -> Answer:
        parts = path_segments(http)
        request = Request(
            method=http.method, path=quote_path(parts), parts=parts, params=dict(http.query_params), body=body
        )
        custom_answer = self.answer(request, self.state) if self.answer else None
        return custom_answer or getattr(self, f"_{request.method.lower()}")(request)

    def _get(self, request: Request) -> Answer:
        if request.path in self.state:
            return Answer(200, self.state[request.path])
        child_records = [record for path, record in self.state.items() if path.startswith(f"{request.path}/")]
        return Answer(200, list(child_records)) if child_records else self._not_found(request)

    def _post(self, request: Request) -> Answer:
        """Create the record in the body, unless it exists. If the body is a list, create or replace each record."""
        if isinstance(request.body, list):
            for record in request.body:
                self.state[self._record_path(request, record)] = record
            return Answer(200, request.body)
        path = self._record_path(request, request.body)
        if path in self.state:
            return refusal(409, f"{path} exists already")
        self.state[path] = request.body
        name = path.rpartition("/")[2]
        return Answer(201, {"id": name, **request.body} if isinstance(request.body, dict) else {"id": name})

    def _put(self, request: Request) -> Answer:
        is_new = request.path not in self.state
        self.state[request.path] = request.body
        return Answer(201 if is_new else 200, request.body)

    def _patch(self, request: Request) -> Answer:
        record = self.state.get(request.path)
        if not isinstance(record, dict) or not isinstance(request.body, dict):
            return self._not_found(request) if record is None else refusal(400, "the body isn't a JSON object")
        self.state[request.path] = record | request.body
        return Answer(200, self.state[request.path])

    def _delete(self, request: Request) -> Answer:
        if request.path not in self.state:
            return self._not_found(request)
        del self.state[request.path]
        return Answer(204)

    def _record_path(self, request: Request, record: Json) -> str:
        """Return the URL path of a record that a POST adds to a collection, such as /contacts/a1 in /contacts."""
        fields = record if isinstance(record, dict) else {}
        ids = [str(fields[field]) for field in self._id_fields if fields.get(field) not in (None, "")]
        if len(ids) == len(self._id_fields):
            return quote_path((*request.parts, ",".join(ids)))
        return f"{request.path}/{GENERATED_ID_PREFIX}{next(self._numbers)}"

    @staticmethod
    def _not_found(request: Request) -> Answer:
        return refusal(404, f"there is no {request.path}")


def quote_path(parts: tuple[str, ...]) -> str:
    return "/" + "/".join(urllib.parse.quote(segment, safe="") for segment in parts)


@contextlib.contextmanager
def running_fake_api(
    *, answer: AnswerFunction | None = None, id_fields: tuple[str, ...] = ("id",), heeds_idempotency_keys: bool = False
) -> Iterator[FakeApi]:
    """Serve a fake API on a free port until the block ends."""
    listener = socket.create_server((LOOPBACK_HOST, 0))
    api = FakeApi(listener, answer=answer, id_fields=id_fields, heeds_idempotency_keys=heeds_idempotency_keys)
    api.start()
    try:
        yield api
    finally:
        api.stop()
