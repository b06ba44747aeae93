"""The files and commits of a table's past that may be removed, by its log alone.

The caller says which version is still needed, and the warehouse removes files. A version that changed rows is
read at the last commit with the same rows: files that an OPTIMIZE replaced aren't needed.
"""

import bisect
import dataclasses
import functools
import math
import re
from collections.abc import Mapping
from pathlib import Path

from ondatra_dagster.deltalog.active_files import find_newest_checkpoint, read_checkpoint_actions
from ondatra_dagster.deltalog.log_reader import (
    TableState,
    column_identities,
    list_commit_versions,
    read_commit,
    read_file_actions,
    read_metadata_at,
)
from ondatra_dagster.deltalog.log_storage import LogStorage, open_log
from ondatra_dagster.errors import WarehouseError

FILE_RETENTION_PROPERTY, LOG_RETENTION_PROPERTY = ("delta.deletedFileRetentionDuration", "delta.logRetentionDuration")
NORMAL_RETENTION = "interval 3650 days"  # what both of Delta's retentions say but for the moment of a VACUUM
RETENTION_PROPERTIES = {
    FILE_RETENTION_PROPERTY: NORMAL_RETENTION,
    LOG_RETENTION_PROPERTY: NORMAL_RETENTION,
}  # always said together: Delta compares what is said
FREED_UPTO_PROPERTY = "ondatra.freed_upto"  # a property: files that commits up to that one took out have gone
OLD_LOG_FILE = re.compile(r"\.?(\d{20})\.(json|crc|checkpoint)\b.*")
REMOVAL_ACTIONS = ("remove", "cdc")  # a file of the feed is nobody's but the feed's from the beginning
TABLE_ACTIONS = frozenset({"protocol", "metaData"})
NO_VERSION = -1


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RemovableHistory:
    """What nobody needs any more."""

    last_commit: int = NO_VERSION  # files that commits up to this one took out
    files: int = 0  # so many, as far as the log tells
    size: int = 0  # bytes of them
    log_files: tuple[str, ...] = ()  # of commits
    checkpoint: tuple[str, ...] = ()  # that stands for them


def find_last_equal_commit(table: str | Path, version: int) -> int:
    """The newest commit up to which the table has the rows and the columns of `version`.

    An OPTIMIZE doesn't change them. So it is there that they are read: files of before it may have gone.
    """
    log = open_log(table)
    stays, before = version, None
    for newer in sorted(commit for commit in list_commit_versions(log.list_files()) if commit > version):
        actions = read_commit(log, newer)
        if newer != stays + 1 or actions["changes_rows"]:
            break
        if metadata := actions.get("metaData"):
            before = before or read_metadata_at(log, version)
            if before is None or column_identities(metadata) != column_identities(before):
                break
        stays = newer
    return stays


def is_retention_lowered(state: TableState) -> bool:
    """Whether a VACUUM is going on, or was cut off: what the table had before may be refused meanwhile."""
    return state.properties.get(FILE_RETENTION_PROPERTY, NORMAL_RETENTION) != NORMAL_RETENTION


def find_oldest_readable_version(table: str | Path, state: TableState) -> int:
    """The oldest version from which all changes can still be read: what came before may have been freed."""
    freed_upto = int(state.properties.get(FREED_UPTO_PROPERTY, NO_VERSION))
    if freed_upto < 0:
        return NO_VERSION
    log = open_log(table)
    commits = [commit for commit in list_commit_versions(log.list_files()) if commit <= freed_upto]
    changed = (commit for commit in commits if commit == 0 or read_commit(log, commit)["changes_rows"])
    return next(changed, commits[-1] if commits else freed_upto)


def find_removable_history(table: str | Path, state: TableState, *, needed: int, before: float) -> RemovableHistory:
    """What was taken out before that moment and isn't needed to read `needed` and all that came after it."""
    if needed < 0:
        return RemovableHistory()
    log = open_log(table)
    names = log.list_files()
    last = find_last_equal_commit(table, needed)
    commits = [commit for commit in sorted(list_commit_versions(names)) if commit <= last]
    place = bisect.bisect_left(commits, before, key=functools.partial(_read_commit_seconds, log))
    if not place:
        return RemovableHistory()
    upto = commits[place - 1]
    freed_upto = int(state.properties.get(FREED_UPTO_PROPERTY, NO_VERSION))
    newly_removed = (read_file_actions(log, commit) for commit in commits[:place] if commit > freed_upto)
    sizes = [
        action.get("size") or 0 for of_commit in newly_removed for kind, action in of_commit if kind in REMOVAL_ACTIONS
    ]
    checkpoint, parts = find_newest_checkpoint(names, upto=min(needed, upto))
    return RemovableHistory(
        last_commit=upto,
        files=len(sizes),
        size=sum(sizes),
        log_files=tuple(
            name for name in sorted(names) if (old := OLD_LOG_FILE.fullmatch(name)) and int(old[1]) < checkpoint
        ),
        checkpoint=tuple(parts),
    )


def find_removal_cutoff(table: str | Path, past: RemovableHistory, *, before: float) -> float:
    """The moment before which all that was taken out may go, in seconds since 1970.

    What later commits took out is still needed, and what they wrote for the feed; a clock may have been set
    back since.
    """
    log = open_log(table)
    moments = [before]
    for commit in (commit for commit in list_commit_versions(log.list_files()) if commit > past.last_commit):
        actions = [action for kind, action in read_file_actions(log, commit) if kind in REMOVAL_ACTIONS]
        if actions:
            moments += [_read_commit_seconds(log, past.last_commit), _read_commit_seconds(log, commit)]
            moments += [action["deletionTimestamp"] / 1000 for action in actions if "deletionTimestamp" in action]
    return min(moments)


def remove_log_files(table: str | Path, past: RemovableHistory) -> int:
    """Remove old commits, if the checkpoint that stands for them can be read; how many bytes that frees."""
    log = open_log(table)
    said = {kind for name in past.checkpoint for kind, _ in read_checkpoint_actions(log.read_file(name))}
    if not said >= TABLE_ACTIONS:
        raise WarehouseError(f"{past.checkpoint} in {log} doesn't say what the table is; look at it")
    return sum(log.remove_file(name) for name in past.log_files)


def read_commit_time(table: str | Path, version: int) -> float | None:
    """When a commit was made, in seconds since 1970; None where the log doesn't say, or has it no more."""
    moment = _read_commit_seconds(open_log(table), version)
    return None if math.isinf(moment) else moment


def read_commit_metrics(table: str | Path, *, after: int) -> dict[str, Mapping[str, str]]:
    """What Spark counted in each commit after that one, by what it did: OPTIMIZE, VACUUM START."""
    log = open_log(table)
    newer = sorted(commit for commit in list_commit_versions(log.list_files()) if commit > after)
    infos = [read_commit(log, commit).get("commitInfo", {}) for commit in newer]
    return {info["operation"]: info.get("operationMetrics") or {} for info in infos if "operation" in info}


def _read_commit_seconds(log: LogStorage, commit: int) -> float:
    """When a commit was made, as its writer says; of one that doesn't say, nobody knows: it counts as new."""
    milliseconds = read_commit(log, commit).get("commitInfo", {}).get("timestamp")
    return math.inf if milliseconds is None else float(milliseconds) / 1000
