"""The names of tracking files, from what they are about, and back. Opens nothing."""

import enum
import re
from typing import TypeAlias

from ondatra_dagster.errors import StateError

# "." and ".." are made of these letters too, and would lead out of the folder
_PART = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,100}")
_NUMBERED = re.compile(r"(?P<batch_type>[a-z_]+)\.(?P<number>[0-9]+)\.parquet")


class BatchType(enum.StrEnum):
    """The files that a run's records are split over."""

    DELETED = "records_deleted"
    INVALID = "records_invalid"
    UPDATED = "records_updated"


NumberedFile: TypeAlias = tuple[BatchType, int]  # one of a run's files of records


def organization_folder(organization: str) -> str:
    return f"sync_tracking_datasets/{_part(organization, 'organization')}"


def sync_folder(organization: str, sync_id: str) -> str:
    return f"{organization_folder(organization)}/{_part(sync_id, 'sync id')}"


def run_folder(organization: str, sync_id: str, run_id: str) -> str:
    return f"{sync_folder(organization, sync_id)}/{_part(run_id, 'run id')}"


def records_file(batch_type: BatchType, number: int) -> str:
    return f"{batch_type}.{number}.parquet"


def batch_of(file: str) -> NumberedFile | None:
    """The batch type and the number in a file's name; None for a file that isn't one of records."""
    match = _NUMBERED.fullmatch(file)
    if match is None or match["batch_type"] not in set(BatchType):
        return None
    return BatchType(match["batch_type"]), int(match["number"])


def frontier_folder(organization: str, sync_id: str) -> str:
    return f"frontiers/{_part(organization, 'organization')}/{_part(sync_id, 'sync id')}"


def frontier_file(organization: str, sync_id: str, run_id: str) -> str:
    return f"{frontier_folder(organization, sync_id)}/{_part(run_id, 'run id')}.parquet"


def all_folders(organization: str) -> tuple[str, ...]:
    """Below which an organization has files."""
    part = _part(organization, "organization")
    others = ("frontiers", "marks", "sent", "metadata")
    return (organization_folder(part), *(f"{name}/{part}" for name in others))


def is_name(text: str) -> bool:
    """Whether a folder of ours can be called that."""
    return _PART.fullmatch(text) is not None


def mark_file(organization: str, sync_id: str) -> str:
    return f"marks/{_part(organization, 'organization')}/{_part(sync_id, 'sync id')}.json"


def sent_file(organization: str, sync_id: str) -> str:
    return f"sent/{_part(organization, 'organization')}/{_part(sync_id, 'sync id')}.parquet"


def fact_file(organization: str, table: str) -> str:
    return f"metadata/{_part(organization, 'organization')}/{table}.parquet"


def _part(text: str, what: str) -> str:
    if not _PART.fullmatch(text):
        raise StateError(
            f"the {what} {text!r} can't name a folder; use up to 100 of A-Z a-z 0-9 . _ -, not just dots"
        )
    return text
