"""The masking of secrets: by value, in each form in which they may be written."""

import base64
import html
import json
import re
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest

from ondatra_dagster.delivery.http.redaction import Redactor

SECRET = "p/a+s\"s w&ö<r>d'"
FORMS = {
    "plain": SECRET,
    "quoted": quote(SECRET, safe=""),
    "json": json.dumps(SECRET, ensure_ascii=False)[1:-1],
    "escaped json": json.dumps(SECRET)[1:-1],
    "base64": base64.b64encode(SECRET.encode()).decode(),
    "repr": repr(SECRET)[1:-1],
    "lower-case percent": re.sub("%..", lambda found: found[0].lower(), quote(SECRET, safe="")),
    "plus for a space": quote_plus(SECRET),
    "json of PHP": json.dumps(SECRET)[1:-1].replace("/", r"\/"),
    "json of .NET": re.sub(r"[^a-z ]", lambda found: f"\\u{ord(found[0]):04X}", SECRET),
    "html": html.escape(SECRET),
    "html of PHP": html.escape(SECRET).replace("&#x27;", "&#039;"),
    "json of html": json.dumps(html.escape(SECRET))[1:-1],
    "stripped": f"{SECRET}\n".strip(),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_secret_is_masked_in_every_form(form: str) -> None:
    """An error message quotes a URL, and an API may return JSON."""
    text = Redactor([f"{SECRET}\n"]).redact(f"before {form} after")

    # the last characters of base64 may be left: they encode less than one letter
    assert re.fullmatch(r"before \*\*\*\w?=* after", text)


@pytest.mark.parametrize("user", ["", "a", "ab", "abc", "marta"])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_a_password_is_masked_in_basic_credentials(user: str, encode: Callable[[bytes], bytes]) -> None:
    """They are the base64 of `user:password`, and the password may begin at any position."""
    password = "hunter22?>~"
    text = Redactor([password]).redact(encode(f"{user}:{password}:more".encode()).decode())

    assert "***" in text
    longest = max(text.replace("***", " ").split(), key=len)
    assert b"unter2" not in base64.b64decode(longest + "===", altchars=b"-_")
    assert len(text) < len(encode(f"{user}:{password}:more".encode())) - 8


@pytest.mark.parametrize("shorter", ["secret", "s/e'c&", "/////"])
def test_when_one_secret_begins_with_another_the_whole_is_masked(shorter: str) -> None:
    """Otherwise the end of the longer one would be shown."""
    assert "***" == Redactor([shorter, f"{shorter}-tail"]).redact(f"{shorter}-tail")


def test_a_secret_of_repeated_backslashes_is_masked_correctly() -> None:
    """It is compared at each place of the text, and backslashes are decoded at each depth."""
    secret = "\\" * 40
    assert "***x" == Redactor([f"{secret}x"]).redact(f"{secret}xx")
    assert "\\" * 7 + "y" == Redactor([f"{secret}x"]).redact("\\" * 7 + "y")
    assert "***y" == Redactor([f"{secret}x"]).redact("\\" * 39 + "y")


@pytest.mark.parametrize("short", ["", "1", "eu"])
def test_a_short_value_is_not_masked(short: str) -> None:
    """To mask 'eu' would make every message unreadable and hide nothing."""
    assert "1 neutral queue" == Redactor([short]).redact("1 neutral queue")


def test_the_repr_of_a_redactor_shows_no_secret() -> None:
    """Tracebacks may show local variables."""
    assert "s3cr3t" not in repr(Redactor(["s3cr3t"]))
