"""The charsets in which an answer is read; any other name means UTF-8.

Other codecs of Python aren't for answers: punycode takes hours for 50 MB, utf-7 makes half characters.
"""

import codecs
import encodings
import re
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
_NAMES = {
    **{alias: codec for alias, codec in aliases.items() if codec in _CODECS},
    **{codec: codec for codec in _CODECS},
    # names that servers use and Python lacks
    "iso_8859_8_i": "iso8859_8",
    "windows_31j": "cp932",
    "windows_949": "cp949",
    "cn_big5": "big5",
}
# their decoders raise without a byte order mark
_MARKS = {
    "utf_16": (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE),
    "utf_32": (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE),
}
_CHARSET = re.compile(r"(?:^|[;,\s])charset\s*=\s*[\"']?([\w.:+-]{1,40})[\"']?(?=[;,\s]|$)", re.IGNORECASE)
_WINDOWS = re.compile(r"(?:windows|win|cp)_?(874|125[0-8])")


def new_decoder(content_type: str, begin: bytes) -> codecs.IncrementalDecoder:
    """Return the decoder for a body with this Content-Type. Bytes that are no text become U+FFFD."""
    name = _codec_name(content_type)
    if name in _MARKS and not begin.startswith(_MARKS[name]):
        name = f"{name}_le"  # browsers do so too
    return codecs.getincrementaldecoder(name)(errors="replace")


def _codec_name(content_type: str) -> str:
    charset = _CHARSET.search(content_type)
    if charset is None:
        return "utf_8"
    name = encodings.normalize_encoding(charset[1]).lower().removeprefix("x_")
    if windows := _WINDOWS.fullmatch(name):
        return f"cp{windows[1]}"
    return _NAMES.get(name, "utf_8")
