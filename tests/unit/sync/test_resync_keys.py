"""The idempotency keys of a resync: an API that stores its answers must do what it did before once more."""

import shutil
from pathlib import Path

import pytest
from support.key_api import KeyApi, running_key_api
from support.real_syncs import the_ports, the_sync
from support.tables import Table

from ondatra_dagster.delivery.target import Shape
from ondatra_dagster.sync.forget import forget
from ondatra_dagster.sync.ports import Ports
from ondatra_dagster.sync.resync import Way, resync
from ondatra_dagster.sync.run import run_sync
from ondatra_dagster.sync.start import Occasion
from ondatra_dagster.sync.sync import Sync

PUSH = """
API = {"base_url": "BASE"}

def push(rows):
    after = [row for row in rows if row["__ondatra_change_type"] != "update_preimage"]
    http.post("/upsert", json=[row["value"] for row in after])
    return {str(row["__ondatra_rowid"]) + ":" + row["__ondatra_change_type"]: "ok" for row in rows}
"""


def begin(state: Path, api: KeyApi) -> tuple[Sync, Ports]:
    """A sync of three rows, all of them delivered."""
    (state / "lib").mkdir()
    (state / "lib" / "api.star").write_text(PUSH.replace("BASE", api.url))
    table = Table(Shape.ROW)
    for number, key in enumerate("abc"):
        table.write(key, [number])
    sync = the_sync(state, "merge")
    ports = the_ports(sync, table, {}, now=1_800_000_000.0)
    run(sync, ports)
    assert [[0, 1, 2]] == api.done
    return sync, ports


def run(sync: Sync, ports: Ports) -> None:
    run_sync(sync, ports, Occasion(trigger="test"))


@pytest.mark.parametrize("loses_queue", [False, True])
def test_a_resync_has_keys_of_its_own_which_outlive_the_queue(tmp_path: Path, *, loses_queue: bool) -> None:
    with running_key_api() as api:
        sync, ports = begin(tmp_path, api)
        for times in (2, 3):
            assert 3 == resync(sync, ports, Way())
            if loses_queue:
                shutil.rmtree(sync.queue.parent)
            run(sync, ports)
            assert [[0, 1, 2]] * times == api.done


def test_a_forgotten_sync_has_other_keys_once_it_is_resynced(tmp_path: Path) -> None:
    """Forgetting takes the frontier along, and with it all that the keys were made of before."""
    with running_key_api() as api:
        sync, ports = begin(tmp_path, api)
        for times in (2, 3):
            forget(sync, ports.tracking)
            resync(sync, ports, Way())
            run(sync, ports)
            assert [[0, 1, 2]] * times == api.done
