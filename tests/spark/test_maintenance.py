"""Maintenance of real tables: nothing goes that somebody still reads, and what nobody needs does."""

from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
from support.aged_tables import age, files_of
from support.model_tables import ModelTables, a_model, values
from support.spark_project import SparkProject

from ondatra_dagster.cli.maintain import maintain
from ondatra_dagster.cli.run import run
from ondatra_dagster.delivery.queue.states import queue_state
from ondatra_dagster.errors import WarehouseError
from ondatra_dagster.operations.maintain import Done
from ondatra_dagster.operations.tables import Maintained, Upkeep, Worth
from ondatra_dagster.planning.delta_log import read_table_state
from ondatra_dagster.planning.live_files import live_table
from ondatra_dagster.planning.table_past import FILES_KEPT, KEPT, RETENTIONS, readable_from, rows_stay_until
from ondatra_dagster.project.model import Model
from ondatra_dagster.project.settings.addresses import Address
from ondatra_dagster.project.settings.s3_access import S3Access
from ondatra_dagster.testing.demo_api import DEMO_KEY, DemoApi
from ondatra_dagster.warehouse.spark_session import Warehouse
from ondatra_dagster.warehouse.upkeep import UpkeepTable

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
NOW = 2_000_000_000.0


def look_after(
    lake: ModelTables,
    model: Model,
    *,
    needed: int,
    now: float,
    days: int = 7,
    path: str | None = None,
    clock: Callable[[], float] | None = None,
) -> Done:
    address = Address(path or lake.path(model), S3Access())
    table = Maintained(name=model.name, lock=model.id, address=address, needed=lambda _: needed)
    upkeep = Upkeep(
        lambda table: UpkeepTable(lake.warehouse, table.address, lock=table.lock),
        days=days,
        clock=clock or (lambda: now),
        worth=Worth(small_files=10, files=1, log_files=10),
    )
    return upkeep.go([table])


def live(path: str) -> set[str]:
    table = live_table(path)
    assert table is not None
    return {str(Path(file.path).relative_to(path)) for file in table.files}


def now_of(lake: ModelTables, model: Model) -> float:
    changed_at = lake.state(model).changed_at
    assert changed_at is not None
    return changed_at.timestamp()


def old_versions(lake: ModelTables, kind: str, *, count: int) -> Model:
    """So many versions, four days after each other; the newest is of now."""
    for number in range(count):
        if number:
            age(lake.warehouse.session, lake.path(a_model(kind, "")), days=4, with_checkpoints=True)
        rows = [f"1, 'v{number}'", *(f"{10 + n}, 'x'" for n in range(number + 1))]
        lake.write(a_model(kind, values(*rows)))
    return a_model(kind, "")


@pytest.mark.parametrize("kind", ["merge", "scd2"])
def test_what_a_reader_behind_needs_stays_and_the_rest_goes(lake: ModelTables, kind: str) -> None:
    """Versions and weeks behind: feed and snapshot from its watermark on are as they were."""
    model = old_versions(lake, kind, count=6)
    now, first = now_of(lake, model), lake.told(model, 1)
    before, files = lake.told(model, 3), files_of(lake.path(model))
    snapshot = lake.told(model, None, 3)
    done = look_after(lake, model, needed=3, now=now)
    assert done.is_good, done.did
    assert first != before == lake.told(model, 3)
    assert snapshot == lake.told(model, None, 3)
    freed = files - files_of(lake.path(model))
    assert 0 < done.counts["files"] == len(freed)
    state = lake.state(model)
    assert KEPT == state.properties[FILES_KEPT]

    age(lake.warehouse.session, lake.path(model), days=60)
    done = look_after(lake, model, needed=state.version, now=now)
    assert done.is_good, done.did
    assert live(lake.path(model)) == files_of(lake.path(model))
    assert state.version == lake.state(model).version
    assert state.note == lake.state(model).note
    assert lake.told(model, None, state.version)
    assert 0 == look_after(lake, model, needed=state.version, now=now).counts["tables"]


def test_a_round_that_takes_hours_frees_no_more_for_it(lake: ModelTables) -> None:
    """What may go was decided at its beginning, by a VACUUM that counts back from its own moment."""
    model = old_versions(lake, "merge", count=5)
    now, before = now_of(lake, model), lake.told(model, 3)
    moments = iter([now])
    done = look_after(lake, model, needed=3, now=now, clock=lambda: next(moments, now + 5 * 86_400))
    assert done.is_good, done.did
    assert before == lake.told(model, 3)
    log = Path(lake.path(model), "_delta_log")
    said = [orjson.loads(line) for path in log.glob("*.json") for line in path.read_bytes().splitlines()]
    told = [action["commitInfo"] for action in said if "commitInfo" in action]
    (vacuum,) = [commit for commit in told if commit["operation"] == "VACUUM START"]
    assert 12 * 86_400_000 < int(vacuum["operationParameters"]["defaultRetentionMillis"])


