"""The differences between two states of the fake API, described in words."""

import collections
from collections.abc import Iterator, Mapping

import orjson

from ondatra_dagster.row_changes import Json
from ondatra_dagster.testing.fake_api import GENERATED_ID_PREFIX, State

MAX_SHOWN_RECORDS = 3  # the number of records that a message names
MAX_RECORD_LETTERS = 120  # the number of characters of a record that a message shows
ApiContent = Mapping[str, Json]  # the path of a record → the record


def comparable_content(state: State) -> ApiContent:
    """Return the API's records without the ids that the API generated: these depend on the order of the calls."""
    records_with_own_id = {path: record for path, record in state.items() if not _has_generated_id(path)}
    texts_by_collection = collections.defaultdict(list)
    for path, record in state.items():
        if _has_generated_id(path):
            texts_by_collection[path.rpartition("/")[0]].append(_record_text(record))
    # two equal records get different paths
    generated_paths = {
        f"{path}/{GENERATED_ID_PREFIX}{number} {record}": record
        for path, records in texts_by_collection.items()
        for record, copies in collections.Counter(records).items()
        for number in range(1, copies + 1)
    }
    return {**records_with_own_id, **generated_paths}


def describe_differences(expected_content: ApiContent, actual_content: ApiContent) -> str:
    """Describe the missing, surplus and changed records; return an empty text if the contents are equal."""
    differences = list(_list_differences(expected_content, actual_content))
    more_note = f", and {len(differences) - MAX_SHOWN_RECORDS} more" if len(differences) > MAX_SHOWN_RECORDS else ""
    return "; ".join(differences[:MAX_SHOWN_RECORDS]) + more_note


def _list_differences(expected_content: ApiContent, actual_content: ApiContent) -> Iterator[str]:
    for path in sorted({*expected_content, *actual_content}):
        if path not in actual_content:
            yield f"{path} is missing"
        elif path not in expected_content:
            yield f"{path} is still there, or there twice"
        elif expected_content[path] != actual_content[path]:
            expected_text = _shorten_record(expected_content[path])
            yield f"{path} is {_shorten_record(actual_content[path])}, and should be {expected_text}"


def _has_generated_id(path: str) -> bool:
    return path.rpartition("/")[2].startswith(GENERATED_ID_PREFIX)


def _shorten_record(record: Json) -> str:
    text = _record_text(record)
    return text if len(text) <= MAX_RECORD_LETTERS else f"{text[:MAX_RECORD_LETTERS]}…"


def _record_text(record: Json) -> str:
    return orjson.dumps(record, option=orjson.OPT_SORT_KEYS).decode()
