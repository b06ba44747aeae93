"""The guard of deletes: it counts them before anything is sent, and the user may have to allow them."""

import contextlib
import dataclasses
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import orjson
import pytest

from ondatra_dagster.delivery.push.push_config import PushConfig, PushSettings
from ondatra_dagster.delivery.push.push_interface import PushBatch, PushResult
from ondatra_dagster.delivery.row_outcome import RowOutcome
from ondatra_dagster.project.model import Model
from ondatra_dagster.project.model_header import read_header
from ondatra_dagster.records.record_store import RecordStore
from ondatra_dagster.row_changes import ChangeType, Column, FeedPage, FeedSegment, InvalidRow, Layout, RowChange
from ondatra_dagster.sync.recovery.queue_reset_by_resync_or_forget import ResyncOptions, resync_queue
from ondatra_dagster.sync.run_context import Ports, RunOptions, SourceState
from ondatra_dagster.sync.run_history_store import RunHistory
from ondatra_dagster.sync.run_summary import RunSummary
from ondatra_dagster.sync.sync_checks import Severity, SyncCheckResult, run_sync_checks
from ondatra_dagster.sync.sync_definition import Sync
from ondatra_dagster.sync.sync_run import run_sync

LAYOUT = Layout((Column("id", "string"), Column("Part", "string")))
HEADERS = {
    "merge": "-- @kind: merge\n-- @unique_key: id\n",
    "tracked": "-- @kind: tracked\n-- @group_key: id\n",
    "table": "-- @kind: table\n",
    "partition": "-- @kind: partition\n-- @partitioned_by: part\n",
}
HOUR = 3600
Rows = Mapping[str, Sequence[str]]  # id → the part of each of its rows


