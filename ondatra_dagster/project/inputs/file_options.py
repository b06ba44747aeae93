"""The options that files are read with: Spark takes any word, and is silent on one that it doesn't know."""

from collections.abc import Mapping

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
MISSPELLED = 0.75  # how like a known option an unknown one must be to be refused: Hadoop has words of its own


def misspelled(file_format: str, option: str) -> str | None:
    """The option that was most likely meant; None when this one may stand."""
    known = OPTIONS[file_format]
    if option.casefold() in map(str.casefold, known):
        return None
    return nearest(option, known, likeness=MISSPELLED)
