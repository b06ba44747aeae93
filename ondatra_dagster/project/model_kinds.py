"""The table of kinds: what each kind needs in the header, and which changes it leaves in the table's change feed.

`warehouse/kinds/` has the code that writes each kind. A test checks that both places have the same kinds.
"""

import dataclasses

from ondatra_dagster.row_changes import ChangeType

INSERT = ChangeType.INSERT
DELETE = ChangeType.DELETE
UPDATE = frozenset({ChangeType.UPDATE_PREIMAGE, ChangeType.UPDATE_POSTIMAGE})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind: a way to turn a query into a table."""

    name: str
    change_types: frozenset[ChangeType]
    key_headers: tuple[str, ...] = ()  # the header words that may name the key, the usual one first
    delivers_by_key: bool = False  # True: the delivery key is the value of the key; False: the rowid
    delivers_groups: bool = False  # a delivery key has any number of rows, which are replaced together
    # new rows replace old rows: deletes are sent before inserts, or the whole content at once with batch_size 0
    replaces_rows: bool = False
    keeps_versions: bool = False  # a key has many rows, each of them a version; they are sent together
    checks_nulls: bool = False  # rows without a key are invalid
    checks_duplicates: bool = False  # all rows of a key that occurs more than once are invalid
    own_columns: tuple[str, ...] = ()  # columns that the kind adds to those of the query, visible to readers
    # new rows are found by a comparison with the query's result on the previous inputs
    uses_input_baseline: bool = False
    # takes @incremental: the query reads only rows that are newer than its last results
    takes_incremental: bool = False
    has_query: bool = True  # if False, the file has column definitions, and there is nothing to push

    @property
    def needs_key(self) -> bool:
        return bool(self.key_headers)

    @property
    def has_invalid_table(self) -> bool:
        """Return whether the model's invalid rows are written to a second table."""
        return self.needs_key or not self.has_query

    @property
    def is_insert_only(self) -> bool:
        """Return whether the kind only inserts rows, so that written rows never change."""
        return self.change_types == {INSERT}


KINDS = {
    kind.name: kind
    for kind in (
        Kind(name="table", change_types=frozenset({INSERT, DELETE}), replaces_rows=True),
        Kind(name="append", change_types=frozenset({INSERT}), uses_input_baseline=True, takes_incremental=True),
        Kind(
            name="merge",
            change_types=frozenset({INSERT}) | UPDATE,
            key_headers=("unique_key",),
            delivers_by_key=True,
            checks_nulls=True,
            checks_duplicates=True,
            takes_incremental=True,
        ),
        Kind(
            name="tracked",
            change_types=frozenset({INSERT, DELETE}),
            key_headers=("group_key", "unique_key"),
            delivers_by_key=True,
            delivers_groups=True,
            checks_nulls=True,
        ),
        Kind(
            name="scd2",
            change_types=frozenset({INSERT}) | UPDATE,
            key_headers=("unique_key",),
            checks_nulls=True,
            checks_duplicates=True,
            keeps_versions=True,
            own_columns=("valid_from_snapshot", "valid_to_snapshot", "is_current"),
        ),
        Kind(
            name="partition",
            change_types=frozenset({INSERT, DELETE}),
            key_headers=("partitioned_by", "unique_key"),
            replaces_rows=True,
        ),
        Kind(name="events", change_types=frozenset({INSERT}), own_columns=("_extra",), has_query=False),
    )
}
