"""How much of a table's past may go, told by its log alone: files that commits took out, and old commits.

Who still needs what is for others to say, as a version; how files go is for the warehouse. A version that
changed rows is read at the last commit that has them as they were: so what an OPTIMIZE replaced isn't needed.
"""

import bisect
import dataclasses
import functools
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from ondatra_dagster.errors import WarehouseError
from ondatra_dagster.planning.delta_log import (
    TableState,
    column_identities,
    commits_among,
    file_actions,
    metadata_at,
    read_commit,
)
from ondatra_dagster.planning.live_files import checkpoint_actions, newest_checkpoint
from ondatra_dagster.planning.log_files import LogFiles, open_log

FILES_KEPT, COMMITS_KEPT = "delta.deletedFileRetentionDuration", "delta.logRetentionDuration"
KEPT = "interval 3650 days"  # what both of Delta's retentions say but for the moment of a VACUUM
RETENTIONS = {FILES_KEPT: KEPT, COMMITS_KEPT: KEPT}  # always said together: Delta compares what is said
FREED_UPTO = "ondatra.freed_upto"  # a property: files that commits up to that one took out have gone
OLD_LOG_FILE = re.compile(r"\.?(\d{20})\.(json|crc|checkpoint)\b.*")
TAKES_OUT = ("remove", "cdc")  # a file of the feed is nobody's but the feed's from the beginning
MAKES_A_TABLE = frozenset({"protocol", "metaData"})
NOTHING = -1


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What nobody needs any more."""

    upto: int = NOTHING  # files that commits up to this one took out
    files: int = 0  # so many, as far as the log tells
    size: int = 0  # bytes of them
    log_files: tuple[str, ...] = ()  # of commits
    checkpoint: tuple[str, ...] = ()  # that stands for them


def rows_stay_until(table: str | Path, version: int) -> int:
    """The newest commit up to which the table has the rows and the columns of `version`.

    An OPTIMIZE doesn't change them. So it is there that they are read: files of before it may have gone.
    """
    log = open_log(table)
    stays, before = version, None
    for newer in sorted(commit for commit in commits_among(log.names()) if commit > version):
        actions = read_commit(log, newer)
        if newer != stays + 1 or actions["changes_rows"]:
            break
        if metadata := actions.get("metaData"):
            before = before or metadata_at(log, version)
            if before is None or column_identities(metadata) != column_identities(before):
                break
        stays = newer
    return stays


def is_lowered(state: TableState) -> bool:
    """Whether a VACUUM is going on, or was cut off: what the table had before may be refused meanwhile."""
    return state.properties.get(FILES_KEPT, KEPT) != KEPT


def readable_from(table: str | Path, state: TableState) -> int:
    """The oldest version from which all changes can still be read: what came before may have been freed."""
    freed_upto = int(state.properties.get(FREED_UPTO, NOTHING))
    if freed_upto < 0:
        return NOTHING
    log = open_log(table)
    commits = [commit for commit in commits_among(log.names()) if commit <= freed_upto]
    changed = (commit for commit in commits if commit == 0 or read_commit(log, commit)["changes_rows"])
    return next(changed, commits[-1] if commits else freed_upto)


def past_of(table: str | Path, state: TableState, *, needed: int, before: float) -> Past:
    """What was taken out before that moment and isn't needed to read `needed` and all that came after it."""
    if needed < 0:
        return Past()
    log = open_log(table)
    names = log.names()
    last = rows_stay_until(table, needed)
    commits = [commit for commit in sorted(commits_among(names)) if commit <= last]
    place = bisect.bisect_left(commits, before, key=functools.partial(_written_at, log))
    if not place:
        return Past()
    upto = commits[place - 1]
    sizes = list(_taken_out(log, after=int(state.properties.get(FREED_UPTO, NOTHING)), upto=upto))
    checkpoint, parts = newest_checkpoint(names, upto=min(needed, upto))
    return Past(
        upto=upto,
        files=len(sizes),
        size=sum(sizes),
        log_files=tuple(name for name in sorted(names) if _is_of_before(name, checkpoint)),
        checkpoint=tuple(parts),
    )


def kept_since(table: str | Path, past: Past, *, before: float) -> float:
    """The moment before which all that was taken out may go, in seconds since 1970.

    What later commits took out is still needed, and what they wrote for the feed; a clock may have been set
    back since.
    """
    log = open_log(table)
    moments = [before]
    for commit in (commit for commit in commits_among(log.names()) if commit > past.upto):
        actions = [action for kind, action in file_actions(log, commit) if kind in TAKES_OUT]
        if actions:
            moments += [_written_at(log, past.upto), _written_at(log, commit)]
            moments += [
                action["deletionTimestamp"] / 1000 for action in actions if "deletionTimestamp" in action
            ]
    return min(moments)


def remove_log_files(table: str | Path, past: Past) -> int:
    """Remove old commits, if the checkpoint that stands for them can be read; how many bytes that frees."""
    log = open_log(table)
    said = {kind for name in past.checkpoint for kind, _ in checkpoint_actions(log.read(name))}
    if not said >= MAKES_A_TABLE:
        raise WarehouseError(f"{past.checkpoint} in {log} doesn't say what the table is; look at it")
    return sum(log.remove(name) for name in past.log_files)


def written_at(table: str | Path, version: int) -> float | None:
    """When a commit was made, in seconds since 1970; None where the log doesn't say, or has it no more."""
    moment = _written_at(open_log(table), version)
    return None if math.isinf(moment) else moment


def commit_metrics(table: str | Path, *, after: int) -> dict[str, Mapping[str, str]]:
    """What Spark counted in each commit after that one, by what it did: OPTIMIZE, VACUUM START."""
    log = open_log(table)
    newer = sorted(commit for commit in commits_among(log.names()) if commit > after)
    infos = [read_commit(log, commit).get("commitInfo", {}) for commit in newer]
    return {info["operation"]: info.get("operationMetrics") or {} for info in infos if "operation" in info}


def _written_at(log: LogFiles, commit: int) -> float:
    """When a commit was made, as its writer says; of one that doesn't say, nobody knows: it counts as new."""
    milliseconds = read_commit(log, commit).get("commitInfo", {}).get("timestamp")
    return math.inf if milliseconds is None else float(milliseconds) / 1000


def _taken_out(log: LogFiles, *, after: int, upto: int) -> Iterator[int]:
    """The sizes of the files that went with these commits."""
    for commit in (commit for commit in commits_among(log.names()) if after < commit <= upto):
        for kind, action in file_actions(log, commit):
            if kind in TAKES_OUT:
                yield action.get("size") or 0


def _is_of_before(name: str, checkpoint: int) -> bool:
    found = OLD_LOG_FILE.fullmatch(name)
    return found is not None and int(found[1]) < checkpoint
