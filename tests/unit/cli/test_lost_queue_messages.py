"""The messages about a sync with a lost queue, until its next run. They don't call it idle or new."""

import pytest
from support.processes.cli_terminal import CommandLine
from support.projects.shop_project import ShopProject, write_contacts
from support.projects.shop_with_history import run_shop
from support.projects.ui_client import PageReader

from ondatra_dagster.app.workspace import ProjectCache
from ondatra_dagster.testing.demo_api.demo_server import DemoApi

LOST = "its queue is lost: the next run rebuilds it from the queue snapshot and the records"
FORGOTTEN = "it was forgotten: the next run requires `ondatra resync sync.crm`"
SYNC = "/syncs/sync.crm"


@pytest.fixture
def shop_with_lost_queue(shop: ShopProject, ondatra: CommandLine, api: DemoApi) -> ShopProject:
    """Return a shop with one waiting key and one dead letter, whose queue was then deleted."""
    contacts = {"a1": "ada@example.com", "b2": "nonsense"}
    write_contacts(shop.root, **contacts)
    run_shop(shop)
    write_contacts(shop.root, **contacts, c3="cy@example.com")
    api.fail(path="/crm/contacts", status=503)
    run_shop(shop)
    write_contacts(shop.root, **contacts, c3="cy@example.com", d4="di@example.com")
    run_shop(shop)
    assert (1, 1) == depth_and_dead(ondatra)
    lose(shop)
    return shop


def lose(shop: ShopProject) -> None:
    for file in (shop.root / ".ondatra" / "queue").iterdir():
        file.unlink()


def status(ondatra: CommandLine) -> dict[str, object]:
    return ondatra("status", "--json").json_lines[-1]


def depth_and_dead(ondatra: CommandLine) -> tuple[object, object]:
    line = status(ondatra)
    return line["waiting"], line["dead"]


def test_status_shows_no_counts_and_says_what_the_next_run_does(
    shop_with_lost_queue: ShopProject, ondatra: CommandLine
) -> None:
    """Zeros would mean that all rows have arrived. "Never ran" would mean that all rows are sent again."""
    line = status(ondatra)
    assert [None, None, None, None] == [line[name] for name in ("waiting", "open_jobs", "dead", "error")]
    assert (True, True) == (line["lost"], line["will_run"])
    assert str(line["plan"]).startswith(LOST)
    result = ondatra("status")
    assert (0, True) == (result.exit_code, f"{LOST}, or requires `ondatra resync sync.crm`" in result.stdout)


def test_metrics_have_no_queue_depth(shop_with_lost_queue: ShopProject, ondatra: CommandLine) -> None:
    """Otherwise an alert on dead letters would be resolved and then raised again."""
    metrics = ondatra("status", "--metrics").stdout
    assert "ondatra_sync_runs_total" in metrics
    assert "ondatra_sync_queue_depth" not in metrics
    assert "ondatra_sync_dead_letters" not in metrics


@pytest.mark.parametrize("words", [["dead"], ["dead", "--json"], ["replay", "--preview"]])
def test_no_command_says_that_there_are_no_dead_letters(
    shop_with_lost_queue: ShopProject, ondatra: CommandLine, words: list[str]
) -> None:
    result = ondatra(*words, "sync.crm")
    assert (1, "") == (result.exit_code, result.stdout)
    assert f"the dead letters are unknown: {LOST}" in result.stderr


def test_the_records_command_says_that_pending_rows_are_missing(
    shop_with_lost_queue: ShopProject, ondatra: CommandLine
) -> None:
    result = ondatra("records", "sync.crm")
    assert f"pending rows are missing: {LOST}" in result.stderr
    assert LOST not in ondatra("records", "sync.crm", "--status", "rejected").stderr


def test_pause_and_resume_report_the_lost_queue(shop_with_lost_queue: ShopProject, ondatra: CommandLine) -> None:
    assert f"sync.crm is paused, and {LOST}" in ondatra("pause", "sync.crm").stderr
    assert f"sync.crm is no longer paused; {LOST}" in ondatra("resume", "sync.crm").stderr


def test_forget_says_what_would_be_lost(shop_with_lost_queue: ShopProject, ondatra: CommandLine) -> None:
    """It would delete the queue snapshot from which the next run rebuilds the queue."""
    assert "would lose what its lost queue would be rebuilt from" in ondatra("forget", "sync.crm").stderr


