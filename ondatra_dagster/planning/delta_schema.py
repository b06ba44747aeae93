"""How Delta writes a table's columns down, and which of them are ours alone."""

from typing import Any

from ondatra_dagster.project.sql.columns import RESERVED_PREFIX

ROWID = "__ondatra_rowid"  # a Delta identity column: a row keeps its number while it lives
CONTENT_HASH = "_content_hash"  # of a tracked group
PARTITION = "__ondatra_partition"  # a digest of a partition's key, which names its folder
REASON = "__ondatra_reason"  # why a row was set aside

# what Delta adds to a row that its change feed tells
CHANGE_TYPE, COMMIT_VERSION = "_change_type", "_commit_version"
FEED_COLUMNS = frozenset({CHANGE_TYPE, COMMIT_VERSION, "_commit_timestamp"})

SPARK_NAMES = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}


def is_hidden(name: str) -> bool:
    """Whether a column is kept from every reader through a model, and from pushed rows."""
    return name == CONTENT_HASH or name.startswith(RESERVED_PREFIX)


def spark_type(written: Any) -> str:
    """A type as Spark spells it: array<string>, struct<a:int>."""
    if isinstance(written, str):
        return SPARK_NAMES.get(written, written)
    if written["type"] == "array":
        return f"array<{spark_type(written['elementType'])}>"
    if written["type"] == "map":
        return f"map<{spark_type(written['keyType'])},{spark_type(written['valueType'])}>"
    fields = ",".join(f"{field['name']}:{spark_type(field['type'])}" for field in written["fields"])
    return f"struct<{fields}>"
