"""The escaping of log lines, so that no row value or response can forge a log record or control a terminal."""

import logging
import re
import traceback

CONTINUATION_PREFIX = "    | "  # the prefix of each further line of a record
# control characters except tab and line feed; separators, direction marks, surrogates
_CONTROL_CHARACTERS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def escape_log_text(text: str) -> str:
    """Return the text as one log record: control characters are escaped, and each further line has a prefix."""
    lines = text.replace("\r\n", "\n").split("\n")
    return f"\n{CONTINUATION_PREFIX}".join(_CONTROL_CHARACTERS.sub(_escape_character, line) for line in lines)


def format_traceback(error: BaseException) -> str:
    """Return the error's traceback as a log record that ends with a line break."""
    return escape_log_text("".join(traceback.format_exception(error)).rstrip("\n")) + "\n"


class EscapingFormatter(logging.Formatter):
    """A log formatter that escapes the record's text and its traceback."""

    def format(self, record: logging.LogRecord) -> str:
        return escape_log_text(super().format(record))


def _escape_character(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape", "surrogatepass").decode("ascii")
