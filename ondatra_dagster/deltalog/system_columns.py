"""The names of the columns that ondatra and Delta add to the user's own columns of a table."""

from ondatra_dagster.project.sql.output_columns import RESERVED_PREFIX

ROWID_COLUMN = "__ondatra_rowid"  # a Delta identity column: a row keeps its number while it lives
CONTENT_HASH_COLUMN = "_content_hash"  # of a tracked group
PARTITION_COLUMN = "__ondatra_partition"  # a digest of a partition's key, which names its folder
REASON_COLUMN = "__ondatra_reason"  # why a row was set aside


# what Delta adds to a row that its change feed tells
CHANGE_TYPE_COLUMN, COMMIT_VERSION_COLUMN = "_change_type", "_commit_version"
FEED_COLUMNS = frozenset({CHANGE_TYPE_COLUMN, COMMIT_VERSION_COLUMN, "_commit_timestamp"})


def is_hidden_column(name: str) -> bool:
    """Whether a column is kept from every reader through a model, and from pushed rows."""
    return name == CONTENT_HASH_COLUMN or name.startswith(RESERVED_PREFIX)
