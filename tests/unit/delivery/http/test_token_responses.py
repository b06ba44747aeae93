"""The parsing of a token server's answer, with unusual numbers and texts."""

import math

import pytest

from ondatra_dagster.delivery.http.oauth_tokens import NoTokenError, parse_token_response
from ondatra_dagster.delivery.http.response_status_and_body_decoding import HttpResponse

TOKEN = '{"access_token": "abc", "expires_in": %s}'


@pytest.mark.parametrize(
    "expires_in",
    [
        *("NaN", '"NaN"', '"Infinity"', "-1", "0", "-1e300", '"-5"', "true", "null", "[]", '"soon"', '""'),
        f'"{"9" * 5_000}"',
    ],
)
def test_a_token_with_an_invalid_lifetime_does_not_expire(expires_in: str) -> None:
    """It is used until the API refuses it."""
    try:
        tokens = parse_token_response(HttpResponse(200, TOKEN % expires_in), now=1_000.0)
    except NoTokenError:
        assert "NaN" == expires_in  # this isn't JSON
    else:
        assert ("abc", None) == (tokens.access, tokens.expires_at)


@pytest.mark.parametrize("expires_in", ["1" + "0" * 400, "9" * 5_000, "1e400", "-1e400", "Infinity"])
def test_an_answer_with_a_number_that_is_too_large_has_no_token(expires_in: str) -> None:
    """An answer isn't read as JSON if one of its numbers is too large for a float."""
    with pytest.raises(NoTokenError, match="its answer has no access_token that could be sent"):
        parse_token_response(HttpResponse(200, TOKEN % expires_in), now=1_000.0)


@pytest.mark.parametrize(
    ("expires_in", "expires_at"),
    [("600", 1_540.0), ('"600"', 1_540.0), ("100.5", 1_090.45), ("1" + "0" * 30, 1e30), ("1e300", 1e300)],
)
def test_a_token_expires_a_little_earlier_than_its_lifetime_says(expires_in: str, expires_at: float) -> None:
    """It must stay valid while a request is under way."""
    tokens = parse_token_response(HttpResponse(200, TOKEN % expires_in), now=1_000.0)

    assert tokens.expires_at is not None
    assert math.isclose(expires_at, tokens.expires_at)


@pytest.mark.parametrize(
    "text", ['{"error": "\\ud800"}', '{"error": %s}' % ("9" * 5_000), "[" * 100_000, '{"error": 1e400}', "", "\0", "[]"]
)
def test_the_message_of_a_refusal_is_always_valid_text(text: str) -> None:
    """Half a character would raise an error where it is stored or passed to push()."""
    with pytest.raises(NoTokenError) as error:
        parse_token_response(HttpResponse(400, text), now=1_000.0)

    assert "it answered 400" == str(error.value).encode().decode()
