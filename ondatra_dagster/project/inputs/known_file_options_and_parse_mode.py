"""The options that files are read with: Spark takes any word, and is silent on one that it doesn't know."""

import enum
from collections.abc import Mapping, Sequence

from ondatra_dagster.project.spelling_suggestions import find_nearest

SCHEMA_OPTION = "schema"  # ours: Spark has no option for it
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
MISSPELLING_LIKENESS = 0.75  # how like a known option an unknown one must be to be refused: Hadoop has words of its own


def suggest_option(file_format: str, option: str) -> str | None:
    """The option that was most likely meant; None when this one may stand."""
    known = OPTIONS_BY_FORMAT[file_format]
    if option.casefold() in map(str.casefold, known):
        return None
    return find_nearest(option, known, likeness=MISSPELLING_LIKENESS)


class ParseMode(enum.StrEnum):
    """What becomes of a row that can't be parsed: Spark's words."""

    PERMISSIVE = "PERMISSIVE"  # nulls, and its text in _corrupt_record
    DROP = "DROPMALFORMED"
    FAIL = "FAILFAST"  # the default here, and not in Spark


def option_value(options: Sequence[tuple[str, str]], name: str) -> str | None:
    """Return an option's value, however its name is spelled."""
    return next((value for each, value in options if each.casefold() == name.casefold()), None)


def is_option_on(options: Sequence[tuple[str, str]], name: str) -> bool:
    """Return whether an option is on."""
    return (option_value(options, name) or "").strip().casefold() == "true"


def read_parse_mode(options: Sequence[tuple[str, str]]) -> ParseMode:
    """Return the mode that the options ask for; raises ValueError for a word that is none."""
    return ParseMode((option_value(options, MODE_OPTION) or ParseMode.FAIL).strip().upper())
