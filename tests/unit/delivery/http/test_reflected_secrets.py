"""The masking of secrets that an API returns, in any spelling. The secrets are random, with a fixed seed."""

import base64
import html
import json
import random
import string
from collections.abc import Callable, Iterator
from urllib.parse import quote, quote_plus

import pytest

from ondatra_dagster.delivery.http.redaction import MASK, Redactor

BASE64 = string.ascii_letters + string.digits + "+/="
ALPHABETS = {
    "alphanumeric": string.ascii_letters + string.digits,
    "base64": BASE64,
    "base64url": string.ascii_letters + string.digits + "-_",
    "printable": "".join(map(chr, range(33, 127))),
    "unicode": string.ascii_letters + "äöüßéñ€漢字😀",
}
PEM = "-----BEGIN KEY-----\n{}\n-----END KEY-----"
SECRETS_OF_A_KIND = 40


def b64(octets: bytes) -> str:
    return base64.b64encode(octets).decode()


def by_utf16(secret: str) -> str:
    octets = secret.encode("utf-16-be")
    return "".join(f"\\u{octets[at]:02x}{octets[at + 1]:02x}" for at in range(0, len(octets), 2))


SPELLINGS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "quoted": quote,
    "quoted, with slashes": lambda secret: quote(secret, safe=""),
    "quoted twice": lambda secret: quote(quote(secret, safe=""), safe=""),
    "quoted for a form, then quoted": lambda secret: quote(quote_plus(secret), safe=""),
    "quoted three times": lambda secret: quote(quote(quote(secret, safe=""), safe=""), safe=""),
    "a plus read as a space": lambda secret: secret.replace("+", " "),
    "each letter quoted": lambda secret: "".join(f"%{octet:02x}" for octet in secret.encode()),
    "JSON": json.dumps,
    "JSON in UTF-8": lambda secret: json.dumps(secret, ensure_ascii=False),
    "JSON of PHP": lambda secret: json.dumps(secret).replace("/", r"\/"),
    "JSON in JSON": lambda secret: json.dumps(json.dumps(secret)),
    "JSON in JSON in JSON": lambda secret: json.dumps(json.dumps(json.dumps(secret))),
    "JSON quoted": lambda secret: quote(json.dumps(secret)),
    "quoted in JSON": lambda secret: json.dumps(quote(secret)),
    "HTML": html.escape,
    "HTML twice": lambda secret: html.escape(html.escape(secret)),
    "HTML in JSON": lambda secret: json.dumps(html.escape(secret)),
    "JSON in HTML": lambda secret: html.escape(json.dumps(secret)),
    "escapes of JSON": by_utf16,
    "decimal entities": lambda secret: "".join(f"&#{ord(letter)};" for letter in secret),
    "hexadecimal entities": lambda secret: "".join(f"&#x{ord(letter):X};" for letter in secret),
    "named entities": lambda secret: (
        html.escape(secret).replace("+", "&plus;").replace("/", "&sol;").replace("=", "&equals;")
    ),
    "Python": repr,
    "bytes of Python": lambda secret: repr(secret.encode()),
    "read as Latin-1": lambda secret: secret.encode().decode("latin-1"),
    "CSV": lambda secret: secret.replace('"', '""'),
    "base64": lambda secret: b64(secret.encode()),
    "base64 in a header": lambda secret: b64(b"user:" + secret.encode() + b":more"),
    "base64url": lambda secret: base64.urlsafe_b64encode(b"ab" + secret.encode()).decode().rstrip("="),
    "base64 quoted": lambda secret: quote(b64(secret.encode()), safe=""),
    "base64 in JSON of PHP": lambda secret: b64(secret.encode()).replace("/", r"\/"),
    "base64 of JSON": lambda secret: b64(json.dumps({"k": secret}).encode()),
    "base64 of a quoted one": lambda secret: b64(quote(secret, safe="").encode()),
    "base64 of MIME": lambda secret: base64.encodebytes(b"Authorization: Bearer " + secret.encode()).decode(),
    "base64 of MIME, CRLF": lambda secret: (
        base64.encodebytes(b"token=" + secret.encode()).decode().replace("\n", "\r\n")
    ),
    "hex": lambda secret: secret.encode().hex(),
    "HEX": lambda secret: secret.encode().hex().upper(),
    "CRLF for LF": lambda secret: secret.replace("\n", "\r\n"),
    "without line breaks": lambda secret: secret.replace("\n", ""),
    "a space for a line break": lambda secret: secret.replace("\n", " "),
    "wrapped": lambda secret: "\n".join(secret[at : at + 20] for at in range(0, len(secret), 20)),
}


def random_secrets() -> Iterator[str]:
    chance = random.Random(1)
    for _ in range(SECRETS_OF_A_KIND):
        for alphabet in ALPHABETS.values():
            yield "".join(chance.choice(alphabet) for _ in range(chance.randint(12, 40)))
        yield PEM.format("\n".join("".join(chance.choices(BASE64, k=64)) for _ in range(3)))


@pytest.fixture(scope="module")
def redactors() -> dict[str, Redactor]:
    return {secret: Redactor([secret]) for secret in random_secrets()}


@pytest.mark.parametrize("spell", SPELLINGS.values(), ids=SPELLINGS)
def test_each_spelling_is_masked(spell: Callable[[str], str], redactors: dict[str, Redactor]) -> None:
    """In base64, the text around the secret may be left, and at its ends characters that encode less than a letter."""
    around = len(spell("")) + 4
    for secret, redactor in redactors.items():
        masked = redactor.redact(f"error: bad key {spell(secret)} given")

        remainder = masked.removeprefix("error: bad key ").removesuffix(" given").replace("%3D", "=")
        assert MASK in remainder
        assert len(remainder.replace(MASK, "")) <= around, (secret, masked)


def test_a_secret_is_masked_inside_texts_that_are_encoded_several_times(redactors: dict[str, Redactor]) -> None:
    """A gateway wraps the error of its backend, and that error contains the URL of the request."""
    for secret, redactor in redactors.items():
        inner = json.dumps({"at": f"/login?key={quote(secret, safe='')}&x=%2F", "why": "no \"such' key"})
        outer = json.dumps({"message": inner, "count": 1})

        masked = json.loads(redactor.redact(outer))

        assert json.loads(masked["message"]) == {"at": f"/login?key={MASK}&x=%2F", "why": "no \"such' key"}
        assert masked["count"] == 1


@pytest.mark.parametrize(
    "piece",
    [
        *("%25", "%41", "%", "\\", "\\u", "\\x5c", "&#", "&#0", "&#38;", "&amp;", "&a", "amp;", '"'),
        *(" ", "\n", "+", "0", "…", "Bearer ", "sk_live_", "sk_live_51H8xYz", 'sk_live_51H8xYz"'),
    ],
)
def test_hostile_texts_are_masked_in_linear_time(piece: str) -> None:
    """For a megabyte that looks like escapes or secrets, quadratic work would take hours."""
    redactor = Redactor(["Bearer sk_live_51H8xYzAbCdEfGhIjKlMn", "sk_live_51H8xYzAbCdEfGhIjKlMn"])
    text = piece * (1_000_000 // len(piece))

    assert redactor.redact(text + "end").endswith("end")
