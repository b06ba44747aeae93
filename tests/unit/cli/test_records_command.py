"""The `ondatra records` command: the results of single rows, for users, for programs and as files."""

import csv
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from support.files.sample_records import build_record
from support.processes.cli_terminal import CommandLine
from support.projects.shop_project import ShopProject
from support.projects.ui_client import PageReader

from ondatra_dagster.app.workspace import ProjectCache
from ondatra_dagster.cli.commands.records import RECORDS_HEAD, RECORDS_SHRINKS
from ondatra_dagster.cli.output import ColumnShrink, display_width, shrink_columns
from ondatra_dagster.delivery.push.push_interface import PushResult
from ondatra_dagster.delivery.queue.claimed_batches import claim_batch
from ondatra_dagster.delivery.queue.enqueue_changes import enqueue_segment
from ondatra_dagster.delivery.queue.settle_batch import settle_batch
from ondatra_dagster.delivery.queue.unpublished_records import PushAttempt
from ondatra_dagster.delivery.row_outcome import RowOutcome
from ondatra_dagster.records.file_paths import RecordFileType
from ondatra_dagster.row_changes import ChangeType, Column, FeedPage, FeedSegment, Layout, RowChange

FIRST, SECOND = "20261118T120000Z-aaaaaa", "20261118T130000Z-bbbbbb"


@pytest.fixture
def shop_with_records(shop: ShopProject) -> ShopProject:
    """Return a shop with one succeeded, one rejected and one invalid row. In a second run one row failed, and waits."""
    sync, tracking = shop.workspace.sync("sync.crm"), shop.workspace.tracking
    for record in (
        build_record("a1", payload='{"id":"a1","email":"ada@example.com"}'),
        build_record("b2", payload='{"id":"b2","email":"?"}', status="rejected", status_message="not an address"),
        build_record("", payload='{"id":null,"email":"x@example.com"}', status="NULL"),
    ):
        number = int(record.status == "rejected")
        tracking.publish_records(sync.id, FIRST, record.batch_type, number, [record])
    tracking.publish_records(sync.id, SECOND, RecordFileType.UPDATED, 0, [])
    with sync.open_queue() as queue:
        change = RowChange("c3", 3, ChangeType.INSERT, 1, '["c3","cy@example.com"]')
        layout = Layout((Column("id", "string"), Column("email", "string")))
        enqueue_segment(queue, FeedSegment(-1, 1, [FeedPage(layout, [change])]), now=1.0)
        queue.write_meta("last_run", SECOND)
        batch = claim_batch(queue, size=1, number=1)
        assert batch
        attempt = PushAttempt(run_id=SECOND, started_at=1.0, ended_at=2.0, max_attempts=8)
        busy = dict.fromkeys(batch.result_keys, RowOutcome.parse_status("error: busy"))
        settle_batch(queue, batch, PushResult(busy), attempt)
    return shop


def lines(told: CommandLine, *words: str) -> list[list[str]]:
    return [line.split()[:2] for line in told("records", "sync.crm", *words).stdout.splitlines()[1:]]


@pytest.mark.usefixtures("shop_with_records")
def test_records_are_shown_with_their_reasons(ondatra: CommandLine) -> None:
    """Each record has one line. Waiting rows come before ended ones."""
    result = ondatra("records", "sync.crm")
    head, first, *others = result.stdout.splitlines()
    assert ["status", "identifier", "operation", "when", "reason", "payload"] == head.split()
    assert ["waiting", "c3", "upsert", "again"] == first.split()[:4]
    assert "tried 1 time: busy" in first
    assert {("rejected", "b2"), ("succeeded", "a1"), ("NULL", "upsert")} == {tuple(line.split()[:2]) for line in others}
    assert (0, "(4 records)\n") == (result.exit_code, result.stderr)
    assert ["its key has a null" in line for line in result.stdout.splitlines()].count(True) == 1


