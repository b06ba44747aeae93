"""The fields of a run's metadata.json and heartbeat file, and their conversion to and from text."""

import dataclasses
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

import orjson

from ondatra_dagster.row_changes import Column, Json


class Endpoint(NamedTuple):
    """A sync's source, destination or destination object, with the type and id that the fact tables have."""

    type: str  # DataWarehouse::Query, HubSpot::Connection
    id: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunMetadata:
    """The fields of a run's metadata.json that the record store doesn't know itself."""

    source: Endpoint
    destination: Endpoint
    destination_object: Endpoint
    started_at: datetime
    columns: tuple[Column, ...]
    dagster_run_id: str | None
    version_from: int | None  # the watermark before the run; None if nothing had been enqueued
    version_to: int | None
    counts: Mapping[str, Json]


_JSON_TYPES = {
    "boolean": "boolean",
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint", "float", "double"), "number"),
    # the second names of some types, in Delta's log and older Spark
    **dict.fromkeys(("byte", "short", "integer", "long", "real"), "number"),
    "array": "array",
    **dict.fromkeys(("struct", "map", "variant"), "object"),
}


def build_payload_schema(columns: Iterable[Column]) -> dict[str, str]:
    """Return each column's JSON type in a payload: dates, decimals and binaries are strings."""
    # a type without its brackets: "decimal" of "decimal(10,2)"
    type_names = {column.name: re.split(r"[<(]", column.type)[0].strip().lower() for column in columns}
    return {name: _JSON_TYPES.get(type_name, "string") for name, type_name in type_names.items()}


def dump_metadata(
    metadata: RunMetadata, *, organization: str, workspace: str, sync_id: str, run_id: str, state_id: str
) -> bytes:
    """Return the content of the run's metadata.json."""
    fields = {
        "organization_id": organization,
        "workspace_id": workspace,
        "sync_configuration_id": sync_id,
        "sync_run_id": run_id,
        "source": metadata.source._asdict(),
        "destination": metadata.destination._asdict(),
        "destination_object": metadata.destination_object._asdict(),
        "started_at": f"{metadata.started_at.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}",
        "record_payload_schema": build_payload_schema(metadata.columns),
        "dagster_run_id": metadata.dagster_run_id,
        "state_id": state_id,
        "versions": {"from": metadata.version_from, "to": metadata.version_to},
        "counts": dict(metadata.counts),
    }
    return orjson.dumps(fields, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunHeartbeat:
    """A heartbeat of a run, which is written at its start, every few seconds while it runs, and at its end."""

    run_id: str
    state_id: str
    seen_at: datetime
    has_ended: bool = False


def dump_heartbeat(mark: RunHeartbeat) -> bytes:
    """Return the content of the heartbeat file."""
    return orjson.dumps(mark, option=orjson.OPT_APPEND_NEWLINE)


def load_heartbeat(text: bytes) -> RunHeartbeat:
    """Return the heartbeat that dump_heartbeat() wrote; raise ValueError, KeyError or TypeError for another text."""
    fields = orjson.loads(text)
    return RunHeartbeat(
        run_id=str(fields["run_id"]),
        state_id=str(fields["state_id"]),
        seen_at=datetime.fromisoformat(fields["seen_at"]),
        has_ended=bool(fields["has_ended"]),
    )
