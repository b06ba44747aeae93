"""Secrets are masked by value, in whatever form they leave."""

import base64
import json
from urllib.parse import quote

import pytest

from ondatra_dagster.delivery.redaction import Redactor

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

    assert text in {"before *** after", "before ***= after", "before ***== after"}


def test_a_user_and_password_are_masked_together_and_apart() -> None:
    """Basic credentials travel as base64 of both."""
    redactor = Redactor(["marta", "hunter22"])
    pair = base64.b64encode(b"marta:hunter22").decode()
    redactor.learn(pair)

    assert "*** *** ***" == redactor.redact(f"marta hunter22 {pair}")


def test_of_two_secrets_the_longer_one_goes_first() -> None:
    """Else its tail would stay."""
    assert "***" == Redactor(["secret", "secret-tail"]).redact("secret-tail")


@pytest.mark.parametrize("short", ["", "1", "eu"])
def test_a_short_value_is_left(short: str) -> None:
    """Masking 'eu' would spoil every message and hide nothing."""
    assert "1 neutral queue" == Redactor([short]).redact("1 neutral queue")


def test_what_is_made_of_a_secret_is_one() -> None:
    """A push function that builds its own Basic header has a secret of its own."""
    redactor = Redactor(["s3cr3t"])
    derived = redactor.learn_derived("me:s3cr3t", "bWU6czNjcjN0")

    assert "***" == redactor.redact(derived)
    assert "harmless" == redactor.redact(redactor.learn_derived("me:you", "harmless"))


def test_a_redactor_shows_no_secret() -> None:
    """It stands in tracebacks with local variables."""
    assert "s3cr3t" not in repr(Redactor(["s3cr3t"]))