@pytest.mark.usefixtures("shop_with_records")
@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("--status", "waiting"), ["c3"]),
        (("--status", "pending"), []),
        (("--status", "Succeeded"), ["a1"]),
        (("--status", "rejected"), ["b2"]),
        (("--status", "invalid"), [""]),
        (("--status", "NULL"), [""]),
        (("--status", "DUPLICATE"), []),
        (("--search", "b"), ["b2"]),
        (("--search", "b2"), ["b2"]),
        (("--search", "2"), []),
        (("--search", "c", "--status", "waiting"), ["c3"]),
        (("--limit", "1"), ["c3"]),
        (("--limit", "0"), []),
    ],
)
def test_records_are_found_by_status_and_identifier(
    ondatra: CommandLine, words: tuple[str, ...], found: list[str]
) -> None:
    """A program gets one object per record, and nothing else."""
    result = ondatra("records", "sync.crm", *words, "--json")
    assert (0, "") == (result.exit_code, result.stderr)
    assert found == [record["identifier"] for record in result.json_lines]


@pytest.mark.usefixtures("shop_with_records")
def test_a_program_gets_a_complete_record(ondatra: CommandLine) -> None:
    """It has the names of the published columns, and its payload is an object."""
    (record,) = ondatra("records", "sync.crm", "--search", "b2", "--json").json_lines
    assert {"id": "b2", "email": "?"} == record["record_payload"]
    assert ("rejected", "upsert", "insert", "sync.crm") == (
        record["status"],
        record["operation"],
        record["__ondatra_change_type"],
        record["sync_configuration_id"],
    )
    assert "not an address" == record["status_message"]
    (waiting,) = ondatra("records", "sync.crm", "--status", "waiting", "--json").json_lines
    assert (1, None) == (waiting["attempts"], waiting["sync_run_id"])


@pytest.mark.usefixtures("shop_with_records")
def test_records_of_one_run_are_shown_separately(ondatra: CommandLine) -> None:
    assert ["waiting"] == [words[0] for words in lines(ondatra, "--run", SECOND)]
    assert {"succeeded", "rejected", "NULL"} == {words[0] for words in lines(ondatra, "--run", FIRST)}
    result = ondatra("records", "sync.crm", "--run", FIRST, "--status", "waiting")
    assert (0, "nothing of this run is pending; pending rows are listed with the newest run, or without --run\n") == (
        result.exit_code,
        result.stderr,
    )


@pytest.mark.parametrize(
    ("header", "told"),
    [
        ("-- @kind: merge\n-- @unique_key: id, email\n", 'spelled ["id","email"]'),
        ("-- @kind: append\n", "the numbers of __ondatra_rowid"),
    ],
)
def test_an_empty_result_explains_the_form_of_identifiers(
    shop: ShopProject, ondatra: CommandLine, header: str, told: str
) -> None:
    """A user can't guess an identifier that isn't a column's value."""
    model = shop.root / "models" / "sync" / "crm.sql"
    model.write_text(f"{header}-- @sink: crm_push\nSELECT id, email FROM raw.contacts\n")
    shop.workspace.tracking.publish_records("sync.crm", FIRST, RecordFileType.UPDATED, 0, [])
    result = ondatra("records", "sync.crm", "--search", "a1")
    assert (0, f"no record matches; identifiers of sync.crm are {told}\n") == (result.exit_code, result.stderr)
    page = PageReader(ProjectCache(shop.root))("/syncs/sync.crm/records?search=a1")
    assert f"No record matches; identifiers of sync.crm are {told}." in page.text


def test_a_run_in_which_no_row_ended_says_so(shop: ShopProject, ondatra: CommandLine) -> None:
    """The API was down. The message must not blame the search."""
    for run_id in (FIRST, SECOND):
        shop.workspace.tracking.publish_records("sync.crm", run_id, RecordFileType.UPDATED, 0, [])
    assert "no row ended in this run\n" == ondatra("records", "sync.crm", "--run", FIRST).stderr
    page = PageReader(ProjectCache(shop.root))(f"/syncs/sync.crm/records?run={FIRST}")
    assert "No row ended in this run." in page.text


@pytest.mark.usefixtures("shop")
def test_a_sync_without_records_says_so(ondatra: CommandLine) -> None:
    result = ondatra("records", "sync.crm")
    assert (0, "", "sync.crm has no records yet\n") == (result.exit_code, result.stdout, result.stderr)


