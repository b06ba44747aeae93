"""What a Delta table's log says, read from its files: no JVM, no Spark, and nothing is written.

Here are the newest version, what made it, and the columns; what the rows are is for the warehouse to read.
"""

import contextlib
import dataclasses
import itertools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import orjson

from ondatra_dagster.changes import Column
from ondatra_dagster.errors import WarehouseError
from ondatra_dagster.planning.commit_note import CommitNote
from ondatra_dagster.planning.delta_schema import is_hidden, spark_type
from ondatra_dagster.project.settings import Settings

COMMIT = re.compile(r"(\d{20})\.json")
CHECKPOINT = re.compile(r"(\d{20})\.checkpoint.*\.parquet")
INVALID_SUFFIX = "__invalid"
Action: TypeAlias = dict[str, Any]  # one line of a commit, as it stands


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """A table as its log describes it now."""

    table_id: str
    version: int  # the newest commit that changed rows; that of the table's making when none has
    log_version: int  # the newest commit of any kind
    note: CommitNote | None  # of `version`
    columns: tuple[Column, ...]  # without the hidden ones
    properties: Mapping[str, str]
    metrics: Mapping[str, str]  # what Spark counted when it wrote `version`


def table_path(settings: Settings, model_id: str) -> str:
    """Where a model's table is: warehouse/SCHEMA/TABLE, in the letters of its id."""
    return "/".join([settings.warehouse.rstrip("/"), *model_id.split(".")])


def invalid_path(table: str) -> str:
    """Where the rows are that were set aside before a write to `table`."""
    return table + INVALID_SUFFIX


def read_table_state(table: str | Path) -> TableState | None:
    """The table's state, or None when there is no Delta table."""
    log = Path(table) / "_delta_log"
    metadata: Action | None = None
    commit: Action = {}
    changed: int | None = None
    versions = _versions(log)
    for version in versions:
        actions = _read_commit(log, version)
        metadata = metadata or actions.get("metaData")
        if changed is None and (actions["changes_rows"] or version == 0):
            changed, commit = version, actions.get("commitInfo", {})
        if metadata is not None and changed is not None:
            break
    if not versions:
        return None
    metadata = metadata or _checkpoint_metadata(log)
    return TableState(
        table_id=metadata["id"],
        version=versions[-1] if changed is None else changed,
        log_version=versions[0],
        note=CommitNote.load(commit.get("userMetadata")),
        columns=_columns(metadata),
        properties=metadata.get("configuration", {}),
        metrics=commit.get("operationMetrics", {}),
    )


def feed_segments(table: str | Path, *, after: int, upto: int) -> list[tuple[int, int]]:
    """The ranges (after, upto] that a change feed can be read in: not across a lost or changed column."""
    log = Path(table) / "_delta_log"
    cuts: list[int] = []
    fields: Mapping[str, tuple[object, ...]] | None = None
    for version, metadata in _metadata_between(log, after, upto):
        newer = _fields(metadata)
        if fields is not None and any(newer.get(field) != what for field, what in fields.items()):
            cuts.append(version - 1)
        fields = newer
    edges = [after, *(cut for cut in cuts if cut > after), upto]
    return [(start, end) for start, end in itertools.pairwise(edges) if end > start]


def changed_bytes(table: str | Path, *, after: int, upto: int) -> int:
    """How many bytes of files the commits in (after, upto] name: a measure of their change feed."""
    log = Path(table) / "_delta_log"
    return sum(
        action.get("size") or 0
        for version in range(after + 1, upto + 1)
        for line in _lines(log, version)
        if line.startswith((b'{"add"', b'{"remove"', b'{"cdc"'))
        for action in orjson.loads(line).values()
    )


def table_bytes(table: str | Path) -> int | None:
    """How large the table's files are together, as its newest checksum says; None when there is none."""
    log = Path(table) / "_delta_log"
    for version in _versions(log)[:1]:
        with contextlib.suppress(FileNotFoundError, orjson.JSONDecodeError):
            return int(orjson.loads((log / f"{version:020}.crc").read_bytes())["tableSizeBytes"])
    return None


def _versions(log: Path) -> list[int]:
    """The versions whose commits are still there, newest first."""
    try:
        names = [COMMIT.fullmatch(entry.name) for entry in log.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted((int(name.group(1)) for name in names if name), reverse=True)


def _lines(log: Path, version: int) -> list[bytes]:
    try:
        return (log / f"{version:020}.json").read_bytes().splitlines()
    except FileNotFoundError:
        return []  # cleaned away: what it said is in a checkpoint


def _read_commit(log: Path, version: int) -> Action:
    """A commit's own actions, and whether it changed rows: an OPTIMIZE or an ALTER doesn't."""
    found: Action = {"changes_rows": False}
    for line in _lines(log, version):
        if line.startswith((b'{"add"', b'{"remove"')):
            if not found["changes_rows"]:  # a large commit is read no further than need be
                found["changes_rows"] = b'"dataChange":true' in line
        elif line.startswith((b'{"commitInfo"', b'{"metaData"')):
            found |= orjson.loads(line)
    return found


def _metadata_between(log: Path, after: int, upto: int) -> Iterator[tuple[int, Action]]:
    """What the table was like at `after`, then each commit in (after, upto] that says it anew."""
    for version in [version for version in _versions(log) if version <= after]:
        metadata = _read_commit(log, version).get("metaData")
        if metadata:
            yield version, metadata
            break
    for version in range(after + 1, upto + 1):
        metadata = _read_commit(log, version).get("metaData")
        if metadata:
            yield version, metadata


def _columns(metadata: Action) -> tuple[Column, ...]:
    fields = orjson.loads(metadata["schemaString"])["fields"]
    return tuple(
        Column(field["name"], spark_type(field["type"])) for field in fields if not is_hidden(field["name"])
    )


def _fields(metadata: Action) -> dict[str, tuple[object, ...]]:
    """Each column's name and type by what stays the same when it is renamed."""
    fields = orjson.loads(metadata["schemaString"])["fields"]
    return {
        field["metadata"].get("delta.columnMapping.physicalName", field["name"]): (
            field["name"],
            spark_type(field["type"]),
        )
        for field in fields
    }


def _checkpoint_metadata(log: Path) -> Action:
    """The table's metadata from its newest checkpoint: someone has cleaned away the commits that had it."""
    import pyarrow.parquet  # here: it is hardly ever needed, and planning must be quick

    for path in sorted((path for path in log.iterdir() if CHECKPOINT.fullmatch(path.name)), reverse=True):
        for row in pyarrow.parquet.read_table(path, columns=["metaData"])["metaData"].to_pylist():
            if row:
                return {**row, "configuration": dict(row["configuration"] or ())}
    raise WarehouseError(f"{log} names no columns: the table is broken; restore it, or remove its folder")
