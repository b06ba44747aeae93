"""What the fake API holds at the end of a play, and how two such ends differ, in words."""

import collections
from collections.abc import Iterator, Mapping

import orjson

from ondatra_dagster.changes import Json
from ondatra_dagster.testing.fake_api import MADE_UP, State

SHOWN = 3  # records that a sentence names
WIDEST = 120  # letters of a record
Content = Mapping[str, Json]  # the path of a record → the record


def content_of(state: State) -> Content:
    """The records, but for the numbers of those that came without an id: they follow the order of calls."""
    named = {path: record for path, record in state.items() if not _is_made_up(path)}
    nameless = collections.defaultdict(list)
    for path, record in state.items():
        if _is_made_up(path):
            nameless[path.rpartition("/")[0]].append(_text(record))
    # a record that is there twice has two places
    places = {
        f"{path}/{MADE_UP}{number} {record}": record
        for path, records in nameless.items()
        for record, copies in collections.Counter(records).items()
        for number in range(1, copies + 1)
    }
    return {**named, **places}


def differences(expected: Content, held: Content) -> str:
    """What the one has and the other hasn't; empty when they are the same."""
    told = list(_differences(expected, held))
    more = f", and {len(told) - SHOWN} more" if len(told) > SHOWN else ""
    return "; ".join(told[:SHOWN]) + more


def _differences(expected: Content, held: Content) -> Iterator[str]:
    for path in sorted({*expected, *held}):
        if path not in held:
            yield f"{path} is missing"
        elif path not in expected:
            yield f"{path} is still there, or there twice"
        elif expected[path] != held[path]:
            yield f"{path} is {_short(held[path])}, and should be {_short(expected[path])}"


def _is_made_up(path: str) -> bool:
    return path.rpartition("/")[2].startswith(MADE_UP)


def _short(record: Json) -> str:
    text = _text(record)
    return text if len(text) <= WIDEST else f"{text[:WIDEST]}…"


def _text(record: Json) -> str:
    return orjson.dumps(record, option=orjson.OPT_SORT_KEYS).decode()
