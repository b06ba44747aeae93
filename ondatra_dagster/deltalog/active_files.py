"""The Parquet files that a Delta table consists of now, read from its log. The files themselves aren't opened.

Only the features that ondatra's own tables can have are supported. A table with any other feature raises
UnsupportedTableError, because only Spark can read it.
"""

import dataclasses
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

import orjson

from ondatra_dagster.deltalog.log_reader import list_commit_versions
from ondatra_dagster.deltalog.log_storage import LogStorage, open_log
from ondatra_dagster.project.settings.storage_access import local_path, scheme_of

CHECKPOINT_FILE = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10}))?\.parquet")
SUPPORTED_FEATURES = frozenset(
    {"columnMapping", "timestampNtz", "typeWidening", "typeWidening-preview", "vacuumProtocolCheck"}
    | {"deletionVectors"}  # refused only when a file has one
)
SUPPORTED_MAPPING_MODES = ("none", "name")
CHECKPOINT_COLUMNS = ("protocol", "metaData", "add")


class UnsupportedTableError(Exception):
    """The error for a table that only Spark can read; its text gives the reason."""


class ActiveFile(NamedTuple):
    path: str  # an absolute path, or an address
    partition: Mapping[str, str | None]  # by physical name
    rows: int | None
    size: int = 0  # bytes


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TableSnapshot:
    """The schema and the files of a table at its newest commit."""

    fields: tuple[Mapping[str, Any], ...]  # of the table's schema, as the log writes them
    is_mapped: bool  # whether its files use physical column names
    partition_columns: frozenset[str]
    files: tuple[ActiveFile, ...]

    @property
    def rows(self) -> int | None:
        """Return the table's number of rows; None if the writer of a file hasn't counted its rows."""
        counts = [file.rows for file in self.files]
        return None if None in counts else sum(count for count in counts if count is not None)


def read_table_snapshot(table: str) -> TableSnapshot | None:
    """Return the table's snapshot; None if there is no log. Raises UnsupportedTableError."""
    log = open_log(table)
    names = log.list_files()
    if not list_commit_versions(names) and not any(map(CHECKPOINT_FILE.fullmatch, names)):
        return None
    actions_by_kind: dict[str, Any] = {}
    files: dict[tuple[str, str], Mapping[str, Any]] = {}
    for kind, action in _read_actions(log, names):
        if kind == "add":
            files[_file_identity(action)] = action
        elif kind == "remove":
            files.pop(_file_identity(action), None)
        else:
            actions_by_kind[kind] = action
    return _build_snapshot(table, actions_by_kind, files.values())


def _file_identity(action: Mapping[str, Any]) -> tuple[str, str]:
    """Return a file's path and deletion vector, which identify it in the log.

    One commit can remove a file and add it again with a deletion vector.
    """
    vector = action.get("deletionVector") or {}
    return action["path"], f"{vector.get('storageType')}{vector.get('pathOrInlineDv')}@{vector.get('offset')}"


def _build_snapshot(table: str, actions: Mapping[str, Any], files: Iterable[Mapping[str, Any]]) -> TableSnapshot:
    _check_protocol(actions.get("protocol") or {})
    metadata = actions.get("metaData") or {}
    mapping = dict(metadata.get("configuration") or {}).get("delta.columnMapping.mode", "none")
    if mapping not in SUPPORTED_MAPPING_MODES or "schemaString" not in metadata:
        raise UnsupportedTableError(f"column mapping by {mapping}")
    return TableSnapshot(
        fields=tuple(orjson.loads(metadata["schemaString"])["fields"]),
        is_mapped=mapping == "name",
        partition_columns=frozenset(metadata.get("partitionColumns") or ()),
        files=tuple(_parse_file(table, action) for action in files),
    )


def _check_protocol(protocol: Mapping[str, Any]) -> None:
    version = protocol.get("minReaderVersion") or 1
    unknown_features = set(protocol.get("readerFeatures") or ()) - SUPPORTED_FEATURES
    if version > 3 or unknown_features:
        raise UnsupportedTableError(
            f"reader version {version} with {', '.join(sorted(unknown_features)) or 'unknown features'}"
        )


def _parse_file(table: str, action: Mapping[str, Any]) -> ActiveFile:
    if action.get("deletionVector"):
        raise UnsupportedTableError("deletion vectors")
    stats = orjson.loads(action.get("stats") or "{}")
    return ActiveFile(
        _resolve_path(table, unquote(action["path"])),
        dict(action.get("partitionValues") or {}),
        stats.get("numRecords"),
        action.get("size") or 0,
    )


def _resolve_path(table: str, path: str) -> str:
    """Return the path or address of a table's file.

    A clone's log names another table's files by their whole address.
    """
    if scheme_of(path) is None:
        file_path = re.sub(r"^file:/+", "/", path)
        return file_path if file_path.startswith("/") else f"{table.rstrip('/')}/{file_path}"
    return str(local_path(path) or path)


def _read_actions(log: LogStorage, names: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """Yield the actions of the newest complete checkpoint and of the commits after it, oldest first.

    Raises UnsupportedTableError if a commit is missing.
    """
    version, checkpoint_files = find_newest_checkpoint(names)
    for name in checkpoint_files:
        yield from read_checkpoint_actions(log.read_file(name))
    newer_commits = sorted(commit for commit in list_commit_versions(names) if commit > version)
    if newer_commits != list(range(version + 1, version + 1 + len(newer_commits))):
        raise UnsupportedTableError("a log with gaps")
    for commit in newer_commits:
        for line in log.read_file(f"{commit:020}.json").split(b"\n"):
            if line.strip():
                yield from orjson.loads(line).items()


def find_newest_checkpoint(names: Iterable[str], *, upto: float = math.inf) -> tuple[int, list[str]]:
    """Return the version and the files of the newest complete checkpoint up to `upto`.

    Return version -1 and no files if there is no such checkpoint.
    """
    files_by_checkpoint: dict[tuple[int, int], list[str]] = {}
    for name in names:
        if (match := CHECKPOINT_FILE.fullmatch(name)) and int(match.group(1)) <= upto:
            files_by_checkpoint.setdefault((int(match.group(1)), int(match.group(3) or 1)), []).append(name)
    complete_checkpoints = [
        (version, names) for (version, count), names in files_by_checkpoint.items() if len(names) == count
    ]
    return max(complete_checkpoints, default=(-1, []))


def read_checkpoint_actions(content: bytes) -> Iterator[tuple[str, Any]]:
    """Yield those actions in a checkpoint's file that describe the table and its files."""
    import pyarrow
    import pyarrow.parquet

    actions_table = pyarrow.parquet.read_table(pyarrow.BufferReader(content), columns=list(CHECKPOINT_COLUMNS))
    for row in actions_table.to_pylist(maps_as_pydicts="strict"):
        yield from ((kind, action) for kind, action in row.items() if action)
