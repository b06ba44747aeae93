"""A reader of a Delta table's log: its newest version, the run that made it, and its columns.

It needs no JVM and no Spark, and writes nothing. It follows Delta's protocol, so any program may have written
the table. The warehouse reads the rows.
"""

import contextlib
import dataclasses
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, cast

import orjson

from ondatra_dagster.deltalog.commit_user_metadata import CommitMetadata, is_from_newer_version
from ondatra_dagster.deltalog.log_storage import LogStorage, open_log
from ondatra_dagster.errors import WarehouseError
from ondatra_dagster.project.sql.output_and_system_columns import is_hidden_column
from ondatra_dagster.row_changes import Column

COMMIT_FILE = re.compile(r"(\d{20})\.json")
CHECKPOINT_FILE = re.compile(r"(\d{20})\.checkpoint(?:\..+)?\.(parquet|json)")
FILE_ACTION = re.compile(rb'\s*\{\s*"(?:add|remove)"')
FEED_ACTION = re.compile(rb'\s*\{\s*"(?:add|remove|cdc)"')
COMMIT_INFO_ACTION = re.compile(rb'\s*\{\s*"(?:commitInfo|metaData)"')
TRANSACTION_ACTION = re.compile(rb'\s*\{\s*"txn"')
DATA_CHANGE = re.compile(rb'"dataChange"\s*:\s*true')
CLONE_ORIGIN_PROPERTY = "ondatra.goes_on_from"  # a clone's property: the id and version of its original
INPUT_BASELINE_PROPERTY = "ondatra.counts_from"  # a definition, and versions of the inputs that the definition added
Action: TypeAlias = dict[str, Any]  # a parsed line of a commit, or the value in it


class CloneOrigin(NamedTuple):
    """The original of a clone: its table id and the version that was cloned."""

    table_id: str
    log_version: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """The current state of a table, according to its log."""

    table_id: str
    version: int  # the newest commit that changed rows; if none did, the one that created the table
    log_version: int  # the newest commit of any kind
    commit_metadata: CommitMetadata | None  # of `version`
    columns: tuple[Column, ...]  # without the hidden ones
    properties: Mapping[str, str]
    metrics: Mapping[str, str]  # what Spark counted when it wrote `version`
    partition_columns: tuple[str, ...] = ()
    changed_at: datetime | None = None  # when `version` was written, according to its writer
    is_from_newer_version: bool = False  # whether a newer ondatra than this wrote `version`

    @property
    def clone_origin(self) -> CloneOrigin | None:
        """Return the table from which a dry run cloned this table; None if this table isn't a clone."""
        table_id, _, version = self.properties.get(CLONE_ORIGIN_PROPERTY, "").rpartition("@")
        return CloneOrigin(table_id, int(version)) if table_id else None

    @property
    def version_offset(self) -> int:
        """Return the number to add to a clone's versions to get the original's; 0 if the table isn't a clone."""
        return self.clone_origin.log_version if self.clone_origin else 0


def read_table_state(table: str | Path) -> TableState | None:
    """Return the table's state, or None if there is no Delta table."""
    log = open_log(table)
    metadata: Action | None = None
    commit: Action = {}
    last_change: int | None = None
    names = log.list_files()
    commits, checkpoint = list_commit_versions(names), max(_find_checkpoints(names), default=None)
    for version in commits:
        actions = read_commit(log, version)
        metadata = metadata or actions.get("metaData")
        if last_change is None and (actions["changes_rows"] or version == 0):
            last_change, commit = version, actions.get("commitInfo", {})
        if metadata is not None and last_change is not None:
            break
    newest_version = max([*commits[:1], checkpoint.version] if checkpoint else commits[:1], default=None)
    if newest_version is None:
        return None
    metadata = metadata or _read_newest_metadata(log, _find_checkpoints(names))  # old commits were removed
    if metadata is None:
        raise WarehouseError(f"{log} names no columns: the table is broken; restore it, or remove its folder")
    written_at = commit.get("timestamp")
    return TableState(
        table_id=metadata["id"],
        # the commit that changed rows was removed, so take the oldest one that is left
        version=(commits[-1] if commits else newest_version) if last_change is None else last_change,
        log_version=newest_version,
        commit_metadata=CommitMetadata.load(commit.get("userMetadata")),
        columns=_parse_columns(metadata),
        properties=metadata.get("configuration", {}),
        metrics=commit.get("operationMetrics", {}),
        partition_columns=tuple(metadata.get("partitionColumns") or ()),
        changed_at=None if written_at is None else datetime.fromtimestamp(written_at / 1000, UTC),
        is_from_newer_version=is_from_newer_version(commit.get("userMetadata")),
    )