@dataclasses.dataclass
class DeleteGuardHarness:
    """A sync of one kind with a limit, over a table in plain Python and an API that only counts."""

    state: Path
    kind: str
    limit: str
    feed: list[RowChange] = dataclasses.field(default_factory=list)
    rows: dict[int, tuple[str, str]] = dataclasses.field(default_factory=dict)  # rowid → id, part
    version: int = 0
    rowids_by_value: int = 0
    now: float = 1_800_000_000.0
    status: str = "ok"
    sent_change_types: list[str] = dataclasses.field(default_factory=list)  # change types
    snapshot_count: int = 0
    hold_reason: str | None = None
    hold_reason_after_batch: str | None = None
    batch_size: int = 100
    push_error: BaseException | None = None  # raised by push()
    base_url: str = "https://api.example.com"

    def write(self, rows: Rows) -> None:
        """Write a version with just these rows: changed keys, or the whole table, are deleted and inserted."""
        self.version += 1
        new_rows = [(key, part) for key, parts in rows.items() for part in parts]
        old = {rowid: row for rowid, row in self.rows.items() if self._replaces(row, new_rows)}
        unchanged_rows = sorted(row for rowid, row in self.rows.items() if rowid not in old)
        for row in unchanged_rows:
            new_rows.remove(row)
        for rowid, row in old.items():
            self._add_change(rowid, row, ChangeType.DELETE)
            del self.rows[rowid]
        for row in new_rows:
            self.rowids_by_value += 1
            self._add_change(self.rowids_by_value, row, ChangeType.INSERT)
            self.rows[self.rowids_by_value] = row

    def _replaces(self, row: tuple[str, str], wanted: list[tuple[str, str]]) -> bool:
        if self.kind == "table":
            return True
        same = 1 if self.kind == "partition" else 0
        now = sorted(other_row for other_row in self.rows.values() if other_row[same] == row[same])
        return now != sorted(other_row for other_row in wanted if other_row[same] == row[same])

    def _add_change(self, rowid: int, row: tuple[str, str], change_type: ChangeType) -> None:
        self.feed.append(self._change(rowid, row, change_type, self.version))

    def _change(self, rowid: int, row: tuple[str, str], change_type: ChangeType, version: int) -> RowChange:
        is_partition = self.kind == "partition"
        by_key = row[is_partition] if self.sync.delivers_by_key else str(rowid)
        payload = orjson.dumps(row).decode()
        return RowChange(by_key, rowid, change_type, version, payload, row[1] if is_partition else "")

    def source(self) -> SourceState:
        return SourceState(
            table_id="t",
            version=self.version,
            invalid_version=-1,
            invalid_count=0,
            columns=LAYOUT.columns,
            row_count=len(self.rows),
        )

    def segments(self, after: int | None, upto: int) -> Iterator[FeedSegment]:
        if after is None:
            self.snapshot_count += 1
            changes = [self._change(rowid, row, ChangeType.INSERT, upto) for rowid, row in self.rows.items()]
        else:
            changes = [change for change in self.feed if after < change.version <= upto]
        changes.sort(key=lambda change: (change.key, change.version))
        yield FeedSegment(-1 if after is None else after, upto, [FeedPage(LAYOUT, changes)])

    def invalid_rows(self, after: int, upto: int) -> Iterator[InvalidRow]:
        yield from ()

    def push(self, parcel: PushBatch, journal: object) -> PushResult:
        self.sent_change_types += [key.partition(":")[2] for key in parcel.result_keys]
        self.hold_reason = self.hold_reason_after_batch
        if self.push_error:
            raise self.push_error
        return PushResult(dict.fromkeys(parcel.result_keys, RowOutcome.parse_status(self.status)), calls=1)

    @property
    def sync(self) -> Sync:
        text = f"{HEADERS[self.kind]}-- @sink: api\n-- @max_deletes: {self.limit}\n"
        header, problems = read_header(text, file="models/sync/a.sql", model="sync.a", sinks={"api"})
        assert header.sink, problems
        model = Model(
            name="sync.a",
            path=self.state / "a.sql",
            file="models/sync/a.sql",
            kind=header.kind,
            sql="select 1",
            sql_line=4,
            definition="d",
            key_columns=header.key_columns,
            sink=header.sink,
        )
        push = PushSettings(max_attempts=9, batch_size=self.batch_size)
        config = PushConfig(
            name="api", file="lib/api.star", destination="Api", object="Api", base_url=self.base_url, push=push
        )
        return Sync(
            model=model,
            sink=header.sink,
            push_config=config,
            push_library=self.state / "api.star",
            state_folder=self.state,
        )

    @property
    def ports(self) -> Ports:
        return Ports(
            read_source=self.source,
            feed=self,
            open_push=lambda: contextlib.nullcontext(self.push),
            record_store=RecordStore(str(self.state / "tracking")),
            history=RunHistory(self.state / "history.sqlite"),
            find_hold_reason=lambda: self.hold_reason,
            clock=lambda: self.now,
        )

    def run(self, *, allows_deletes: bool = False) -> tuple[RunSummary, SyncCheckResult]:
        """Run the sync, and return its summary and the guard's check."""
        self.now += 1
        self.sent_change_types.clear()
        occasion = RunOptions(trigger="test", allows_deletes=allows_deletes)
        summary = run_sync(self.sync, self.ports, occasion)
        verdicts = {verdict.name: verdict for verdict in run_sync_checks(summary, self.sync.limits)}
        return summary, verdicts["deletes_guard"]


def keys(count: int, *, each: int = 1) -> dict[str, list[str]]:
    return {f"k{number:02}": ["p"] * each for number in range(count)}


def a_delivered(tmp_path: Path, kind: str, limit: str, rows: Rows) -> DeleteGuardHarness:
    guarded = DeleteGuardHarness(tmp_path, kind, limit)
    guarded.write(rows)
    guarded.run()
    return guarded


def test_deletes_within_the_limit_are_sent(tmp_path: Path) -> None:
    """Users would switch off a guard that stops ordinary days."""
    guarded = a_delivered(tmp_path, "tracked", "2", keys(10))
    guarded.write(keys(8))
    _, guard = guarded.run()
    assert ["delete", "delete"] == guarded.sent_change_types
    assert (Severity.PASS, "2 of 10 groups would be removed: within @max_deletes") == (
        guard.severity,
        guard.description,
    )


def test_over_the_limit_nothing_is_sent_and_the_queue_keeps_the_changes(tmp_path: Path) -> None:
    """An empty export upstream must not empty the CRM. The rows next to the deletes wait too."""
    guarded = a_delivered(tmp_path, "tracked", "2", keys(10))
    guarded.write({**keys(7), "new": ["p"]})
    for _ in range(2):
        summary, guard = guarded.run()
        assert [] == guarded.sent_change_types
        assert Severity.ERROR == guard.severity
        assert {"removed": 3, "held_by_api": 10} == guard.counts
        assert [{"key": "k07"}, {"key": "k08"}, {"key": "k09"}] == list(guard.samples)
        assert summary.queue
        assert 4 == summary.queue.depth
    assert "ondatra run --allow-deletes sync.a" in guard.description


