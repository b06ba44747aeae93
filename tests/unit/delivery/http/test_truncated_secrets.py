"""Secrets with a cut end, and the texts inside a JSON secret: both are masked."""

import base64
import json
from typing import Any

import pytest

from ondatra_dagster.delivery.http.redaction import Redactor

KEY = "sk_live_51H8xYzAbCdEfGhIjKlMn"
PEM = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0\nBAQEFAASCBKcwggSjAgEAAo\n-----END PRIVATE KEY-----\n"
ACCOUNT: dict[str, Any] = {
    "type": "service_account",
    "project_id": "our-project",
    "private_key_id": "0f1e2d3c4b5a69788796a5b4",
    "private_key": PEM,
    "client_email": "sync@our-project.iam.gserviceaccount.com",
    "token_uri": "https://oauth2.googleapis.com/token",
    "nested": [{"password": "hunter2", "note": "a long sentence", "stage": "production"}],
}


@pytest.mark.parametrize("length", range(8, len(KEY)))
@pytest.mark.parametrize("end", ["", "…", "...", '"', "'", "`", " …", "\n", '"}, {"x": 1}', "\\", "%2", "\\u00"])
def test_the_beginning_of_a_secret_is_masked_where_a_text_is_cut_off(length: int, end: str) -> None:
    masked = Redactor([KEY]).redact(f"error: invalid {KEY[:length]}{end}")

    assert masked == f"error: invalid ***{end}"


@pytest.mark.parametrize("secret", [f"Bearer {KEY}", KEY])
@pytest.mark.parametrize("length", [52, 56, 60, 71])
def test_a_secret_in_an_answer_is_masked_when_push_cuts_the_answer(secret: str, length: int) -> None:
    """Many authors write `"error: " + answer.text[:60]`."""
    text = f'{{"message":"invalid token","token":"Bearer {KEY}"}}'[:length]
    masked = Redactor([secret]).redact(f"error: {text}")

    assert masked.endswith("***")
    assert "sk_live" not in masked


@pytest.mark.parametrize("cut", [60, 64, 70, 77])
def test_the_beginning_of_base64_is_masked(cut: int) -> None:
    """push() or the API may cut basic credentials."""
    text = "the header Authorization was Basic " + base64.b64encode(f"marta:{KEY}".encode()).decode()
    masked = Redactor([KEY]).redact(text[:cut])

    assert masked == "the header Authorization was Basic " + base64.b64encode(b"marta:").decode() + "***"


def test_more_than_half_of_a_secret_is_masked_anywhere() -> None:
    masked = Redactor([KEY]).redact(f"error: {KEY[:16]} (HTTP 401)")

    assert masked == "error: *** (HTTP 401)"


@pytest.mark.parametrize("length", [1, 4, 7])
def test_a_short_beginning_of_a_secret_is_not_masked(length: int) -> None:
    text = f"error: {KEY[:length]}"

    assert Redactor([KEY]).redact(text) == text


@pytest.mark.parametrize(
    ("secret", "text"),
    [
        (f"Bearer {KEY}", 'the header has to begin with "Bearer "'),
        (f"Bearer {KEY}", "expected: Bearer …"),
        (f"https://hooks.example.com/{KEY}", 'the address has to begin with "https://"'),
        (f"postgresql+psycopg://app:{KEY}@db/app", "unknown scheme postgresql+psycopg://"),
        (PEM, "the key has to begin with '-----BEGIN PRIVATE KEY-----'"),
        (PEM, r'{"expected": "-----BEGIN PRIVATE KEY-----\n"}'),
        (json.dumps(ACCOUNT), 'the file has to begin with {"type": "'),
        (json.dumps(ACCOUNT), 'no JSON: {"type": "service_account", "project_id": "our-project"…'),
        ("production-8fK2jX9q", "nothing is there in production"),
        ("Correcthorse battery staple", 'no animal called "Correcthorse"'),
        ("password1", "what about your password?"),
    ],
)
def test_a_beginning_that_is_public_is_not_masked(secret: str, text: str) -> None:
    """Schemes, PEM headers, JSON openings and ordinary words aren't secret: masking them would hide the cause."""
    assert Redactor([secret]).redact(text) == text


@pytest.mark.parametrize(
    ("secret", "beginning"),
    [
        (f"Bearer {KEY}", "Bearer sk"),
        (f"https://hooks.example.com/{KEY}", "https://h"),
        (PEM, PEM[:31]),
        (PEM, PEM[:31].replace("\n", "\\n")),
        ('{"key": "12345678"}', '{"key": "1'),
    ],
)
def test_a_beginning_with_more_than_its_public_text_is_masked(secret: str, beginning: str) -> None:
    assert Redactor([secret]).redact(f"error: {beginning}") == "error: ***"


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize(
    "text",
    [
        *(PEM, json.dumps(PEM.strip())[1:-1], PEM.replace("\n", "")),
        *(ACCOUNT["private_key_id"], "hunter2", "a long sentence"),
    ],
)
def test_each_text_in_a_json_secret_is_masked(indent: int | None, text: str) -> None:
    masked = Redactor([json.dumps(ACCOUNT, indent=indent)]).redact(f"before {text} after")

    assert "before *** after" == " ".join(masked.split())


@pytest.mark.parametrize("field", ["type", "project_id", "client_email", "token_uri"])
def test_the_public_fields_of_a_json_secret_are_not_masked(field: str) -> None:
    """Error messages need them, and they give no access."""
    text = f"permission denied for {ACCOUNT[field]}"

    assert Redactor([json.dumps(ACCOUNT)]).redact(text) == text


def test_an_ordinary_word_in_a_json_secret_is_not_masked() -> None:
    assert Redactor([json.dumps(ACCOUNT)]).redact("no host in production") == "no host in production"


def test_each_text_of_json_inside_a_json_secret_is_masked() -> None:
    assert Redactor([json.dumps({"account": json.dumps(ACCOUNT)})]).redact("hunter2") == "***"


@pytest.mark.parametrize("secret", ['{"broken', "[1, 2", '{"a": 1}   x', "[" * 100_000, '"text"', "{}"])
def test_a_secret_that_only_looks_like_json_is_masked_as_a_whole(secret: str) -> None:
    assert Redactor([secret]).redact("nothing of it") == "nothing of it"
    if len(secret) > 4:
        assert Redactor([secret]).redact(f"error: {secret}") == "error: ***"


def test_a_key_is_masked_without_the_scheme_before_it_in_the_variable() -> None:
    assert Redactor([f"Bearer {KEY}"]).redact(f"invalid token {KEY}.") == "invalid token ***."
