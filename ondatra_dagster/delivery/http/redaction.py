"""The masking of secrets: every text for a log, a message, a record or a page goes through it.

Secrets are found by value, not by name, anywhere in a text. They may be quoted up to four times, have broken or
joined lines, be in base64 or hex, or be cut off at the end. The docs page on reliability lists the secrets that
aren't found. Texts are searched with their escapes decoded (escape_decoding), so the spellings of a secret need no
escapes.
"""

import base64
import contextlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple
from urllib.parse import quote, quote_plus

from ondatra_dagster.delivery.http.escape_decoding import BLANKS, DecodedText, decode_escapes

MIN_SECRET_LENGTH = 4  # a shorter value isn't a secret, and masking it would make every message unreadable
MIN_PREFIX_LENGTH = 8  # of a secret that is cut off, or that is searched in texts without blanks
MAX_QUOTING_DEPTH = 4  # how many times a text may have been quoted
# texts of a JSON secret that name things and give no access: error messages need them
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
    """A spelling of a secret, such as its base64. It must not stay in any text."""

    text: str
    search_prefix: str  # the shortest beginning of `text` that reveals the secret
    word_length: int = 0  # the length of an ordinary word at the beginning of `text`: alone it reveals nothing
    blanks_before: int = 0  # plus signs and spaces that the secret has before `text`
    blanks_after: int = 0


def find_secrets(value: str) -> Iterator[str]:
    """Yield the value and the secrets inside it: texts of a JSON document, and a header's value without its scheme."""
    for secret in {value, value.strip(), value.strip().rstrip("=")}:
        if len(secret) >= MIN_SECRET_LENGTH:
            yield secret
    if scheme := _AUTHORIZATION.match(value.strip()):
        yield value.strip()[scheme.end() :]
    for text in _json_texts(value):
        yield from {text, text.strip()}


def list_encodings(secret: str) -> Iterator[SecretEncoding]:
    """Yield the spellings of a secret. Those that are long enough are without blanks."""
    public = secret[: _public_length(secret)]
    for text, beginning in _plain_forms(secret, public):
        yield _plain_encoding(text, beginning)
    for text, beginning in _encoded_forms(secret, public):
        octets, prefix_length = text.encode(errors="replace"), _prefix_length(len(beginning.encode(errors="replace")))
        yield from _base64_forms(octets, prefix_length)
        for digits in (octets.hex(), octets.hex().upper()):
            yield SecretEncoding(digits, digits[: 2 * prefix_length])


def _prefix_length(public: int) -> int:
    return max(MIN_PREFIX_LENGTH, public + 1)


def _plain_encoding(text: str, public: str) -> SecretEncoding:
    word = _WORD.match(text)
    encoding = _blankless_encoding(text, _prefix_length(len(public)), word.end() if word else 0)
    if len(encoding.text) >= MIN_PREFIX_LENGTH:
        return encoding
    return SecretEncoding(text.replace("+", " "), text.replace("+", " "))


def _blankless_encoding(text: str, min_length: int, word: int = 0) -> SecretEncoding:
    """Return the spelling without its blanks."""
    leading_blanks = len(text) - len(text.lstrip(_EDGE_BLANKS))
    trailing_blanks = len(text) - len(text.rstrip(_EDGE_BLANKS))
    blankless_text = BLANKS.sub("", text)
    seed = blankless_text[: max(MIN_PREFIX_LENGTH, len(BLANKS.sub("", text[:min_length])))]
    return SecretEncoding(blankless_text, seed, word, leading_blanks, trailing_blanks)


def _plain_forms(secret: str, public: str) -> Iterator[tuple[str, str]]:
    """Yield the secret and its readable forms: with doubled quotes, misread, or with its own escapes decoded.

    A program that decodes an address decodes a secret's own escapes, too. Each form comes with its public
    beginning, such as a scheme.
    """
    yield secret, public
    for quote_mark in ("'", '"'):
        if quote_mark in secret:  # in CSV, SQL and YAML
            yield secret.replace(quote_mark, 2 * quote_mark), public.replace(quote_mark, 2 * quote_mark)
    if not secret.isascii():  # UTF-8 that was read as Latin-1
        yield _decode_as_latin_1(secret), _decode_as_latin_1(public)
    for _ in range(MAX_QUOTING_DEPTH):
        old_secret, secret, public = secret, decode_escapes(secret), decode_escapes(public)
        if secret == old_secret or len(secret) < MIN_PREFIX_LENGTH:
            return
        yield secret, public


