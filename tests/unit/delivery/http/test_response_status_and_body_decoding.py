"""The decoding of an answer's text, with a correct or a wrong charset."""

from collections.abc import Callable
from typing import Any

import pytest
from support.apis.raw_responses import build_response


def as_text(body: bytes, charset: str) -> bytes:
    return build_response(body, f"Content-Type: text/plain; charset={charset}")


@pytest.mark.parametrize(
    ("charset", "codec"),
    [
        ("UTF8", "utf-8"),
        ('"UTF-16"', "utf-16"),
        ("utf-16", "utf-16-le"),
        ("utf-16BE", "utf-16-be"),
        ("utf-32", "utf-32"),
        ("utf-32", "utf-32-le"),
        ("ISO8859-1", "latin-1"),
        ("iso-8859-15", "iso-8859-15"),
        ("'Windows-1252'", "cp1252"),
        ("win-1251", "cp1251"),
        ("us-ascii", "utf-8"),
        ("x-sjis", "shift_jis"),
        ("windows-31j", "cp932"),
        ("GB2312", "gb2312"),
        ("gb18030", "gb18030"),
        ("EUC_JP", "euc-jp"),
        ("ks_c_5601-1987", "euc-kr"),
        ("Big5-HKSCS", "big5hkscs"),
        ("koi8-r", "koi8-r"),
        ("iso-8859-2; charset=utf-16", "iso-8859-2"),
    ],
)
def test_a_charset_is_known_in_the_spellings_of_servers(
    push_response: Callable[..., Any], charset: str, codec: str
) -> None:
    """The body is decoded as the server encoded it."""
    letters = "aä漢Я한€"
    body = letters.encode(codec, errors="ignore")

    assert body.decode(codec) == push_response(as_text(body, charset))[1]


@pytest.mark.parametrize(
    "charset",
    [
        *("utf-7", "unicode_escape", "raw_unicode_escape", "punycode", "idna", "rot13", "zlib", "base64"),
        *("undefined", "mbcs", "aliases", "../../os", "x" * 10_000, "", '"', "a\x01b", "ä"),
    ],
)
def test_any_other_charset_is_read_as_utf_8(push_response: Callable[..., Any], charset: str) -> None:
    """Some of Python's codecs produce half characters, which can't be encoded again, or take hours."""
    body = rb"+2AA- \ud800 " + "ä".encode() + b"\xed\xa0\x80\xff"

    assert [200, "+2AA- \\ud800 ä\ufffd\ufffd\ufffd\ufffd", None] == push_response(as_text(body, charset))[:3]


@pytest.mark.parametrize(
    ("charset", "body"),
    [
        ("utf-16", b"\xff\xfe\x00\xd8\x00"),
        ("utf-16", b"\x00\xd8" * 10_000),
        ("utf-32", b"\xfe\xff\x00a\x00b"),
        ("utf-32", b"\xff\xff\xff\x7f" * 10_000),
        ("utf-8", b"\xed\xa0\xbd\xed\xb8\x80"),
        ("gb18030", b"\x81\x30\x81\x30\xff\x84\x31\xa4\x37"),
        ("cp1253", b"\x98\x8d\xff\x1b" * 10_000),
        ("iso-2022-jp", b"\x1b$B\xff\xff"),
    ],
)
def test_bytes_that_are_not_text_become_replacement_characters(
    push_response: Callable[..., Any], charset: str, body: bytes
) -> None:
    """A body may be cut off, or contain half of a character pair."""
    status, text, _, _ = push_response(as_text(body, charset))

    assert 200 == status
    assert "\ufffd" in text
    assert text == text.encode().decode()
