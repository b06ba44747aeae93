"""The options for reading files. Spark accepts any option name, and doesn't report an unknown one."""

import enum
from collections.abc import Mapping, Sequence

from ondatra_dagster.project.spelling_suggestions import find_nearest

SCHEMA_OPTION = "schema"  # an option of ondatra, not of Spark
COMMON_OPTIONS = (
    *(SCHEMA_OPTION, "basePath", "pathGlobFilter", "recursiveFileLookup", "modifiedBefore", "modifiedAfter"),
    *("ignoreCorruptFiles", "ignoreMissingFiles", "mergeSchema"),
)
TEXT_FORMAT_OPTIONS = (
    *("encoding", "charset", "lineSep", "mode", "multiLine", "locale", "samplingRatio", "timeZone"),
    *("dateFormat", "timestampFormat", "timestampNTZFormat", "enableDateTimeParsingFallback"),
    *("columnNameOfCorruptRecord", "compression", "singleVariantColumn"),
)
OPTIONS_BY_FORMAT: Mapping[str, tuple[str, ...]] = {
    "csv": (
        *COMMON_OPTIONS,
        *TEXT_FORMAT_OPTIONS,
        *("header", "inferSchema", "sep", "delimiter", "quote", "escape", "charToEscapeQuoteEscaping"),
        *("comment", "enforceSchema", "preferDate", "ignoreLeadingWhiteSpace", "ignoreTrailingWhiteSpace"),
        *("nullValue", "emptyValue", "nanValue", "positiveInf", "negativeInf", "maxColumns"),
        *("maxCharsPerColumn", "unescapedQuoteHandling", "extension"),
    ),
    "json": (
        *COMMON_OPTIONS,
        *TEXT_FORMAT_OPTIONS,
        *("primitivesAsString", "prefersDecimal", "allowComments", "allowUnquotedFieldNames"),
        *("allowSingleQuotes", "allowNumericLeadingZeros", "allowBackslashEscapingAnyCharacter"),
        *("allowUnquotedControlChars", "allowNonNumericNumbers", "dropFieldIfAllNull"),
    ),
    "parquet": (*COMMON_OPTIONS, "datetimeRebaseMode", "int96RebaseMode"),
}
FILE_FORMATS = tuple(OPTIONS_BY_FORMAT)
MODE_OPTION = "mode"
CORRUPT_COLUMN_OPTION = "columnNameOfCorruptRecord"
# an unknown option that is at least this similar to a known one is refused; Hadoop has further options
MISSPELLING_LIKENESS = 0.75


def suggest_option(file_format: str, option: str) -> str | None:
    """Return the known option that the user most likely meant; None if the option is accepted."""
    known_options = OPTIONS_BY_FORMAT[file_format]
    if option.casefold() in map(str.casefold, known_options):
        return None
    return find_nearest(option, known_options, likeness=MISSPELLING_LIKENESS)


class ParseMode(enum.StrEnum):
    """A way to treat a row that can't be parsed, with Spark's name for it."""

    PERMISSIVE = "PERMISSIVE"  # the row gets nulls, and its text is in the column _corrupt_record
    DROP = "DROPMALFORMED"
    FAIL = "FAILFAST"  # the default of ondatra, but not of Spark


def option_value(options: Sequence[tuple[str, str]], name: str) -> str | None:
    """Return the value of the option with this name in any case; None if it isn't set."""
    return next((value for option_name, value in options if option_name.casefold() == name.casefold()), None)


def is_option_on(options: Sequence[tuple[str, str]], name: str) -> bool:
    """Return whether the option's value is true."""
    return (option_value(options, name) or "").strip().casefold() == "true"


def read_parse_mode(options: Sequence[tuple[str, str]]) -> ParseMode:
    """Return the parse mode that the options set, or the default; raise ValueError for an unknown mode."""
    return ParseMode((option_value(options, MODE_OPTION) or ParseMode.FAIL).strip().upper())