def test_deletes_stay_allowed_until_they_have_arrived(tmp_path: Path) -> None:
    """Otherwise each retry of an allowed delete would have to be allowed again."""
    guarded = a_delivered(tmp_path, "tracked", "2", keys(10))
    guarded.write(keys(5))
    guarded.run()
    guarded.status = "error: later"
    _, guard = guarded.run(allows_deletes=True)
    assert (Severity.PASS, ["delete"] * 5) == (guard.severity, guarded.sent_change_types)
    assert guard.description.endswith(" would be removed: allowed")
    guarded.now += HOUR
    guarded.status = "ok"
    _, guard = guarded.run()
    assert (Severity.PASS, ["delete"] * 5) == (guard.severity, guarded.sent_change_types)


def test_a_lost_queue_knows_which_deletes_were_allowed(tmp_path: Path) -> None:
    """The user has allowed them. A missing file is no reason to ask again."""
    guarded = a_delivered(tmp_path, "tracked", "2", keys(10))
    guarded.write(keys(5))
    guarded.status = "error: later"
    guarded.run(allows_deletes=True)
    shutil.rmtree(tmp_path / "queue")
    guarded.now += HOUR
    guarded.status = "ok"
    _, guard = guarded.run()
    assert (Severity.PASS, ["delete"] * 5) == (guard.severity, guarded.sent_change_types)


class GuardCrash(BaseException):
    """A crash: the process ends here."""


def test_inserts_that_may_have_arrived_replace_rows_that_are_deleted(tmp_path: Path) -> None:
    """After a kill and a lost queue the state of all these rows is unknown, but the table is as large as before."""
    guarded = a_delivered(tmp_path, "table", "1", keys(10))
    guarded.write(keys(10))
    guarded.push_error = GuardCrash()
    with pytest.raises(GuardCrash):
        guarded.run()
    shutil.rmtree(tmp_path / "queue")
    guarded.push_error = None
    _, guard = guarded.run()
    assert (Severity.PASS, ["delete"] * 10 + ["insert"] * 10) == (guard.severity, guarded.sent_change_types)


@pytest.mark.parametrize("kind", ["table", "partition"])
def test_a_lost_queue_knows_how_many_rows_of_a_mirror_the_api_has(tmp_path: Path, kind: str) -> None:
    """Nothing else shows that a mirror shrinks."""
    guarded = DeleteGuardHarness(tmp_path, kind, "20%", batch_size=0)
    guarded.write({"a": ["p"] * 6, "b": ["q"] * 4})
    guarded.run()
    shutil.rmtree(tmp_path / "queue")
    guarded.write({"a": ["p"] * 2, "b": ["q"] * 4})
    _, guard = guarded.run()
    assert (Severity.ERROR, {"removed": 4, "held_by_api": 10}, []) == (
        guard.severity,
        guard.counts,
        guarded.sent_change_types,
    )


def test_a_mirror_that_was_rejected_is_not_what_the_api_has(tmp_path: Path) -> None:
    """The API still has the mirror before it, so a return to that removes nothing."""
    guarded = DeleteGuardHarness(tmp_path, "table", "1", batch_size=0)
    guarded.write(keys(1))
    guarded.run()
    guarded.status = "reject: no"
    guarded.write(keys(5))
    guarded.run()
    guarded.status = "ok"
    guarded.write(keys(1))
    _, guard = guarded.run()
    assert (Severity.PASS, ["insert"]) == (guard.severity, guarded.sent_change_types)


@pytest.mark.parametrize("kind", ["table", "partition"])
def test_a_mirror_that_was_assumed_delivered_is_what_the_api_has(tmp_path: Path, kind: str) -> None:
    """Otherwise a table that was emptied by mistake would be sent as no rows."""
    guarded = DeleteGuardHarness(tmp_path, kind, "1", batch_size=0)
    guarded.write({"a": ["p"] * 3, "b": ["q"] * 2})
    resync_queue(guarded.sync, guarded.ports, ResyncOptions(assumes_delivered=True))
    guarded.write({"a": ["p"]})
    _, guard = guarded.run()
    assert (Severity.ERROR, {"removed": 4, "held_by_api": 5}, []) == (
        guard.severity,
        guard.counts,
        guarded.sent_change_types,
    )