def test_maintenance_reports_dead_letters_of_a_lost_queue_as_unknown(
    shop_with_lost_queue: ShopProject, ondatra: CommandLine
) -> None:
    result = ondatra("maintain", "--json", shop=shop_with_lost_queue)
    (task,) = [line for line in result.json_lines if line["task"] == "dead_letters"]
    assert (True, "there are none; unknown for sync.crm: its queue is lost") == (task["ok"], task["did"])


def test_every_page_reports_the_lost_queue(shop_with_lost_queue: ShopProject) -> None:
    look = PageReader(ProjectCache(shop_with_lost_queue.root))
    first = look("/").text
    assert "✕ queue lost" in first
    assert LOST in first
    assert "1 sync · 1 with a problem · 1 sync with unknown pending rows" in first
    for address in (SYNC, f"{SYNC}/queue", f"{SYNC}/records", f"{SYNC}/reasons?status=waiting"):
        assert f"The pending rows are unknown: {LOST}" in look(address).text
    queue = look(f"{SYNC}/queue").text
    assert "The dead letters are unknown." in queue
    assert "never run" not in queue


def test_the_next_run_rebuilds_the_queue(shop_with_lost_queue: ShopProject, ondatra: CommandLine) -> None:
    """It continues from the queue snapshot."""
    run_shop(shop_with_lost_queue)
    assert (1, 1) == depth_and_dead(ondatra)
    assert LOST not in ondatra("dead", "sync.crm").stderr
    assert "queue lost" not in PageReader(ProjectCache(shop_with_lost_queue.root))("/").text


def test_a_replay_says_that_the_queue_is_not_rebuilt_yet(
    shop_with_lost_queue: ShopProject, ondatra: CommandLine
) -> None:
    """The user would read "0 dead letters" as the complete number."""
    (shop_with_lost_queue.root / "pyproject.toml").write_text('[tool.ondatra]\nsinks = "off"\n')
    result = ondatra("replay", "sync.crm")
    assert f"nothing of sync.crm can be replayed now; replay again after the next run: {LOST}" in result.stderr


def test_a_forgotten_sync_asks_for_a_resync(shop_with_lost_queue: ShopProject, ondatra: CommandLine) -> None:
    """It asks before and after the refused run, until the user resyncs. The next run doesn't rebuild the queue."""
    assert 0 == ondatra("forget", "sync.crm", "--yes").exit_code
    for _ in range(2):
        assert (None, FORGOTTEN) == (status(ondatra)["dead"], status(ondatra)["plan"])
        assert FORGOTTEN in ondatra("dead", "sync.crm").stderr
        assert FORGOTTEN in PageReader(ProjectCache(shop_with_lost_queue.root))(f"{SYNC}/queue").text
        feeds, *_ = ondatra("maintain", "--json", shop=shop_with_lost_queue).json_lines
        assert feeds["ok"]
        assert 1 == ondatra.run_project(shop_with_lost_queue).exit_code
    ondatra("resync", "sync.crm", "--assume-delivered", shop=shop_with_lost_queue)
    assert (0, 0) == depth_and_dead(ondatra)
    lose(shop_with_lost_queue)
    assert str(status(ondatra)["plan"]).startswith(LOST)


def test_a_queue_lost_with_its_snapshot_is_reported_as_lost_after_the_refusal(
    shop_with_lost_queue: ShopProject, ondatra: CommandLine
) -> None:
    """The refused run leaves an empty queue, which counts as none."""
    for snapshot in (shop_with_lost_queue.root / ".ondatra" / "tracking" / "queue_snapshots").rglob("*.parquet"):
        snapshot.unlink()
    assert 1 == ondatra.run_project(shop_with_lost_queue).exit_code
    assert (None, None) == depth_and_dead(ondatra)
    assert LOST in ondatra("dead", "sync.crm").stderr


def test_a_sync_that_never_ran_has_nothing_to_lose(shop: ShopProject, ondatra: CommandLine) -> None:
    ondatra.run_project(shop, is_dry=True)
    assert (0, 0) == depth_and_dead(ondatra)
    assert (0, "there are no dead letters\n") == (
        ondatra("dead", "sync.crm").exit_code,
        ondatra("dead", "sync.crm").stderr,
    )
    assert not status(ondatra)["lost"]
