"""The decimals of a row as numbers, at any place in a value."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from ondatra_dagster.delivery.http.api_client import ApiClient
from ondatra_dagster.delivery.push.starlark.load_and_call_push_functions import (
    PushContext,
    find_decimal_paths,
    load_library,
)
from ondatra_dagster.row_changes import Column


@pytest.mark.parametrize(
    ("type_name", "expected"),
    [
        ("string", None),
        ("decimal(10,2)", "number"),
        ("array<int>", None),
        ("array<decimal(10,2)>", ["each", "number"]),
        ("map<string,decimal(10,2)>", ["each", "number"]),
        ("map<decimal(10,2),string>", None),
        ("struct<a:int,b:string>", None),
        ("struct<a:decimal(10,2),b:string>", ["fields", {"a": "number"}]),
        (
            "array<struct<a:map<string,array<decimal(38,0)>>,b:struct<c:int>>>",
            ["each", ["fields", {"a": ["each", ["each", "number"]]}]],
        ),
    ],
)
def test_the_type_says_where_the_decimals_are(type_name: str, expected: object) -> None:
    """Commas and brackets in a type may be nested."""
    assert expected == find_decimal_paths(type_name)


VALUES = {
    "decimal(38,18)": ("1.500000000000000000", 1.5),
    "decimal(38,0)": ("12345678901234567890", 12345678901234567890),
    "decimal(9,9)": ("1E-9", 1e-9),
    "array<decimal(3,1)>": (["1.5", None, "2.0"], [1.5, None, 2.0]),
    "map<string,decimal(3,1)>": ({"a": "1.5"}, {"a": 1.5}),
    "struct<a:decimal(3,1),b:string>": ({"a": "1.5", "b": "1.5"}, {"a": 1.5, "b": "1.5"}),
    "array<struct<a:decimal(3,1)>>": ([{"a": None}, None], [{"a": None}, None]),
    "string": ("1.5", "1.5"),
}


@pytest.mark.parametrize("decimals", ["string", "number"])
def test_decimals_are_exact_texts_or_numbers_at_any_depth(write_library: Callable[..., Path], decimals: str) -> None:
    """The sink decides which, for nested values too. A null stays null."""
    library = load_library(
        write_library(x=f'API = {{"push": {{"decimals": "{decimals}"}}}}\ndef push(rows):\n    return rows[0]')
    )
    columns = [Column(f"c{number}", name) for number, name in enumerate(VALUES)]
    batch = {"columns": [column.name for column in columns], "rows": [[value for value, _ in VALUES.values()]]}
    transport = httpx.MockTransport(lambda _: httpx.Response(200))
    returned: Any = library.call_function(
        "push",
        orjson.dumps(batch).decode(),
        context=PushContext(sync_id="", kind="table", key_columns=(), arguments=(), columns=columns),
        http=ApiClient(library.config, secrets={}.get, transport=transport).begin_calls(),
    )

    expected = [number if decimals == "number" else text for text, number in VALUES.values()]
    assert expected == list(returned.values())