def test_another_api_has_no_rows_of_a_mirror(tmp_path: Path) -> None:
    """Rows of the first API can't be removed from the second."""
    guarded = DeleteGuardHarness(tmp_path, "table", "1", batch_size=0)
    guarded.write(keys(4))
    guarded.run()
    guarded.base_url = "https://new.example.com"
    guarded.write(keys(1))
    resync_queue(guarded.sync, guarded.ports, ResyncOptions())
    _, guard = guarded.run()
    assert (Severity.PASS, ["insert"]) == (guard.severity, guarded.sent_change_types)


def test_the_next_deletes_are_counted_again(tmp_path: Path) -> None:
    """Deletes that were allowed once aren't allowed forever."""
    guarded = a_delivered(tmp_path, "tracked", "2", keys(10))
    guarded.write(keys(5))
    guarded.run(allows_deletes=True)
    guarded.write(keys(1))
    _, guard = guarded.run()
    assert (Severity.ERROR, []) == (guard.severity, guarded.sent_change_types)


def test_after_the_rows_come_back_nothing_has_to_be_allowed(tmp_path: Path) -> None:
    """The source was fixed, so nothing is left to remove."""
    guarded = a_delivered(tmp_path, "tracked", "2", keys(10))
    guarded.write(keys(2))
    guarded.run()
    guarded.write({**keys(10), "new": ["p"]})
    _, guard = guarded.run()
    assert (Severity.PASS, ["insert"]) == (guard.severity, guarded.sent_change_types)
    assert "no pending change removes anything" == guard.description


@pytest.mark.parametrize(
    ("limit", "left", "severity"),
    [("10%", 9, Severity.PASS), ("10%", 8, Severity.ERROR), ("0", 9, Severity.ERROR), ("100%", 0, Severity.PASS)],
)
def test_a_percentage_is_of_the_groups_that_the_api_has(
    tmp_path: Path, limit: str, left: int, severity: Severity
) -> None:
    """The guard counts groups and not rows: one long invoice is one invoice."""
    guarded = a_delivered(tmp_path, "tracked", limit, {**keys(9), "k09": ["p"] * 90})
    guarded.write(dict(list({"k09": ["p"] * 90, **keys(9)}.items())[10 - left :]))
    _, guard = guarded.run()
    assert severity == guard.severity, guard.description


def test_groups_are_counted_once_for_each_version(tmp_path: Path) -> None:
    """To count them, the table is read, which needs Spark. A retry should not need it."""
    guarded = a_delivered(tmp_path, "tracked", "10%", keys(10))
    guarded.write(keys(4))
    before = guarded.snapshot_count
    for _ in range(3):
        guarded.run()
    assert before + 1 == guarded.snapshot_count


def test_a_table_that_is_replaced_counts_by_how_much_it_shrinks(tmp_path: Path) -> None:
    """Each change of such a table deletes every row, so only the difference is a loss."""
    guarded = a_delivered(tmp_path, "table", "10%", keys(20))
    guarded.write(keys(18))
    _, guard = guarded.run()
    assert (Severity.PASS, "2 of 20 rows would be removed: within @max_deletes") == (guard.severity, guard.description)
    guarded.write(keys(15))
    _, guard = guarded.run()
    assert (Severity.ERROR, {"removed": 3, "held_by_api": 18}) == (guard.severity, guard.counts)
    assert [] == guarded.sent_change_types


def test_a_partition_that_shrinks_is_not_hidden_by_one_that_grows(tmp_path: Path) -> None:
    """A lost day stays lost, however many rows today has."""
    guarded = a_delivered(tmp_path, "partition", "3", {"a": ["mon"] * 5, "b": ["tue"] * 2})
    guarded.write({"a": ["mon"], "b": ["tue"] * 9})
    _, guard = guarded.run()
    assert (Severity.ERROR, {"removed": 4, "held_by_api": 7}) == (guard.severity, guard.counts)


def test_rows_that_never_arrived_do_not_count_as_rows_of_the_api(tmp_path: Path) -> None:
    """Half of the table was rejected. Two of the five rows that the API has are 40 %."""
    guarded = DeleteGuardHarness(tmp_path, "tracked", "30%")
    guarded.write(keys(5))
    guarded.run()
    guarded.status = "reject: no"
    guarded.write(keys(10))
    guarded.run()
    guarded.write(dict(list(keys(10).items())[2:]))
    _, guard = guarded.run()
    assert (Severity.ERROR, {"removed": 2, "held_by_api": 5}) == (guard.severity, guard.counts)


