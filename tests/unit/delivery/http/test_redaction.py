"""Secrets are masked by value, in whatever form they leave."""

import base64
import json
import re
from collections.abc import Callable
from urllib.parse import quote

import pytest

from ondatra_dagster.delivery.http.redaction import Redactor

SECRET = 'p/a+s"s wörd'
FORMS = {
    "plain": SECRET,
    "quoted": quote(SECRET, safe=""),
    "json": json.dumps(SECRET, ensure_ascii=False)[1:-1],
    "escaped json": json.dumps(SECRET)[1:-1],
    "base64": base64.b64encode(SECRET.encode()).decode(),
    "repr": repr(SECRET)[1:-1],
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_secret_is_masked_in_every_form(form: str) -> None:
    """An error message quotes an address, an API echoes JSON."""
    text = Redactor([SECRET]).redact(f"before {form} after")

    # the last characters of base64 may be left: they stand for less than a letter
    assert re.fullmatch(r"before \*\*\*\w?=* after", text)


@pytest.mark.parametrize("user", ["", "a", "ab", "abc", "marta"])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_a_password_is_masked_in_basic_credentials(user: str, encode: Callable[[bytes], bytes]) -> None:
    """They travel as the base64 of user:password, wherever in it the password begins."""
    password = "hunter22?>~"
    text = Redactor([password]).redact(encode(f"{user}:{password}:more".encode()).decode())

    assert "***" in text
    longest = max(text.replace("***", " ").split(), key=len)
    assert b"unter2" not in base64.b64decode(longest + "===", altchars=b"-_")
    assert len(text) < len(encode(f"{user}:{password}:more".encode())) - 8


def test_of_two_secrets_the_longer_one_goes_first() -> None:
    """Else its tail would stay."""
    assert "***" == Redactor(["secret", "secret-tail"]).redact("secret-tail")


@pytest.mark.parametrize("short", ["", "1", "eu"])
def test_a_short_value_is_left(short: str) -> None:
    """Masking 'eu' would spoil every message and hide nothing."""
    assert "1 neutral queue" == Redactor([short]).redact("1 neutral queue")


def test_a_redactor_shows_no_secret() -> None:
    """It stands in tracebacks with local variables."""
    assert "s3cr3t" not in repr(Redactor(["s3cr3t"]))
