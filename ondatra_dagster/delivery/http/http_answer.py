"""Reads one answer: bounded in size, also once it is unpacked, and always as text."""

import dataclasses
import itertools
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping

from ondatra_dagster.delivery.http.charsets import new_decoder

MAX_BYTES = 50_000_000
_PIECE_BYTES = 1_000_000
_GZIP_OR_ZLIB = 47  # zlib's own name for: tell by the first bytes
_GZIPS_FIRST_BYTE = 0x1F


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """What became of a call; status_code 0: there is no answer, and the text says why."""

    status_code: int
    text: str
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    refused: bool = False  # by us: no try can make it better
    uncertain: bool = False  # no success, but nobody answered at some try: it may have been done all the same
    is_unsent: bool = False  # there was no token to send it with

    @property
    def ok(self) -> bool:
        return not self.refused and 200 <= self.status_code < 300

    @property
    def shown_status(self) -> int:
        """What push() sees: an answer that couldn't be taken counts as none."""
        return 0 if self.refused else self.status_code


class UnreadableError(Exception):
    """The answer came, but can't be taken."""


def read_text(
    chunks: Iterable[bytes], headers: Mapping[str, str], *, check_time: Callable[[], None] = lambda: None
) -> str:
    """Return the body of an answer, or raise UnreadableError. `check_time` raises when the time is up."""
    body = bytearray()
    for piece in _unpacked(chunks, headers.get("content-encoding", "identity").strip().lower()):
        body += piece
        if len(body) > MAX_BYTES:
            raise UnreadableError(f"the answer has more than {MAX_BYTES // 1_000_000} MB and was not read")
        check_time()
    decoder = new_decoder(headers.get("content-type", ""), bytes(body[:4]))
    texts = []
    for start in range(0, len(body), _PIECE_BYTES):
        texts.append(decoder.decode(bytes(body[start : start + _PIECE_BYTES])))
        check_time()
    # a byte order mark is no part of the text, and JSON has none
    return "".join([*texts, decoder.decode(b"", final=True)]).removeprefix("\ufeff")


def _unpacked(chunks: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    chunks = filter(None, chunks)
    first = next(chunks, None)
    if first is None:  # a 204 has nothing that could be unpacked, whatever it says of its packing
        return
    chunks = itertools.chain([first], chunks)
    if encoding in {"identity", ""}:
        yield from chunks
        return
    if encoding not in {"gzip", "x-gzip", "deflate"}:
        raise UnreadableError(f"the answer is packed as {encoding!r}, which was not asked for")
    is_whole = yield from _inflated(chunks)
    if not is_whole and encoding != "deflate":
        raise UnreadableError("the answer ends in the middle of what was packed")


def _inflated(chunks: Iterable[bytes]) -> Generator[bytes, None, bool]:
    """What was packed, in pieces, and whether all of it came.

    Several gzips may stand one after the other; what comes after them and is none is dropped, as browsers do.
    """
    unpack = zlib.decompressobj(_GZIP_OR_ZLIB)
    try:
        for chunk in chunks:
            # in pieces: one small chunk may hold a thousand times its size
            rest = chunk
            while rest:
                if unpack.eof:
                    if rest[0] != _GZIPS_FIRST_BYTE:
                        return True
                    unpack = zlib.decompressobj(_GZIP_OR_ZLIB)
                yield unpack.decompress(rest, _PIECE_BYTES)
                rest = unpack.unconsumed_tail or unpack.unused_data
    except zlib.error as error:
        raise UnreadableError(f"the answer can't be unpacked: {error}") from error
    return unpack.eof