def test_a_paused_sync_reports_deletes_over_the_limit(tmp_path: Path) -> None:
    """Users of a paused or dry sync want to know it before the rows are sent. Small changes add up until then."""
    guarded = a_delivered(tmp_path, "tracked", "2", keys(10))
    guarded.hold_reason = "it is paused"
    for key_count, severity in ((9, Severity.PASS), (8, Severity.PASS), (7, Severity.ERROR)):
        guarded.write(keys(key_count))
        summary, guard = guarded.run()
        assert (severity, []) == (guard.severity, guarded.sent_change_types)
        assert summary.message.startswith("it is paused: ")
    guarded.hold_reason = None
    assert Severity.ERROR == guarded.run()[1].severity


def test_while_nothing_is_sent_no_deletes_can_be_allowed(tmp_path: Path) -> None:
    """The command says so. Weeks later, the user would not remember the permission."""
    guarded = a_delivered(tmp_path, "tracked", "2", keys(10))
    guarded.write(keys(5))
    guarded.hold_reason = "it is paused"
    _, guard = guarded.run(allows_deletes=True)
    assert (Severity.ERROR, []) == (guard.severity, guarded.sent_change_types)
    guarded.hold_reason = None
    _, guard = guarded.run()
    assert (Severity.ERROR, []) == (guard.severity, guarded.sent_change_types)
    _, guard = guarded.run(allows_deletes=True)
    assert (Severity.PASS, ["delete"] * 5) == (guard.severity, guarded.sent_change_types)


def test_a_run_that_is_sending_stops_after_its_batch_when_it_is_paused(tmp_path: Path) -> None:
    """A user who pauses a sync has a reason that can't wait for a million rows."""
    guarded = DeleteGuardHarness(tmp_path, "merge", "0", batch_size=1, hold_reason_after_batch="it is paused")
    guarded.write(keys(4))
    summary, _ = guarded.run()
    assert ["insert"] == guarded.sent_change_types
    assert summary.queue
    assert (3, "it is paused: 3 inserts pending") == (summary.queue.depth, summary.message)
    guarded.hold_reason = guarded.hold_reason_after_batch = None
    guarded.run()
    assert ["insert"] * 3 == guarded.sent_change_types


def test_the_guard_checks_a_resync_like_any_change(tmp_path: Path) -> None:
    """Deletes that were allowed before the resync say nothing about what it removes."""
    guarded = a_delivered(tmp_path, "tracked", "2", keys(10))
    guarded.write(keys(6))
    guarded.run(allows_deletes=True)
    resync_queue(guarded.sync, guarded.ports, ResyncOptions())
    guarded.write(keys(2))
    _, guard = guarded.run()
    assert (Severity.ERROR, 4) == (guard.severity, guard.counts["removed"])


def test_without_a_limit_nothing_is_counted(tmp_path: Path) -> None:
    """Every sync has the check, and it passes."""
    guarded = a_delivered(tmp_path, "merge", "5", keys(2))
    sink = dataclasses.replace(guarded.sync.sink, max_deletes=None)
    sync = dataclasses.replace(guarded.sync, sink=sink)
    guarded.write(keys(3))
    summary = run_sync(sync, guarded.ports, RunOptions(trigger="test"))
    assert summary.removals is None
    assert {Severity.PASS} == {verdict.severity for verdict in run_sync_checks(summary, sync.limits)}


@pytest.mark.parametrize("kind", ["table", "partition"])
def test_mirrors_are_counted_by_row(tmp_path: Path, kind: str) -> None:
    """Only the number of rows is kept of what the API has."""
    guarded = DeleteGuardHarness(tmp_path, kind, "20%", batch_size=0)
    guarded.write({"a": ["p"] * 6, "b": ["q"] * 4})
    guarded.run()
    guarded.write({"a": ["p"] * 5, "b": ["q"] * 4})
    _, guard = guarded.run()
    assert (Severity.PASS, "1 of 10 rows would be removed: within @max_deletes") == (guard.severity, guard.description)
    guarded.write({"a": ["p"] * 2, "b": ["q"] * 5})
    for _ in range(2):
        _, guard = guarded.run()
        assert (Severity.ERROR, 9, []) == (guard.severity, guard.counts["held_by_api"], guarded.sent_change_types)
    _, guard = guarded.run(allows_deletes=True)
    assert (Severity.PASS, True) == (guard.severity, bool(guarded.sent_change_types))
    assert Severity.PASS == guarded.run()[1].severity