def _decode_as_latin_1(text: str) -> str:
    return text.encode(errors="replace").decode("latin-1")


def _encoded_forms(secret: str, public: str) -> Iterator[tuple[str, str]]:
    """Yield the forms of the secret that base64 or hex may contain: plain, in JSON, or quoted.

    Each form comes with its public beginning, such as a scheme.
    """
    forms = {secret: public}
    encoders: tuple[Callable[[str], str], ...] = (
        lambda text: json.dumps(text)[1:-1],
        _encode_utf8_json,
        lambda text: quote(text, safe="", errors="replace"),
        lambda text: quote_plus(text, errors="replace"),
    )
    for encode in encoders:
        forms.setdefault(encode(secret), encode(public))
    yield from forms.items()


def _encode_utf8_json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _base64_forms(secret: bytes, min_length: int) -> Iterator[SecretEncoding]:
    """Yield the spellings of the secret inside the base64 of a longer text, for each of three possible offsets.

    Basic credentials are an example: the base64 of user:password. The characters at both ends also encode the
    neighbours, so they are left out.
    """
    for offset in range(3):
        padded_secret = bytes(offset) + secret
        start = (offset * 8 + 5) // 6
        public_length = ((offset + min_length) * 8 + 5) // 6 - start
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            form = encode(padded_secret).decode()[start : len(padded_secret) * 8 // 6]
            if len(form) > MIN_SECRET_LENGTH:  # a shorter one may be part of any text
                yield _blankless_encoding(form, public_length)


def _public_length(secret: str) -> int:
    """Return the length of the beginning that other secrets share: a scheme, a PEM head, a JSON opening."""
    if opening_match := _JSON_OPENING.match(secret):
        first = next(_json_texts(secret), None)
        position = secret.find(_encode_utf8_json(first)[:MIN_PREFIX_LENGTH]) if first else -1
        if first is None or position < 0:
            return opening_match.end()
        return position + _public_length(first)
    match = _PEM_HEAD.match(secret) or _SCHEME.match(secret)
    return match.end() if match else 0


def _json_texts(value: str) -> Iterator[str]:
    """Yield the texts of a JSON document that are secrets."""
    if not value.lstrip().startswith(("{", "[")):
        return
    with contextlib.suppress(ValueError, RecursionError):
        yield from _secret_texts(json.loads(value), field="")


def _secret_texts(value: object, field: str) -> Iterator[str]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _secret_texts(item, name)
    elif isinstance(value, list):
        for item in value:
            yield from _secret_texts(item, field)
    elif isinstance(value, str) and _is_secret(value, field):
        yield value
        yield from _json_texts(value)


def _is_secret(text: str, field: str) -> bool:
    if field in PUBLIC_FIELDS:
        return False
    if _SECRET_FIELD.search(field):
        return len(text) >= MIN_SECRET_LENGTH
    return len(text) >= MIN_PREFIX_LENGTH and not _PLAIN_NAME.fullmatch(text)


MASK = "***"
# the end of a secret that is cut off: perhaps a part of an escape, then the text's end, dots or a quote
_TRUNCATION = re.compile(
    r"(?:%[0-9A-Fa-f]?|\\[uUx]?[0-9A-Fa-f]{0,7}|&[#A-Za-z0-9]{0,31}|\ufffd)?"
    r"""(?:\s*(?:\Z|…|\.\.\.)|["'`”\r\n])"""
)


class Redactor:
    """A redactor that masks the secrets of one sync. Threads may share it."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets: set[str] = set()
        self._long_encodings: tuple[SecretEncoding, ...] = ()  # searched in texts without blanks
        self._short_encodings: tuple[SecretEncoding, ...] = ()
        for secret in secrets:
            self.add_secret(secret)

    def __repr__(self) -> str:
        return f"Redactor({len(self._secrets)} secrets)"

    def add_secret(self, secret: str) -> None:
        """Mask the secret from now on, with or without a line end that it has from a file."""
        new_secrets = set(find_secrets(secret)) - self._secrets
        if not new_secrets:
            return
        encodings = {new_encoding: None for value in new_secrets for new_encoding in list_encodings(value)}
        # new tuples, so that other threads never see one that is being changed
        self._long_encodings += tuple(encoding for encoding in encodings if len(encoding.text) >= MIN_PREFIX_LENGTH)
        self._short_encodings += tuple(encoding for encoding in encodings if len(encoding.text) < MIN_PREFIX_LENGTH)
        self._secrets |= new_secrets

    def redact(self, text: str) -> str:
        """Return the text with each secret masked."""
        if not (self._long_encodings or self._short_encodings):
            return text
        return _mask_spans(text, sorted(self._secret_spans(text)))

    def _secret_spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the spans of the text that have secrets; the spans may overlap."""
        layer = DecodedText(text)
        for _ in range(MAX_QUOTING_DEPTH + 1):
            spaced_text = layer.text.replace("+", " ")
            for secret in self._short_encodings:
                if secret.search_prefix in spaced_text:
                    yield from (layer.original_span(*span) for span in _find_whole(spaced_text, secret.text))
            blankless_layer = layer.remove_blanks()
            for secret in self._long_encodings:
                if secret.search_prefix in blankless_layer.text:
                    yield from (layer.original_span(*span) for span in _find_truncated(blankless_layer, layer, secret))
            decoded_layer = layer.decode_once()
            if decoded_layer.text == layer.text:
                return
            layer = decoded_layer


def _find_whole(text: str, secret_text: str) -> Iterator[tuple[int, int]]:
    start = text.find(secret_text)
    while start >= 0:
        yield start, start + len(secret_text)
        start = text.find(secret_text, start + len(secret_text))


def _find_truncated(
    blankless_layer: DecodedText, layer: DecodedText, secret: SecretEncoding
) -> Iterator[tuple[int, int]]:
    """Yield the spans of the layer that have the secret: whole, at least half of it, or a part that is cut off."""
    position = blankless_layer.text.find(secret.search_prefix)
    while position >= 0:
        length = _common_length(blankless_layer.text, position, secret)
        start, end = blankless_layer.source_span(position, position + length)
        if length == len(secret.text):
            yield _extend_to_edges(layer.text, start, end, secret)
        elif length != secret.word_length and (2 * length >= len(secret.text) or _TRUNCATION.match(layer.text, end)):
            yield start, end
        else:
            length = 1
        position = blankless_layer.text.find(secret.search_prefix, position + length)


def _extend_to_edges(text: str, start: int, end: int, secret: SecretEncoding) -> tuple[int, int]:
    """Return the span extended by the plus signs and spaces that the secret has at its ends."""
    first, last = max(start - secret.blanks_before, 0), end + secret.blanks_after
    head, tail = text[first:start], text[end:last]
    return start - len(head) + len(head.rstrip("+ ")), end + len(tail) - len(tail.lstrip("+ "))


def _common_length(text: str, start: int, secret: SecretEncoding) -> int:
    """Return how many characters of the secret the text has at `start`, where its search_prefix was found."""
    if text.startswith(secret.text, start):
        return len(secret.text)
    low, high = len(secret.search_prefix), len(secret.text) - 1
    while low < high:
        middle = (low + high + 1) // 2
        if text.startswith(secret.text[:middle], start):
            low = middle
        else:
            high = middle - 1
    return low


def _mask_spans(text: str, spans: list[tuple[int, int]]) -> str:
    """Return the text with a mask in place of each span. Spans that overlap share one mask."""
    chunks, position, last = [], 0, -1
    for start, end in spans:
        if start >= last:
            chunks += [text[position:start], MASK]
        last = position = max(end, last)
    return "".join([*chunks, text[position:]])
