"""A sync whose state is lost: what `ondatra run` sends, and what it waits for."""

import shutil

from support.log_table import PlainLogTable
from support.shop import Shop
from support.terminal import Terminal

from ondatra_dagster.testing.demo_api.server import DemoApi


def lose_state(shop: Shop) -> None:
    """Remove queues, history and all of the tracking store: the tables are elsewhere."""
    for path in ("queue", "tracking"):
        shutil.rmtree(shop.root / ".ondatra" / path)
    for path in (shop.root / ".ondatra").glob("history.sqlite*"):
        path.unlink()


def test_the_sync_log_shows_that_rows_were_delivered(shop: Shop, api: DemoApi, ondatra: Terminal) -> None:
    """Nothing is sent until the user says how to go on; `--allow-new-state` sends all rows as new ones."""
    ondatra.run(shop)
    shop.workspace.sync_log.append(PlainLogTable(shop.workspace.settings))
    api.clear()
    lose_state(shop)
    said = ondatra.run(shop)
    assert (1, ()) == (said.code, api.calls)
    assert "`ondatra resync sync.crm`" in said.err
    assert "`ondatra run --allow-new-state sync.crm`" in said.err
    said = ondatra("run", "--allow-new-state", "--dry-run", "sync.crm", shop=shop)
    assert (0, ()) == (said.code, api.calls)
    assert "would create 2 rows" in said.err
    said = ondatra("run", "--allow-new-state", "sync.crm", shop=shop)
    assert (0, 2) == (said.code, len(api.calls))
    assert "sync.crm runs for the first time: 2 inserts to send to http://127.0.0.1:" in said.err


def test_a_sync_that_was_never_logged_begins(shop: Shop, api: DemoApi, ondatra: Terminal) -> None:
    """Nothing shows a delivery, so it is a first run."""
    ondatra.run(shop)
    api.clear()
    lose_state(shop)
    said = ondatra.run(shop)
    assert (0, 2) == (said.code, len(api.calls))


def test_a_lost_queue_is_said_in_the_run(shop: Shop, api: DemoApi, ondatra: Terminal) -> None:
    """And nothing is sent again."""
    ondatra.run(shop)
    api.clear()
    shutil.rmtree(shop.root / ".ondatra" / "queue")
    said = ondatra.run(shop)
    assert (0, ()) == (said.code, api.calls)
    assert "sync.crm: the queue is missing; it goes on from what was left in the tracking store" in said.err
