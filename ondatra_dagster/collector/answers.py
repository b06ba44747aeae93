"""What the collector answers: a status, headers, and a body that says in words what to do."""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import orjson

from ondatra_dagster.collector.event_reader import FieldProblem
from ondatra_dagster.prometheus import CONTENT_TYPE

Headers: TypeAlias = tuple[tuple[bytes, bytes], ...]

JSON: Headers = ((b"content-type", b"application/json"),)
TEXT: Headers = ((b"content-type", CONTENT_TYPE.encode()),)
CLOSE: Headers = ((b"connection", b"close"),)  # what is left of the request isn't read
LISTED = 1000  # problems in one answer


class Answer(NamedTuple):
    status: int
    body: bytes = b""
    headers: Headers = JSON
    reason: str = ""  # of a refusal: one word, for the metrics


def taken(events: int) -> Answer:
    return Answer(202, b'{"accepted":%d}' % events)


def refused(status: int, reason: str, sentence: str, headers: Headers = ()) -> Answer:
    return Answer(status, orjson.dumps({"error": sentence}), (*JSON, *headers), reason)


def unfit(problems: Sequence[FieldProblem]) -> Answer:
    """Every field that can't be taken, as far as an answer has room."""
    more = len(problems) - LISTED
    told = {
        "error": f"{len(problems)} fields can't be taken; nothing was"
        if len(problems) > 1
        else "a field can't be taken; nothing was",
        "errors": list(problems[:LISTED]),
        **({"more": more} if more > 0 else {}),
    }
    return Answer(400, orjson.dumps(told), JSON, "invalid")


def too_many(reason: str, sentence: str, retry_after_seconds: int) -> Answer:
    return refused(429, reason, sentence, ((b"retry-after", str(retry_after_seconds).encode()),))
