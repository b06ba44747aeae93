"""An HTTP response: its body, decompressed and decoded within limits, and its meaning for push().

An unknown charset is read as UTF-8. Python's other codecs aren't used: punycode takes hours for 50 MB, and
utf-7 makes half characters.
"""

import codecs
import dataclasses
import encodings
import itertools
import re
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from encodings.aliases import aliases

_CODECS = frozenset(
    (
        *("utf_8", "utf_16", "utf_16_le", "utf_16_be", "utf_32", "utf_32_le", "utf_32_be"),
        *("latin_1", *(f"iso8859_{number}" for number in range(2, 17) if number != 12)),
        *(f"cp{number}" for number in (437, 850, 852, 866, 874, *range(1250, 1259))),
        *("koi8_r", "koi8_u", "mac_roman", "mac_cyrillic", "tis_620"),
        *("shift_jis", "cp932", "euc_jp", "iso2022_jp", "gb2312", "gbk", "gb18030", "hz"),
        *("big5", "big5hkscs", "cp950", "euc_kr", "cp949", "johab", "iso2022_kr"),
    )
)
_CODECS_BY_NAME = {
    **{alias: codec for alias, codec in aliases.items() if codec in _CODECS},
    **{codec: codec for codec in _CODECS},
    # names that servers use and Python doesn't know
    "iso_8859_8_i": "iso8859_8",
    "windows_31j": "cp932",
    "windows_949": "cp949",
    "cn_big5": "big5",
}


# the decoders of these codecs raise an error if there is no byte order mark
_BYTE_ORDER_MARKS = {
    "utf_16": (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE),
    "utf_32": (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE),
}
_CHARSET = re.compile(r"(?:^|[;,\s])charset\s*=\s*[\"']?([\w.:+-]{1,40})[\"']?(?=[;,\s]|$)", re.IGNORECASE)
_WINDOWS_NAME = re.compile(r"(?:windows|win|cp)_?(874|125[0-8])")


def new_decoder(content_type: str, first_bytes: bytes) -> codecs.IncrementalDecoder:
    """Return the decoder for a body with this Content-Type. It replaces bytes that aren't text with U+FFFD."""
    name = _codec_name(content_type)
    if name in _BYTE_ORDER_MARKS and not first_bytes.startswith(_BYTE_ORDER_MARKS[name]):
        name = f"{name}_le"  # as browsers do
    return codecs.getincrementaldecoder(name)(errors="replace")


def _codec_name(content_type: str) -> str:
    charset = _CHARSET.search(content_type)
    if charset is None:
        return "utf_8"
    name = encodings.normalize_encoding(charset[1]).lower().removeprefix("x_")
    if windows := _WINDOWS_NAME.fullmatch(name):
        return f"cp{windows[1]}"
    return _CODECS_BY_NAME.get(name, "utf_8")


NO_RESPONSE = 0  # in place of a status code
MAX_RESPONSE_BYTES = 50_000_000
_CHUNK_BYTES = 1_000_000
_GZIP_OR_ZLIB = 47  # zlib's value for: detect the format by the first bytes
_GZIP_FIRST_BYTE = 0x1F


@dataclasses.dataclass(frozen=True, slots=True)
class HttpResponse:
    """The response to a call. Without an answer its status code is NO_RESPONSE, and its text gives the reason."""

    status_code: int
    text: str
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    is_refused: bool = False  # this client refused the call or its answer: no retry can help
    is_uncertain: bool = False  # the call failed, but an attempt without an answer may have taken effect
    is_unsent: bool = False  # the request wasn't sent, because there was no token for it

    @property
    def is_success(self) -> bool:
        return not self.is_refused and 200 <= self.status_code < 300

    @property
    def is_retryable(self) -> bool:
        """Return whether the server may accept the same request later: after no answer, 408, 429 and 5xx."""
        return self.status_code in {NO_RESPONSE, 408, 429} or self.status_code >= 500

    @property
    def status_for_push(self) -> int:
        """Return the status code that push() gets: NO_RESPONSE if this client refused the call or its answer."""
        return NO_RESPONSE if self.is_refused else self.status_code


class UnreadableResponseError(Exception):
    """An error of an answer that arrived but can't be read."""


def read_response_text(
    chunks: Iterable[bytes], headers: Mapping[str, str], *, check_time: Callable[[], None] = lambda: None
) -> str:
    """Return the decoded body of an answer, or raise UnreadableResponseError.

    `check_time` raises an error after the deadline.
    """
    body = bytearray()
    for chunk in _decompress(chunks, headers.get("content-encoding", "identity").strip().lower()):
        body += chunk
        if len(body) > MAX_RESPONSE_BYTES:
            raise UnreadableResponseError(
                f"the response has more than {MAX_RESPONSE_BYTES // 1_000_000} MB and was not read"
            )
        check_time()
    decoder = new_decoder(headers.get("content-type", ""), bytes(body[:4]))
    texts = []
    for start in range(0, len(body), _CHUNK_BYTES):
        texts.append(decoder.decode(bytes(body[start : start + _CHUNK_BYTES])))
        check_time()
    # a byte order mark isn't part of the text, and JSON doesn't allow one
    return "".join([*texts, decoder.decode(b"", final=True)]).removeprefix("\ufeff")


def _decompress(chunks: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    chunks = filter(None, chunks)
    first_chunk = next(chunks, None)
    if first_chunk is None:  # a 204 has no body to decompress, whatever its headers say
        return
    chunks = itertools.chain([first_chunk], chunks)
    if encoding in {"identity", ""}:
        yield from chunks
        return
    if encoding not in {"gzip", "x-gzip", "deflate"}:
        raise UnreadableResponseError(f"the response is compressed as {encoding!r}, which was not requested")
    is_whole = yield from _inflate(chunks)
    if not is_whole and encoding != "deflate":
        raise UnreadableResponseError("the compressed response ends too early")


def _inflate(chunks: Iterable[bytes]) -> Generator[bytes, None, bool]:
    """Yield the decompressed chunks, and return whether the body is complete.

    There may be several gzip streams in a row; other data after them is ignored, as browsers do.
    """
    unpack = zlib.decompressobj(_GZIP_OR_ZLIB)
    try:
        for chunk in chunks:
            # in chunks: one small chunk may expand to a thousand times its size
            rest = chunk
            while rest:
                if unpack.eof:
                    if rest[0] != _GZIP_FIRST_BYTE:
                        return True
                    unpack = zlib.decompressobj(_GZIP_OR_ZLIB)
                yield unpack.decompress(rest, _CHUNK_BYTES)
                rest = unpack.unconsumed_tail or unpack.unused_data
    except zlib.error as error:
        raise UnreadableResponseError(f"the response can't be decompressed: {error}") from error
    return unpack.eof