def test_a_vacuum_before_which_the_machine_sleeps_is_left_for_the_next_time(lake: ModelTables) -> None:
    """It would free what was taken out in the hours between our look at the clock and its own."""
    model = old_versions(lake, "merge", count=5)
    now, told, files = now_of(lake, model), lake.told(model, 1), files_of(lake.path(model))
    moments = iter([now, now])  # when the round begins, and when its retention is reckoned
    done = look_after(lake, model, needed=3, now=now, clock=lambda: next(moments, now + 7200))
    assert (True, 0) == (done.is_good, done.counts["files"])
    assert "left for the next time, for the machine stood still meanwhile: mart.things" in done.did
    assert (files, told) == (files_of(lake.path(model)), lake.told(model, 1))
    state = lake.state(model)
    assert (KEPT, -1) == (state.properties[FILES_KEPT], readable_from(lake.path(model), state))
    assert 0 < look_after(lake, model, needed=3, now=now).counts["files"]


def test_what_was_set_aside_begins_with_what_is_left(lake: ModelTables) -> None:
    """A sync that looks for the first time when the beginning was freed."""
    model = a_model("merge", "")
    beside = f"{lake.path(model)}__invalid"
    for number in range(5):
        if number:
            age(lake.warehouse.session, beside, days=4, with_checkpoints=True)
        lake.write(a_model("merge", values("1, 'a'", f"null, 'v{number}'")))
    assert ["v0", "v1", "v2", "v3", "v4"] == set_aside(lake, model)
    state = read_table_state(beside)
    assert state
    assert state.changed_at
    done = look_after(lake, model, needed=state.version, now=state.changed_at.timestamp(), path=beside)
    assert done.is_good, done.did
    assert 0 < done.counts["files"]
    assert ["v2", "v3", "v4"] == set_aside(lake, model)


def set_aside(lake: ModelTables, model: Model) -> list[str]:
    return [orjson.loads(row.payload)["name"] for row in lake.invalid(model, -1)]


def test_small_files_are_put_together_and_old_commits_go(lake: ModelTables) -> None:
    """An append makes a file each time; note and version of the newest stay, so no model runs for it."""
    model = a_model("append", "")
    for number in range(13):
        if number:
            age(lake.warehouse.session, lake.path(model), days=4, with_checkpoints=True)
        lake.write(a_model("append", values(f"{number}, 'x'")))
    before, told = lake.state(model), lake.told(model, 1)
    rows = sorted(map(str, lake.rows(model).collect()))
    done = look_after(lake, model, needed=1, now=now_of(lake, model))
    assert (13, 1) == (done.counts["small_files"], done.counts["became"])
    assert 1 == len(live(lake.path(model)))
    assert before.log_version < lake.state(model).log_version
    assert told == lake.told(model, 1)
    assert 0 == look_after(lake, model, needed=1, now=now_of(lake, model)).counts["tables"]

    log = Path(lake.path(model), "_delta_log")
    commits = len(list(log.glob("*.json")))
    done = look_after(lake, model, needed=before.version, now=now_of(lake, model))
    assert done.is_good, done.did
    assert 10 <= done.counts["log_files"]
    assert commits > len(list(log.glob("*.json")))
    after = lake.state(model)
    assert (before.version, before.note, before.columns) == (after.version, after.note, after.columns)
    lake.warehouse.session._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    assert rows == sorted(map(str, lake.rows(model).collect()))
    assert lake.told(model, rows_stay_until(lake.path(model), before.version - 1))
    lake.write(a_model("append", values("99, 'again'")))
    assert before.version < lake.state(model).version


def cut_off_vacuum(lake: ModelTables, model: Model) -> None:
    """What a process leaves that was killed in it."""
    upkeep = UpkeepTable(lake.warehouse, lake.path(model), lock=model.id)
    upkeep._become({**RETENTIONS, FILES_KEPT: "interval 3600 seconds"})


def test_a_vacuum_that_was_cut_off_is_ended_by_the_next_who_reads_or_maintains(lake: ModelTables) -> None:
    """Meanwhile Delta refuses all that is older than what the VACUUM was to keep."""
    model = old_versions(lake, "merge", count=3)
    told = lake.told(model, 1)
    cut_off_vacuum(lake, model)
    with pytest.raises(WarehouseError):
        lake.told(model, 1)
    done = look_after(lake, model, needed=0, now=now_of(lake, model))
    assert (1, 0) == (done.counts["mended"], done.counts["files"])
    assert KEPT == lake.state(model).properties[FILES_KEPT]
    assert told == lake.told(model, 1)

    cut_off_vacuum(lake, model)
    lake.write(a_model("merge", values("1, 'newer'")))
    assert KEPT == lake.state(model).properties[FILES_KEPT]
    assert len(told) < len(lake.told(model, 1))


# --- a whole project

CSV = "csv.`data/people.csv` WITH ('header' = 'true')"
FILES = {
    "models/raw/people.sql": f"-- @kind: merge\n-- @unique_key: customer_id\nSELECT * FROM {CSV}\n",
    "models/mart/past.sql": "-- @kind: scd2\n-- @unique_key: customer_id\nSELECT * FROM raw.people\n",
    "models/mart/seen.sql": "-- @kind: append\nSELECT customer_id, name FROM raw.people\n",
    "models/sync/crm.sql": (
        "-- @kind: merge\n-- @unique_key: customer_id\n-- @sink: crm_push\n"
        "SELECT customer_id, name, email FROM raw.people\n"
    ),
}
COLUMNS = ("customer_id", "name", "email")