@pytest.mark.usefixtures("shop_with_records")
def test_a_user_is_informed_that_there_are_more_records(ondatra: CommandLine) -> None:
    result = ondatra("records", "sync.crm", "--limit", "2")
    assert 3 == len(result.stdout.splitlines())
    assert "(the newest 2; --limit shows more, --download FILE writes all)\n" == result.stderr
    assert "no record matches\n" == ondatra("records", "sync.crm", "--search", "zz").stderr


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (None, ("abcdefghijklmnopqrst", "abcdefghijklmnopqrst")),
        (42, ("abcdefghijklmnopqrst", "abcdefghijklmnopqrst")),
        (40, ("abcdefghijklmnopqrst", "abcdefghijklmnopq…")),
        (30, ("abcdefghijklmno…", "abcdefghijk…")),
        (10, ("abcdefghijk…", "abcdefghijk…")),
    ],
)
def test_a_line_fits_the_terminal(width: int | None, expected: tuple[str, str]) -> None:
    """Columns are cut one after the other, but a part of each remains."""
    head, row = ("identifier", "payload"), ("abcdefghijklmnopqrst", "abcdefghijklmnopqrst")
    shrinks = (ColumnShrink("payload", 12), ColumnShrink("identifier", 12))
    assert [list(expected)] == list(map(list, shrink_columns(head, [row], width=width, shrinks=shrinks)))


@pytest.mark.parametrize(
    ("width", "identifier", "reason", "payload"),
    [(80, 12, 15, 7), (100, 12, 30, 12), (120, 22, 40, 12), (160, 24, 60, 30), (240, 36, 80, 78)],
)
def test_a_reason_stays_readable_in_a_narrow_terminal(width: int, identifier: int, reason: int, payload: int) -> None:
    """The user looks for the reason. A few characters of the payload and the beginning of the identifier are enough."""
    row = ("rejected", "i" * 36, "upsert", "2026-11-19 08:47:29", "r" * 80, "p" * 200)
    (cut,) = shrink_columns(RECORDS_HEAD, [row], width=width, shrinks=RECORDS_SHRINKS)
    widths = dict(zip(RECORDS_HEAD, map(display_width, cut), strict=True))
    assert (identifier, reason, payload) == (widths["identifier"], widths["reason"], widths["payload"])
    (same,) = shrink_columns(
        RECORDS_HEAD, [(*row[:1], "C-1", *row[2:4], "r" * 30, "p" * 200)], width=100, shrinks=RECORDS_SHRINKS
    )
    assert "r" * 30 == same[RECORDS_HEAD.index("reason")]


@pytest.mark.usefixtures("shop_with_records")
def test_records_can_be_downloaded(ondatra: CommandLine) -> None:
    """A download has all records, whatever number a table would show."""
    for suffix in ("csv", "json", "PARQUET"):
        result = ondatra("records", "sync.crm", "--download", f"out.{suffix}")
        assert (0, "", f"out.{suffix} has 4 records\n") == (result.exit_code, result.stdout, result.stderr)
    with Path("out.csv").open(newline="") as file:
        keys = [line["identifier"] for line in csv.DictReader(file)]
    assert keys == [record["identifier"] for record in json.loads(Path("out.json").read_text())]
    assert keys == pq.read_table("out.PARQUET")["identifier"].to_pylist()
    result = ondatra("records", "sync.crm", "--status", "rejected", "--download", "out.csv", "--json")
    assert [{"file": "out.csv", "records": 1}] == result.json_lines


@pytest.mark.usefixtures("shop_with_records")
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["sync.crmm"], 2, "did you mean 'sync.crm'?"),
        (["sync.crm", "--status", "rejectd"], 2, "did you mean 'rejected'? the statuses are invalid, pending"),
        (["sync.crm", "--run", "2026"], 2, "sync.crm has no records of a run '2026'; the newest runs are 20"),
        (["sync.crm", "--download", "out.cvs"], 2, "end its name with .csv, .json or .parquet"),
        (["sync.crm", "--download", "out"], 2, "out has no known format"),
        (["sync.crm", "--download", "folder.csv"], 2, "folder.csv is a folder; name a file in it"),
        (["sync.crm", "--download", "nope/out.csv"], 1, "nope/out.csv can't be written: there is no such folder"),
        (["sync.crm", "--download", "/proc/out.csv"], 1, "/proc/out.csv can't be written: "),
    ],
)
def test_an_impossible_request_is_refused_in_one_sentence(
    ondatra: CommandLine, words: list[str], code: int, said: str
) -> None:
    """A wrong name is refused with the nearest valid one."""
    Path("folder.csv").mkdir()
    answer = ondatra("records", *words)
    assert (code, "") == (answer.exit_code, answer.stdout)
    assert said in answer.stderr
    assert "Traceback" not in answer.stderr
