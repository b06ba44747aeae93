"""The digest of a whole Parquet file, kept in its footer: no changed byte is read as other data.

Page checksums leave out the footer and the pages' headers. The digest is of all bytes of the file, its own
place taken as zeros. It is one more of the key-value pairs, which all readers of Parquet pass over.
"""

import hashlib
from collections.abc import Iterator
from typing import BinaryIO, Final

import pyarrow as pa

KEY: Final = "ondatra.digest"
_LENGTH = 32  # hexadecimal digits
UNSIGNED: Final = "0" * _LENGTH
# how Thrift spells the pair: its key, then a field of text (0x18) and how long that is
_BEFORE = KEY.encode() + bytes((0x18, _LENGTH))
_END = 8  # bytes after the footer: its length, and the magic number
_CHUNK = 8 << 20  # bytes: a file of records is a few requests to a bucket


class DigestError(pa.ArrowInvalid):  # type: ignore[misc]  # pyarrow has no types
    """The bytes of a file aren't those that were written."""


def sign(file: BinaryIO) -> None:
    """Write the digest of a Parquet file, which is open to read and write, to where `UNSIGNED` is."""
    place, digest = _compute(file)
    file.seek(place)
    file.write(digest)
    file.seek(0, 2)


def verify(file: BinaryIO) -> None:
    """Raise DigestError unless all bytes are as they were written; the file is then at its beginning."""
    place, digest = _compute(file)
    file.seek(place)
    if file.read(_LENGTH) != digest:
        raise DigestError("its digest shows that it is damaged")
    file.seek(0)


def identify(file: BinaryIO) -> tuple[int, bytes]:
    """Return a file's size and the digest in it, not verified; the file is then at its beginning."""
    place, size = _place(file), file.seek(0, 2)
    file.seek(place)
    digest = file.read(_LENGTH)
    file.seek(0)
    return size, digest


def _compute(file: BinaryIO) -> tuple[int, bytes]:
    """Return where the digest's place begins, and the digest."""
    place = _place(file)
    digest = hashlib.blake2b(digest_size=_LENGTH // 2)
    file.seek(0)
    for chunk in _chunks(file, place):
        digest.update(chunk)
    file.seek(place + _LENGTH)
    digest.update(UNSIGNED.encode())
    for chunk in _chunks(file, None):
        digest.update(chunk)
    return place, digest.hexdigest().encode()


def _place(file: BinaryIO) -> int:
    size = file.seek(0, 2)
    file.seek(max(size - _END, 0))
    end = file.read(_END)
    footer = int.from_bytes(end[:4], "little")
    if len(end) < _END or footer + _END > size:
        raise DigestError("it has no footer")
    file.seek(size - _END - footer)
    # of several the last: what is before it may hold texts of the user's
    found = file.read(footer).rfind(_BEFORE)
    if found < 0:
        raise DigestError("it has no digest")
    return size - _END - footer + found + len(_BEFORE)


def _chunks(file: BinaryIO, upto: int | None) -> Iterator[bytes]:
    """The bytes from where the file is, up to a place or to its end."""
    left = upto
    while chunk := file.read(_CHUNK if left is None else min(left, _CHUNK)):
        yield chunk
        if left is not None:
            left -= len(chunk)
