"""The options for reading files. Spark accepts any option name, and doesn't report an unknown one."""

import enum
from collections.abc import Mapping, Sequence

from ondatra_dagster.project.spelling_suggestions import find_nearest

SCHEMA_OPTION = "schema"  # our own: Spark has no such option
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
MISSPELLING_LIKENESS = 0.75  # the similarity to a known option from which an unknown one is refused; Hadoop has others


def suggest_option(file_format: str, option: str) -> str | None:
    """Return the option that was most likely meant; None if this one is accepted."""
    known_options = OPTIONS_BY_FORMAT[file_format]
    if option.casefold() in map(str.casefold, known_options):
        return None
    return find_nearest(option, known_options, likeness=MISSPELLING_LIKENESS)


class ParseMode(enum.StrEnum):
    """The ways to treat a row that can't be parsed, in Spark's words."""

    PERMISSIVE = "PERMISSIVE"  # the row gets nulls, and its text in _corrupt_record
    DROP = "DROPMALFORMED"
    FAIL = "FAILFAST"  # the default of ondatra, but not of Spark


def option_value(options: Sequence[tuple[str, str]], name: str) -> str | None:
    """Return an option's value. The case of its name is ignored."""
    return next((value for option_name, value in options if option_name.casefold() == name.casefold()), None)


def is_option_on(options: Sequence[tuple[str, str]], name: str) -> bool:
    """Return whether an option is on."""
    return (option_value(options, name) or "").strip().casefold() == "true"


def read_parse_mode(options: Sequence[tuple[str, str]]) -> ParseMode:
    """Return the mode of the options; raise ValueError for an unknown mode."""
    return ParseMode((option_value(options, MODE_OPTION) or ParseMode.FAIL).strip().upper())
