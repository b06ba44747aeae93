"""The options that files are read with: Spark takes any word, and is silent on one that it doesn't know."""

import enum
from collections.abc import Mapping, Sequence

from ondatra_dagster.project.suggestions import nearest

SCHEMA = "schema"  # ours: Spark has no option for it
OF_ALL = (
    *(SCHEMA, "basePath", "pathGlobFilter", "recursiveFileLookup", "modifiedBefore", "modifiedAfter"),
    *("ignoreCorruptFiles", "ignoreMissingFiles", "mergeSchema"),
)
OF_TEXTS = (
    *("encoding", "charset", "lineSep", "mode", "multiLine", "locale", "samplingRatio", "timeZone"),
    *("dateFormat", "timestampFormat", "timestampNTZFormat", "enableDateTimeParsingFallback"),
    *("columnNameOfCorruptRecord", "compression", "singleVariantColumn"),
)
OPTIONS: Mapping[str, tuple[str, ...]] = {
    "csv": (
        *OF_ALL,
        *OF_TEXTS,
        *("header", "inferSchema", "sep", "delimiter", "quote", "escape", "charToEscapeQuoteEscaping"),
        *("comment", "enforceSchema", "preferDate", "ignoreLeadingWhiteSpace", "ignoreTrailingWhiteSpace"),
        *("nullValue", "emptyValue", "nanValue", "positiveInf", "negativeInf", "maxColumns"),
        *("maxCharsPerColumn", "unescapedQuoteHandling", "extension"),
    ),
    "json": (
        *OF_ALL,
        *OF_TEXTS,
        *("primitivesAsString", "prefersDecimal", "allowComments", "allowUnquotedFieldNames"),
        *("allowSingleQuotes", "allowNumericLeadingZeros", "allowBackslashEscapingAnyCharacter"),
        *("allowUnquotedControlChars", "allowNonNumericNumbers", "dropFieldIfAllNull"),
    ),
    "parquet": (*OF_ALL, "datetimeRebaseMode", "int96RebaseMode"),
}
FORMATS = tuple(OPTIONS)
MODE = "mode"
CORRUPT_NAME = "columnNameOfCorruptRecord"
MISSPELLED = 0.75  # how like a known option an unknown one must be to be refused: Hadoop has words of its own


def misspelled(file_format: str, option: str) -> str | None:
    """The option that was most likely meant; None when this one may stand."""
    known = OPTIONS[file_format]
    if option.casefold() in map(str.casefold, known):
        return None
    return nearest(option, known, likeness=MISSPELLED)


class Mode(enum.StrEnum):
    """What becomes of a row that can't be parsed: Spark's words."""

    PERMISSIVE = "PERMISSIVE"  # nulls, and its text in _corrupt_record
    DROP = "DROPMALFORMED"
    FAIL = "FAILFAST"  # the default here, and not in Spark


def option(options: Sequence[tuple[str, str]], name: str) -> str | None:
    """Return an option's value, however its name is spelled."""
    return next((value for each, value in options if each.casefold() == name.casefold()), None)


def is_true(options: Sequence[tuple[str, str]], name: str) -> bool:
    """Return whether an option is on."""
    return (option(options, name) or "").strip().casefold() == "true"


def mode_of(options: Sequence[tuple[str, str]]) -> Mode:
    """Return the mode that the options ask for; raises ValueError for a word that is none."""
    return Mode((option(options, MODE) or Mode.FAIL).strip().upper())