def read_commit_user_metadata(table: str | Path) -> Iterator[str]:
    """Yield the user metadata of each commit that has some, newest first. Yield nothing if there is no table."""
    log = open_log(table)
    for version in list_commit_versions(log.list_files()):
        note = read_commit(log, version).get("commitInfo", {}).get("userMetadata")
        if note:
            yield note


def is_changed_by_another(table: str | Path, *, after: int, definition: str) -> bool:
    """Return whether a commit after the version `after` changed rows and has another definition than this one."""
    log = open_log(table)
    for version in itertools.takewhile(lambda version: version > after, list_commit_versions(log.list_files())):
        commit = read_commit(log, version)
        note = CommitMetadata.load(commit.get("commitInfo", {}).get("userMetadata"))
        if commit["changes_rows"] and note and note.definition != definition:
            return True
    return False


def read_last_transaction(table: str | Path, numbering: str) -> int | None:
    """Return the number of the newest transaction in the table that has this numbering; None if there is none.

    A writer stores the number of what it wrote in its commit. It reads this number here to know where to continue.
    """
    log = open_log(table)
    names = log.list_files()
    checkpoint = max(_find_checkpoints(names), default=None)
    for version in list_commit_versions(names):
        if checkpoint and version <= checkpoint.version:
            break
        for line in _read_commit_lines(log, version):
            if (
                TRANSACTION_ACTION.match(line)
                and (txn := _parse_action(log, version, line)["txn"])["appId"] == numbering
            ):
                return int(txn["version"])
    if checkpoint is None:
        return None
    checkpoint_files = [
        checkpoint_file.name
        for checkpoint_file in _find_checkpoints(names)
        if checkpoint_file.version == checkpoint.version
    ]
    rows = (row for name in checkpoint_files for row in _read_checkpoint_rows(log.read_file(name), name, "txn"))
    numbers = [int(row["version"]) for row in rows if row and row["appId"] == numbering]
    return max(numbers, default=None)


def split_feed_range(table: str | Path, *, after: int, upto: int) -> list[tuple[int, int]]:
    """Split (after, upto] into ranges whose change feeds can be read.

    A range ends before a commit that removes or changes a column.
    """
    log = open_log(table)
    range_ends: list[int] = []
    fields: Mapping[str, tuple[object, ...]] | None = None
    for version, metadata in _read_metadata_between(log, after, upto):
        next_fields = column_identities(metadata)
        if fields is not None and any(next_fields.get(field) != identity for field, identity in fields.items()):
            range_ends.append(version - 1)
        fields = next_fields
    bounds = [after, *(range_end for range_end in range_ends if range_end > after), upto]
    return [(start, end) for start, end in itertools.pairwise(bounds) if end > start]


def only_adds_rows(table: str | Path, *, after: int, upto: int) -> bool:
    """Return whether the commits in (after, upto] certainly delete no row and change no row."""
    return all(kind == "add" for kind, _ in _read_feed_actions(table, after, upto))


def count_changed_bytes(table: str | Path, *, after: int, upto: int) -> int:
    """Return the total size of the files that the commits in (after, upto] name, as a measure of their change feed."""
    return sum(action.get("size") or 0 for _, action in _read_feed_actions(table, after, upto))


def read_table_size(table: str | Path) -> int | None:
    """Return the total size of the table's files, from the checksum file of its newest commit; None without one."""
    log = open_log(table)
    for version in list_commit_versions(log.list_files())[:1]:
        with contextlib.suppress(FileNotFoundError, KeyError, orjson.JSONDecodeError):
            return int(orjson.loads(log.read_file(f"{version:020}.crc"))["tableSizeBytes"])
    return None


def list_commit_versions(names: Iterable[str]) -> list[int]:
    """Return the versions whose commit files are still in the log, newest first."""
    matches = (COMMIT_FILE.fullmatch(name) for name in names)
    return sorted((int(name.group(1)) for name in matches if name), reverse=True)


def read_file_actions(log: LogStorage, version: int) -> Iterator[tuple[str, Action]]:
    """Yield the actions for the files that a commit added, removed, or wrote for the change feed."""
    for line in _read_commit_lines(log, version):
        if FEED_ACTION.match(line):
            yield from _parse_action(log, version, line).items()


def _read_feed_actions(table: str | Path, after: int, upto: int) -> Iterator[tuple[str, Action]]:
    """Yield the actions for the files that a change feed of (after, upto] reads.

    Those of an OPTIMIZE are left out, because it changes no row.
    """
    log = open_log(table)
    for version in range(after + 1, upto + 1):
        for kind, action in read_file_actions(log, version):
            if kind == "cdc" or action.get("dataChange") is True:
                yield kind, action


