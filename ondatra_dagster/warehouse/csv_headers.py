"""A CSV file's header and the columns that it is read as: Spark goes by position, and looks at no name.

So columns that were swapped, in one file of a folder or against a schema, would be taken for each other.
"""

import re
from collections.abc import Mapping
from urllib.parse import unquote

from ondatra_dagster.wording import count

OPTION = "enforceSchema"  # Spark's: false has it compare the names, and refuse what differs
NAMES = re.compile(
    r"CSV header does not conform to the schema\.\s+Header: (?P<header>.*)\s+Schema: (?P<schema>.*)"
    r"\s+Expected: .*\s+CSV file: (?P<file>.*)"
)
LENGTHS = re.compile(
    r"Number of column in CSV header is not equal to number of fields in the schema:"
    r"\s+Header length: (?P<header>\d+), schema size: (?P<schema>\d+)\s+CSV file: (?P<file>.*)"
)
REMEDY = f"name them as the file does, or say '{OPTION}' = 'true' to go by their position alone"


def comparing_names(options: Mapping[str, str]) -> Mapping[str, str]:
    """The options, with that one where the user says nothing else."""
    return options if OPTION.casefold() in map(str.casefold, options) else {OPTION: "false", **options}


def said_of_header(text: str) -> str | None:
    """The sentence for a header that Spark refused; None when its failure was another."""
    if found := NAMES.search(text):
        return f"{_name(found)} has the columns {found['header']}, where {found['schema']} are read; {REMEDY}"
    if found := LENGTHS.search(text):
        columns = count(int(found["header"]), "column")
        return f"{_name(found)} has {columns}, where {found['schema']} are read; {REMEDY}"
    return None


def _name(found: re.Match[str]) -> str:
    return unquote(found["file"].strip().rpartition("/")[2])