@pytest.fixture
def shop(tmp_path: Path, shared_warehouse: Warehouse, api: DemoApi) -> SparkProject:
    shop = SparkProject(tmp_path / "my shop", shared_warehouse.session)
    push = (ROOT / "lib" / "crm_push.star").read_text().replace('"http://127.0.0.1:8321"', f'"{api.url}"')
    shop.write({**FILES, "lib/crm_push.star": push, ".env": f"DEMO_API_KEY={DEMO_KEY}\n"})
    shop.write({"pyproject.toml": "[tool.ondatra]\n"})
    return shop


def set_sinks(shop: SparkProject, how: str) -> None:
    shop.write({"pyproject.toml": f'[tool.ondatra]\nsinks = "{how}"\n'})


def people(number: int) -> list[tuple[str, str, str]]:
    """As they are in that version: one changes each time, one comes, one goes."""
    return [
        ("C-1", f"Ada {number}", "ada@x.org"),
        *((f"C-{10 + n}", f"Ben {n}", f"b{n}@x.org") for n in range(number, number + 5)),
    ]


def run_some(shop: SparkProject, *models: str) -> None:
    workspace = shop.workspace
    plan = workspace.plan(set(models))
    assert 0 == run(workspace, plan, as_json=True, opened=shop._opened_without_end)


def told_by(shop: SparkProject, capfd: pytest.CaptureFixture[str]) -> dict[str, dict[str, object]]:
    """`ondatra maintain`; what each duty said."""
    capfd.readouterr()
    code = maintain(shop.workspace, as_json=True, opened=shop.opened)
    lines = [orjson.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert 0 == code, lines
    return {line["duty"]: line for line in lines}


def contacts(api: DemoApi) -> set[tuple[object, ...]]:
    return {(key, row["name"], row["email"]) for key, row in api.contacts().items()}


@pytest.mark.soak  # a minute; of each table by itself the tests above show the same
def test_a_sync_ten_versions_and_forty_days_behind_loses_nothing(
    shop: SparkProject, api: DemoApi, capfd: pytest.CaptureFixture[str]
) -> None:
    """And what nobody needs is freed, of every kind; no model runs for it, and no sync."""
    shop.write_rows("people", COLUMNS, people(0))
    assert 0 == shop.run()
    seen = shop.workspace.plan().models
    set_sinks(shop, "off")
    known = {row[0]: row for row in people(0)}
    for number in range(1, 11):
        for name in ("raw.people", "mart.past", "mart.seen", "sync.crm"):
            age(shop.session, shop.path(name), days=4)
        shop.write_rows("people", COLUMNS, people(number))
        known |= {row[0]: row for row in people(number)}
        past = ["mart.past"] if number > 3 else []  # seven versions of it are enough
        run_some(shop, "raw.people", "sync.crm", *past)  # seen is left behind
    assert len(seen) == 4
    before = {name: files_of(shop.path(name)) for name in ("mart.past", "raw.people", "sync.crm")}
    queue = shop.workspace.syncs["sync.crm"].queue
    watermark = queue_state(queue, now=NOW).watermark

    held = told_by(shop, capfd)
    assert held["feeds"]["versions"] == 0
    assert held["tables"]["files"] > 0
    assert before["mart.past"] > files_of(shop.path("mart.past"))
    assert (before["raw.people"], before["sync.crm"]) == (  # still to be read, as they were and since
        files_of(shop.path("raw.people")),
        files_of(shop.path("sync.crm")),
    )
    assert [] == [
        step.model.name
        for step in shop.workspace.plan().models
        if step.will_run and step.model.name != "mart.seen"
    ]

    set_sinks(shop, "on")
    taken = told_by(shop, capfd)
    assert 10 <= taken["feeds"]["versions"]
    state = read_table_state(shop.path("sync.crm"))
    assert watermark < queue_state(queue, now=NOW).watermark == state.version
    assert before["sync.crm"] > files_of(shop.path("sync.crm"))
    queue.unlink()  # what is known of it elsewhere needs no version that has gone
    assert 0 == shop.run()
    assert set(known.values()) == contacts(api)
    assert [("C-1", f"Ada {number}") for number in (0, 10)] == sorted(
        (row["customer_id"], row["name"])
        for row in shop.session.read.format("delta").load(shop.path("mart.seen")).collect()
        if row["customer_id"] == "C-1"
    )
    assert not told_by(shop, capfd)["tables"]["small_files"]
    assert [] == [step.model.name for step in shop.workspace.plan().models if step.will_run]
    assert [] == [step.sync_id for step in shop.workspace.plan().syncs if step.will_run]
    assert not shop.workspace.sync_work(shop.workspace.syncs["sync.crm"]).is_there  # what sensors ask
