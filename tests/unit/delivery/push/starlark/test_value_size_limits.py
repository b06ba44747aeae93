"""The size limits of values that leave Starlark: a value that is too deep or too large is an error with its line."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ondatra_dagster.delivery.http.api_client import ApiClient
from ondatra_dagster.delivery.push.starlark.load_and_call_push_functions import PushContext, load_library
from ondatra_dagster.errors import PushContractError

Lib = Callable[..., Path]
TEXT = """
API = {"base_url": "%s", "env": ["KEY"], "retry": 0}
def deep(levels, nest):
    value = 1
    for _ in range(levels):
        value = nest(value)
    return value
def push(rows):
    value = %s
    return %s
"""
LIST, DICT = "lambda each: [each]", "lambda each: {'a': each}"
TUPLE, STRUCT = "lambda each: (each,)", "lambda each: struct(a = each)"


@pytest.fixture
def run(loopback_api: Any, write_library: Lib) -> Iterator[Callable[[str, str], Any]]:
    """Yield a function that calls push() with expressions for a value and for what push() returns."""

    def push(value: str, returned: str) -> Any:
        library = load_library(write_library(crm=TEXT % (loopback_api.url, value, returned)))
        with ApiClient(library.config, secrets={"KEY": "s3cr3t-key"}.get) as api:
            return library.call_function(
                "push",
                '{"columns":[],"rows":[]}',
                http=api.begin_calls(),
                context=PushContext(sync_id="", kind="append", key_columns=[], arguments=[]),
            )

    return push


LEAVING = [
    ("json.encode(value)", "what json.encode() gets"),
    ("http.post('/', json = value)", "json="),
    ("http.post('/', data = value)", "what http.post() gets"),
    ("http.get('/', params = {'a': value})", "what http.get() gets"),
    ("http.put('/', headers = {'a': value})", "what http.put() gets"),
    ("http.get(value)", "what http.get() gets"),
    ("http.get('/', timeout = value)", "what http.get() gets"),
    ("json.decode(value)", "what json.decode() gets"),
    ("base64.encode(value)", "what base64.encode() gets"),
    ("base64.decode(value)", "what base64.decode() gets"),
    ("url_quote(value)", "what url_quote() gets"),
    ("md5(value)", "what md5() gets"),
    ("sha512(value)", "what sha512() gets"),
    ("hmac_sha256('key', value)", "what hmac_sha256() gets"),
    ("hmac_sha256(value, 'text')", "what hmac_sha256() gets"),
    ("print('a', value)", "what print() gets"),
    ("fail('a', value)", "what fail() gets"),
    ("value", "the returned value"),
    ("{'1:insert': value}", "the returned value"),
]


@pytest.mark.parametrize(("returned", "what"), LEAVING)
def test_a_value_that_is_too_deep_is_an_error_with_its_line(
    run: Callable[[str, str], Any], loopback_api: Any, returned: str, what: str
) -> None:
    """Starlark's own functions would recurse through it without a limit."""
    with pytest.raises(PushContractError) as error:
        run(f"deep(200000, {LIST})", returned)

    line = 8 if what == "the returned value" else 10
    assert f"lib/crm.star:{line}: {what} is nested deeper than 150 levels" == str(error.value)
    assert [] == loopback_api.requests


@pytest.mark.parametrize(("returned", "what"), LEAVING)
def test_a_value_that_is_too_large_is_an_error(
    run: Callable[[str, str], Any], loopback_api: Any, returned: str, what: str
) -> None:
    """The text is slightly longer than 100 MB."""
    with pytest.raises(PushContractError, match=f"{what[:4]}.* is larger than 100 MB$"):
        run("'a' * 101000000", returned)

    assert [] == loopback_api.requests


@pytest.mark.parametrize("nest", [LIST, DICT, TUPLE, STRUCT])
def test_a_value_may_have_150_levels(run: Callable[[str, str], Any], nest: str) -> None:
    """An answer may have 120, and push may put it into another value."""
    assert 150 < len(run(f"deep(150, {nest})", "json.encode(value)"))
    with pytest.raises(PushContractError, match="deeper than 150 levels"):
        run(f"deep(151, {nest})", "json.encode(value)")


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("deep(100, lambda each: [each, each])", "is larger than 100 MB"),
        ("deep(100, lambda each: [each] * 1000)", "is larger than 100 MB"),
        ("['a' * 1000000] * 200", "is larger than 100 MB"),
        ("{str(number) + 'a' * 1000000: 1 for number in range(101)}", "is larger than 100 MB"),
        ("[1] * 13000000", "is larger than 100 MB"),
        ("int('9' * 4301)", "has a number of more than 4,300 digits in it"),
        ("{'a': -int('9' * 5000)}", "has a number of more than 4,300 digits in it"),
        ("(lambda circle: [circle.append(circle), circle])([])", "is nested deeper than 150 levels"),
    ],
)
def test_a_value_that_contains_itself_counts_with_its_written_size(
    run: Callable[[str, str], Any], value: str, problem: str
) -> None:
    """A list that contains itself twice, a hundred levels deep, is small until it is written."""
    with pytest.raises(PushContractError, match=f"^lib/crm.star:10: what json.encode.. gets {problem}$"):
        run(value, "json.encode(value)")


@pytest.mark.parametrize(
    "value", ["[1, -3, 1 << 70, None, True, 1.5, 'ä']", "{'a': {'b': ()}}", "struct(a = [struct(b = 1)])", "''"]
)
def test_other_values_are_sent_unchanged(run: Callable[[str, str], Any], loopback_api: Any, value: str) -> None:
    """Every value that JSON supports is allowed."""
    assert run(value, "[json.encode(value), http.post('/', json = value).ok]")[1]

    assert loopback_api.requests[0].body == run(value, "json.encode(value)")


def test_a_number_that_python_can_not_write_is_an_error_with_its_line(run: Callable[[str, str], Any]) -> None:
    """This holds also for functions that don't check sizes."""
    for word in ("sleep(value)", "env(value)", "time.format(value)"):
        with pytest.raises(PushContractError, match=r"^lib/crm.star:10: "):
            run("int('9' * 5000)", word)


@pytest.mark.parametrize(
    ("word", "problem"),
    [
        ("url_quote('a' * 1000001)", "url_quote takes a string of at most 1,000,000 characters"),
        ("time.format(0, '%Y' * 501)", "time.format takes a pattern of at most 1,000 characters"),
    ],
)
def test_functions_for_short_texts_refuse_long_ones(run: Callable[[str, str], Any], word: str, problem: str) -> None:
    """Their result can be much longer than the text."""
    with pytest.raises(PushContractError, match=problem):
        run("0", word)


def test_str_is_still_a_type(run: Callable[[str, str], Any]) -> None:
    """Annotations need it, so `str` isn't replaced by a function that checks depths."""
    assert "ab" == run("(lambda each: each + 'b')('a')", "str(value)")
