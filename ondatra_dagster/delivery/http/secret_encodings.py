"""The spellings of a secret: as it is, in base64 and in hex, and what of its beginning is no secret.

Texts are searched with their escapes decoded (escape_decoding), so that a spelling has none.
"""

import base64
import contextlib
import json
import re
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import quote, quote_plus

from ondatra_dagster.delivery.http.escape_decoding import BLANKS, decode_escapes

MIN_SECRET_LENGTH = 4  # a shorter value isn't a secret, and masking it would make every message unreadable
MIN_PREFIX_LENGTH = 8  # of a secret that is cut off, and of what is searched without its blanks
MAX_QUOTING_DEPTH = 4  # how often a text may be quoted
# texts of a JSON secret that name things and give access to nothing: error messages need them
PUBLIC_FIELDS = frozenset(
    {
        *("type", "project_id", "quota_project_id", "client_email", "universe_domain", "region", "location"),
        *("auth_uri", "token_uri", "redirect_uris", "auth_provider_x509_cert_url", "client_x509_cert_url"),
    }
)
_SECRET_FIELD = re.compile(r"(?i)pass|pwd|secret|token|key|credential|auth")
_PLAIN_NAME = re.compile(r"(?=.{1,15}$)[A-Za-z][a-z]*(?:[_.-][a-z]+)*")  # "production", "service_account"
_SCHEME = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*:)+//|[A-Za-z][A-Za-z0-9-]*[ \t]+")
_PEM_HEAD = re.compile(r"-----BEGIN [A-Z0-9 ]*-----\s*")
_JSON_OPENING = re.compile(r'\s*[\[{][\s\[{]*(?:"[^"\\]*"(?:\s*:\s*"?)?)?')
_EDGE_BLANKS = "+ "
_WORD = re.compile(r"(?:[A-Z]?[a-z]+|[A-Z]+)(?![A-Za-z])")
_AUTHORIZATION = re.compile(r"(?i)(?:Bearer|Basic|Token|ApiKey|Api-Key|Key) +(?=\S{8})")


class SecretEncoding(NamedTuple):
    """A text that gives a secret away."""

    text: str
    search_prefix: str  # its shortest beginning that does
    word_length: int = 0  # the length of the ordinary word that it begins with: alone, that gives nothing away
    blanks_before: int = 0  # plus signs and spaces that the secret has before this text
    blanks_after: int = 0


def find_secrets(value: str) -> Iterator[str]:
    """Yield the value, and the secrets within: a JSON document's texts, a header's without its scheme."""
    for secret in {value, value.strip(), value.strip().rstrip("=")}:
        if len(secret) >= MIN_SECRET_LENGTH:
            yield secret
    if scheme := _AUTHORIZATION.match(value.strip()):
        yield value.strip()[scheme.end() :]
    for text in _json_texts(value):
        yield from {text, text.strip()}


def list_encodings(secret: str) -> Iterator[SecretEncoding]:
    """Yield the spellings of a secret, without blanks where it is long enough."""
    public = secret[: _public_length(secret)]
    for text, beginning in _plain_forms(secret, public):
        yield _plain_encoding(text, beginning)
    for text, beginning in _encoded_forms(secret, public):
        octets, least = text.encode(errors="replace"), _prefix_length(len(beginning.encode(errors="replace")))
        yield from _base64_forms(octets, least)
        for digits in (octets.hex(), octets.hex().upper()):
            yield SecretEncoding(digits, digits[: 2 * least])


def _prefix_length(public: int) -> int:
    return max(MIN_PREFIX_LENGTH, public + 1)


def _plain_encoding(text: str, public: str) -> SecretEncoding:
    word = _WORD.match(text)
    spelling = _blankless_encoding(text, _prefix_length(len(public)), word.end() if word else 0)
    if len(spelling.text) >= MIN_PREFIX_LENGTH:
        return spelling
    return SecretEncoding(text.replace("+", " "), text.replace("+", " "))


