"""The idempotency keys of a resync: an API that stores its answers must apply the same rows once more."""

import shutil
from pathlib import Path

import pytest
from support.apis.idempotency_key_api import IdempotencyKeyApi, running_idempotency_key_api
from support.syncs.keyed_feed_table import KeyedFeedTable
from support.syncs.real_sync import build_ports, build_sync

from ondatra_dagster.delivery.acknowledged_to_desired_diff import UnitKind
from ondatra_dagster.sync.recovery.queue_reset_by_resync_or_forget import ResyncOptions, forget_sync, resync_queue
from ondatra_dagster.sync.run_context import Ports, RunOptions
from ondatra_dagster.sync.sync_definition import Sync
from ondatra_dagster.sync.sync_run import run_sync

PUSH = """
API = {"base_url": "BASE"}

def push(rows):
    after = [row for row in rows if row["__ondatra_change_type"] != "update_preimage"]
    http.post("/upsert", json=[row["value"] for row in after])
    return {str(row["__ondatra_rowid"]) + ":" + row["__ondatra_change_type"]: "ok" for row in rows}
"""


def begin(state: Path, api: IdempotencyKeyApi) -> tuple[Sync, Ports]:
    """Return a sync of three rows, all of them delivered, and its ports."""
    (state / "lib").mkdir()
    (state / "lib" / "api.star").write_text(PUSH.replace("BASE", api.url))
    table = KeyedFeedTable(UnitKind.ROW)
    for number, key in enumerate("abc"):
        table.write(key, [number])
    sync = build_sync(state, "merge")
    ports = build_ports(sync, table, {}, now=1_800_000_000.0)
    run(sync, ports)
    assert [[0, 1, 2]] == api.applied_bodies
    return sync, ports


def run(sync: Sync, ports: Ports) -> None:
    run_sync(sync, ports, RunOptions(trigger="test"))


@pytest.mark.parametrize("loses_queue", [False, True])
def test_each_resync_has_new_keys_even_if_its_queue_is_lost(tmp_path: Path, *, loses_queue: bool) -> None:
    with running_idempotency_key_api() as api:
        sync, ports = begin(tmp_path, api)
        for times in (2, 3):
            assert 3 == resync_queue(sync, ports, ResyncOptions())
            if loses_queue:
                shutil.rmtree(sync.queue_file.parent)
            run(sync, ports)
            assert [[0, 1, 2]] * times == api.applied_bodies


def test_a_forgotten_sync_has_other_keys_once_it_is_resynced(tmp_path: Path) -> None:
    """`ondatra forget` deletes the queue snapshot too, and with it all that the keys were made of before."""
    with running_idempotency_key_api() as api:
        sync, ports = begin(tmp_path, api)
        for times in (2, 3):
            forget_sync(sync, ports.record_store)
            resync_queue(sync, ports, ResyncOptions())
            run(sync, ports)
            assert [[0, 1, 2]] * times == api.applied_bodies
