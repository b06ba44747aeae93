"""The paths of record files: built from organization, sync, run and type, and parsed. This module opens no file."""

import enum
import re
from typing import TypeAlias

from ondatra_dagster.errors import StateError

# "." and ".." match the pattern's letters too, and would lead out of the folder
_FOLDER_NAME = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,100}")
_RECORDS_FILE_NAME = re.compile(r"(?P<batch_type>[a-z_]+)\.(?P<number>[0-9]+)\.parquet")


class RecordFileType(enum.StrEnum):
    """The types of files into which a run's records are split."""

    DELETED = "records_deleted"
    INVALID = "records_invalid"
    UPDATED = "records_updated"


RecordFileId: TypeAlias = tuple[RecordFileType, int]  # one of a run's record files


def organization_folder(organization: str) -> str:
    return f"sync_tracking_datasets/{_checked_folder_name(organization, 'organization')}"


def sync_folder(organization: str, sync_id: str) -> str:
    return _sync_path("sync_tracking_datasets", organization, sync_id)


def run_folder(organization: str, sync_id: str, run_id: str) -> str:
    return f"{sync_folder(organization, sync_id)}/{_checked_folder_name(run_id, 'run id')}"


def records_file(batch_type: RecordFileType, number: int) -> str:
    return f"{batch_type}.{number}.parquet"


def parse_records_file(file: str) -> RecordFileId | None:
    """Return the type and the number in a file's name; None if it isn't a record file."""
    match = _RECORDS_FILE_NAME.fullmatch(file)
    if match is None or match["batch_type"] not in set(RecordFileType):
        return None
    return RecordFileType(match["batch_type"]), int(match["number"])


def snapshot_folder(organization: str, sync_id: str) -> str:
    return _sync_path("queue_snapshots", organization, sync_id)


def snapshot_file(organization: str, sync_id: str, run_id: str) -> str:
    return f"{snapshot_folder(organization, sync_id)}/{_checked_folder_name(run_id, 'run id')}.parquet"


def all_folders(organization: str) -> tuple[str, ...]:
    """Return the top folders that contain an organization's files."""
    folder_name = _checked_folder_name(organization, "organization")
    other_folders = ("queue_snapshots", "marks", "sent", "metadata")
    return (organization_folder(folder_name), *(f"{name}/{folder_name}" for name in other_folders))


def is_folder_name(text: str) -> bool:
    """Return whether the text is a valid folder name."""
    return _FOLDER_NAME.fullmatch(text) is not None


def heartbeat_file(organization: str, sync_id: str) -> str:
    return f"{_sync_path('marks', organization, sync_id)}.json"


def delivered_records_file(organization: str, sync_id: str) -> str:
    return f"{_sync_path('sent', organization, sync_id)}.parquet"


def fact_table_file(organization: str, table: str) -> str:
    return f"metadata/{_checked_folder_name(organization, 'organization')}/{table}.parquet"


def _sync_path(folder: str, organization: str, sync_id: str) -> str:
    """Return a sync's path below one of the tracking store's top folders."""
    organization = _checked_folder_name(organization, "organization")
    return f"{folder}/{organization}/{_checked_folder_name(sync_id, 'sync id')}"


def _checked_folder_name(text: str, label: str) -> str:
    if not _FOLDER_NAME.fullmatch(text):
        raise StateError(f"the {label} {text!r} can't name a folder; use up to 100 of A-Z a-z 0-9 . _ -, not just dots")
    return text