def _blankless_encoding(text: str, least: int, word: int = 0) -> SecretEncoding:
    """Return the text without its blanks."""
    before = len(text) - len(text.lstrip(_EDGE_BLANKS))
    after = len(text) - len(text.rstrip(_EDGE_BLANKS))
    squeezed = BLANKS.sub("", text)
    seed = squeezed[: max(MIN_PREFIX_LENGTH, len(BLANKS.sub("", text[:least])))]
    return SecretEncoding(squeezed, seed, word, before, after)


def _plain_forms(secret: str, public: str) -> Iterator[tuple[str, str]]:
    """Yield the secret and what it is once decoded: an address decodes a secret's own escapes, too."""
    yield secret, public
    for quoted in ("'", '"'):
        if quoted in secret:  # in CSV, SQL and YAML
            yield secret.replace(quoted, 2 * quoted), public.replace(quoted, 2 * quoted)
    if not secret.isascii():  # UTF-8 that was read as Latin-1
        yield _decode_as_latin_1(secret), _decode_as_latin_1(public)
    for _ in range(MAX_QUOTING_DEPTH):
        before, secret, public = secret, decode_escapes(secret), decode_escapes(public)
        if secret == before or len(secret) < MIN_PREFIX_LENGTH:
            return
        yield secret, public


def _decode_as_latin_1(text: str) -> str:
    return text.encode(errors="replace").decode("latin-1")


def _encoded_forms(secret: str, public: str) -> Iterator[tuple[str, str]]:
    """Yield what may be in base64 or hex: the secret, also in JSON or quoted."""
    forms = {secret: public}
    for encode in (_encode_json, _encode_utf8_json, _quote_url, _quote_form):
        forms.setdefault(encode(secret), encode(public))
    yield from forms.items()


def _encode_json(text: str) -> str:
    return json.dumps(text)[1:-1]


def _encode_utf8_json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _quote_url(text: str) -> str:
    return quote(text, safe="", errors="replace")


def _quote_form(text: str) -> str:
    return quote_plus(text, errors="replace")


def _base64_forms(secret: bytes, least: int) -> Iterator[SecretEncoding]:
    """Yield how the secret looks inside of the base64 of something longer, at each of its three offsets.

    Basic credentials are such: the base64 of user:password. The characters at its ends, which stand for its
    neighbours too, are left out.
    """
    for offset in range(3):
        padded = bytes(offset) + secret
        start = (offset * 8 + 5) // 6
        given_away = ((offset + least) * 8 + 5) // 6 - start
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            form = encode(padded).decode()[start : len(padded) * 8 // 6]
            if len(form) > MIN_SECRET_LENGTH:  # a shorter one may be part of any text
                yield _blankless_encoding(form, given_away)


def _public_length(secret: str) -> int:
    """Return how much of the beginning is the same in other secrets: a scheme, a PEM head, a JSON opening."""
    if opening := _JSON_OPENING.match(secret):
        first = next(_json_texts(secret), None)
        place = secret.find(_encode_utf8_json(first)[:MIN_PREFIX_LENGTH]) if first else -1
        if first is None or place < 0:
            return opening.end()
        return place + _public_length(first)
    found = _PEM_HEAD.match(secret) or _SCHEME.match(secret)
    return found.end() if found else 0


def _json_texts(value: str) -> Iterator[str]:
    """Yield the texts of a JSON document that are secrets."""
    if not value.lstrip().startswith(("{", "[")):
        return
    with contextlib.suppress(ValueError, RecursionError):
        yield from _secret_texts(json.loads(value), field="")


def _secret_texts(value: object, field: str) -> Iterator[str]:
    if isinstance(value, dict):
        for name, each in value.items():
            yield from _secret_texts(each, name)
    elif isinstance(value, list):
        for each in value:
            yield from _secret_texts(each, field)
    elif isinstance(value, str) and _is_secret(value, field):
        yield value
        yield from _json_texts(value)


def _is_secret(text: str, field: str) -> bool:
    if field in PUBLIC_FIELDS:
        return False
    if _SECRET_FIELD.search(field):
        return len(text) >= MIN_SECRET_LENGTH
    return len(text) >= MIN_PREFIX_LENGTH and not _PLAIN_NAME.fullmatch(text)
