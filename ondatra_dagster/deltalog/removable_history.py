"""The files and commits of a table's past that may be removed, according to its log.

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
NORMAL_RETENTION = "interval 3650 days"  # the value of both of Delta's retentions, except during a VACUUM
RETENTION_PROPERTIES = {
    FILE_RETENTION_PROPERTY: NORMAL_RETENTION,
    LOG_RETENTION_PROPERTY: NORMAL_RETENTION,
}  # always set together, because Delta compares them
FREED_UPTO_PROPERTY = "ondatra.freed_upto"  # a property with a version: files that commits up to it removed may be gone
OLD_LOG_FILE = re.compile(r"\.?(\d{20})\.(json|crc|checkpoint)\b.*")
REMOVAL_ACTIONS = ("remove", "cdc")  # a cdc file belongs to the feed only, never to the table
TABLE_ACTIONS = frozenset({"protocol", "metaData"})
NO_VERSION = -1


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RemovableHistory:
    """The files and commits of a table that aren't needed any more."""

    last_commit: int = NO_VERSION  # the files were removed by commits up to this one
    files: int = 0  # how many files, according to the log
    size: int = 0  # bytes of these files
    log_files: tuple[str, ...] = ()  # old commits, checksums and checkpoints
    checkpoint: tuple[str, ...] = ()  # the files of the checkpoint that replaces `log_files`


def find_last_equal_commit(table: str | Path, version: int) -> int:
    """Return the newest commit up to which the table has the rows and the columns of `version`.

    An OPTIMIZE changes neither. The rows are read at this commit, because files of older commits may be gone.
    """
    log = open_log(table)
    last_equal, metadata_before = version, None
    for newer_commit in sorted(commit for commit in list_commit_versions(log.list_files()) if commit > version):
        actions = read_commit(log, newer_commit)
        if newer_commit != last_equal + 1 or actions["changes_rows"]:
            break
        if metadata := actions.get("metaData"):
            metadata_before = metadata_before or read_metadata_at(log, version)
            if metadata_before is None or column_identities(metadata) != column_identities(metadata_before):
                break
        last_equal = newer_commit
    return last_equal


def is_retention_lowered(state: TableState) -> bool:
    """Return whether a VACUUM is running or was interrupted, according to the table's retention.

    Until it is finished, Delta may refuse to read old versions.
    """
    return state.properties.get(FILE_RETENTION_PROPERTY, NORMAL_RETENTION) != NORMAL_RETENTION


def find_oldest_readable_version(table: str | Path, state: TableState) -> int:
    """Return the oldest version from which all changes can still be read. Files of older versions may be gone."""
    freed_upto = int(state.properties.get(FREED_UPTO_PROPERTY, NO_VERSION))
    if freed_upto < 0:
        return NO_VERSION
    log = open_log(table)
    commits = [commit for commit in list_commit_versions(log.list_files()) if commit <= freed_upto]
    changing_commits = (commit for commit in commits if commit == 0 or read_commit(log, commit)["changes_rows"])
    return next(changing_commits, commits[-1] if commits else freed_upto)


def find_removable_history(
    table: str | Path, state: TableState, *, needed_version: int, before: float
) -> RemovableHistory:
    """Return the history before the moment `before` that isn't needed to read `needed_version` or a later version."""
    if needed_version < 0:
        return RemovableHistory()
    log = open_log(table)
    names = log.list_files()
    last_equal = find_last_equal_commit(table, needed_version)
    commits = [commit for commit in sorted(list_commit_versions(names)) if commit <= last_equal]
    commit_count = bisect.bisect_left(commits, before, key=functools.partial(_read_commit_seconds, log))
    if not commit_count:
        return RemovableHistory()
    last_commit = commits[commit_count - 1]
    freed_upto = int(state.properties.get(FREED_UPTO_PROPERTY, NO_VERSION))
    actions_by_commit = (read_file_actions(log, commit) for commit in commits[:commit_count] if commit > freed_upto)
    sizes = [
        action.get("size") or 0
        for commit_actions in actions_by_commit
        for kind, action in commit_actions
        if kind in REMOVAL_ACTIONS
    ]
    checkpoint, checkpoint_files = find_newest_checkpoint(names, upto=min(needed_version, last_commit))
    return RemovableHistory(
        last_commit=last_commit,
        files=len(sizes),
        size=sum(sizes),
        log_files=tuple(
            name for name in sorted(names) if (match := OLD_LOG_FILE.fullmatch(name)) and int(match[1]) < checkpoint
        ),
        checkpoint=tuple(checkpoint_files),
    )


def find_removal_cutoff(table: str | Path, past: RemovableHistory, *, before: float) -> float:
    """Return the moment before which all removed files may be deleted, in seconds since 1970.

    The files that later commits removed, or wrote for the feed, are still needed. The clock may have been set back
    between commits, so the earliest of all their times counts.
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
    """Remove old commits, checksums and checkpoints; return the number of freed bytes.

    Raise WarehouseError if the checkpoint that replaces them doesn't describe the table.
    """
    log = open_log(table)
    action_kinds = {kind for name in past.checkpoint for kind, _ in read_checkpoint_actions(log.read_file(name))}
    if not action_kinds >= TABLE_ACTIONS:
        raise WarehouseError(f"{past.checkpoint} in {log} doesn't describe the table; check that file")
    return sum(log.remove_file(name) for name in past.log_files)


def read_commit_time(table: str | Path, version: int) -> float | None:
    """Return the time of a commit in seconds since 1970; None if the log has no time for this commit."""
    moment = _read_commit_seconds(open_log(table), version)
    return None if math.isinf(moment) else moment


def read_commit_metrics(table: str | Path, *, after: int) -> dict[str, Mapping[str, str]]:
    """Return Spark's metrics of the commits after the version `after`, by operation: OPTIMIZE, VACUUM START.

    If an operation has several commits, return the metrics of the newest.
    """
    log = open_log(table)
    newer_commits = sorted(commit for commit in list_commit_versions(log.list_files()) if commit > after)
    infos = [read_commit(log, commit).get("commitInfo", {}) for commit in newer_commits]
    return {info["operation"]: info.get("operationMetrics") or {} for info in infos if "operation" in info}


def _read_commit_seconds(log: LogStorage, commit: int) -> float:
    """Return the time of a commit, as its writer noted it.

    A commit without a time gets infinity, so that it counts as new.
    """
    milliseconds = read_commit(log, commit).get("commitInfo", {}).get("timestamp")
    return math.inf if milliseconds is None else float(milliseconds) / 1000