def _read_commit_lines(log: LogStorage, version: int) -> list[bytes]:
    try:
        return log.read_file(f"{version:020}.json").split(b"\n")
    except FileNotFoundError:
        return []  # the commit was removed: its actions are in a checkpoint


def _parse_action(log: LogStorage, version: int, line: bytes) -> Action:
    """Return the action in a line of a commit. Raises WarehouseError if the line is incomplete."""
    try:
        return cast("Action", orjson.loads(line))
    except orjson.JSONDecodeError as error:
        raise WarehouseError(
            f"{log}/{version:020}.json is damaged ({error}): restore it, or remove the table's folder"
        ) from error


def read_commit(log: LogStorage, version: int) -> Action:
    """Return a commit's info and metadata, and whether it changed rows. An OPTIMIZE or an ALTER changes none."""
    actions: Action = {"changes_rows": False}
    for line in _read_commit_lines(log, version):
        if FILE_ACTION.match(line):
            if not actions["changes_rows"]:  # in a large commit, the first such file is enough
                actions["changes_rows"] = DATA_CHANGE.search(line) is not None
        elif COMMIT_INFO_ACTION.match(line):
            actions |= _parse_action(log, version, line)
    return actions


def _read_metadata_between(log: LogStorage, after: int, upto: int) -> Iterator[tuple[int, Action]]:
    """Yield the table's metadata at `after`, then the metadata of each commit in (after, upto] that changes it."""
    if first_metadata := read_metadata_at(log, after):
        yield after, first_metadata
    for version in range(after + 1, upto + 1):
        metadata = read_commit(log, version).get("metaData")
        if metadata:
            yield version, metadata


def read_metadata_at(log: LogStorage, version: int) -> Action | None:
    """Return the table's metadata at the version `version`; None if the log doesn't reach back so far."""
    names = log.list_files()
    for commit in (commit for commit in list_commit_versions(names) if commit <= version):
        metadata: Action | None = read_commit(log, commit).get("metaData")
        if metadata:
            return metadata
    return _read_newest_metadata(
        log, [checkpoint for checkpoint in _find_checkpoints(names) if checkpoint.version <= version]
    )


def _parse_columns(metadata: Action) -> tuple[Column, ...]:
    fields = orjson.loads(metadata["schemaString"])["fields"]
    return tuple(
        Column(field["name"], spark_type_name(field["type"])) for field in fields if not is_hidden_column(field["name"])
    )


def column_identities(metadata: Action) -> dict[str, tuple[object, ...]]:
    """Return each column's name and type, by the physical name that the column keeps when it is renamed."""
    fields = orjson.loads(metadata["schemaString"])["fields"]
    return {
        field["metadata"].get("delta.columnMapping.physicalName", field["name"]): (
            field["name"],
            spark_type_name(field["type"]),
        )
        for field in fields
    }


class _Checkpoint(NamedTuple):
    version: int
    name: str


def _find_checkpoints(names: Iterable[str]) -> list[_Checkpoint]:
    matches = (CHECKPOINT_FILE.fullmatch(name) for name in names)
    return [_Checkpoint(int(name.group(1)), name.group()) for name in matches if name]


def _read_newest_metadata(log: LogStorage, checkpoints: Iterable[_Checkpoint]) -> Action | None:
    for checkpoint in sorted(checkpoints, reverse=True):
        for row in _read_checkpoint_rows(log.read_file(checkpoint.name), checkpoint.name, "metaData"):
            if row:
                return {**row, "configuration": dict(row["configuration"] or ())}
    return None


def _read_checkpoint_rows(content: bytes, name: str, action: str) -> list[Action | None]:
    if name.endswith(".json"):
        return [orjson.loads(line).get(action) for line in content.splitlines() if line.strip()]
    import pyarrow.parquet  # imported here: it is rarely needed, and planning must be quick

    actions_table = pyarrow.parquet.read_table(pyarrow.BufferReader(content), columns=[action])
    rows: list[Action | None] = actions_table[action].to_pylist() if action in actions_table.column_names else []
    return rows


def spark_type_name(stored_type: Any) -> str:
    """Return the name of a type in the log as Spark spells it: array<string>, struct<a:int>."""
    if isinstance(stored_type, str):
        return SPARK_TYPE_NAMES.get(stored_type, stored_type)
    if stored_type["type"] == "array":
        return f"array<{spark_type_name(stored_type['elementType'])}>"
    if stored_type["type"] == "map":
        return f"map<{spark_type_name(stored_type['keyType'])},{spark_type_name(stored_type['valueType'])}>"
    fields = ",".join(f"{field['name']}:{spark_type_name(field['type'])}" for field in stored_type["fields"])
    return f"struct<{fields}>"


SPARK_TYPE_NAMES = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}
