"""A series of sync runs that can be killed at any call into C. Each is a fork of one process, so it starts at once."""

import json
import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path
from typing import Self

from support.syncs.keyed_feed_table import KeyedFeedTable
from support.syncs.kind_feed_table import KindFeedTable
from support.syncs.real_sync import build_sync

from ondatra_dagster.delivery.acknowledged_to_desired_diff import UnitKind
from ondatra_dagster.sync.sync_definition import Sync
from ondatra_dagster.testing.demo_api import DemoApi

KILLED_STATUS = -signal.SIGKILL
ROOT = Path(__file__).parents[3]

ROW_PUSH = """
API = {"base_url": "BASE", "auth": {"env": "API_KEY"}, "retry": 0, "push": {"batch_size": SIZE}}

def push(rows):
    results = {}
    for row in rows:
        change = row["__ondatra_change_type"]
        contact = {"customer_id": row["id"], "email": str(row["value"]) + "@example.com"}
        if change == "update_preimage":
            answer = None
        elif change == "delete":
            answer = http.delete("/crm/contacts/" + row["id"])
        elif change == "insert":
            answer = http.post("/crm/contacts", json=contact)
        else:
            answer = http.patch("/crm/contacts/" + row["id"], json=contact)
        ok = answer == None or answer.ok or answer.status_code in [404, 409]
        results[str(row["__ondatra_rowid"]) + ":" + change] = "ok" if ok else "error: " + answer.text
    return results
"""
GROUP_PUSH = """
API = {"base_url": "BASE", "auth": {"env": "API_KEY"}, "retry": 0, "push": {"batch_size": SIZE}}

def push(rows):
    groups = {}
    for row in rows:
        groups.setdefault(row["id"], []).append(row)
    results = {}
    for id, changes in groups.items():
        lines = [{"quantity": r["value"]} for r in changes if r["__ondatra_change_type"] == "insert"]
        if lines:
            answer = http.put("/erp/invoices/" + id, json={"invoice_id": id, "lines": lines})
        else:
            answer = http.delete("/erp/invoices/" + id)
        status = "ok" if answer.ok or answer.status_code == 404 else "error: " + answer.text
        if answer.status_code == 422:
            status = "reject: " + answer.text
        for row in changes:
            results[str(row["__ondatra_rowid"]) + ":" + row["__ondatra_change_type"]] = status
    return results
"""
# rows that are named by their rowids; a version that has ended gets an odd quantity
ROWID_PUSH = """
API = {"base_url": "BASE", "auth": {"env": "API_KEY"}, "retry": 0,
       "push": {"batch_size": SIZE, "max_concurrent": AT_ONCE}}

def push(rows):
    return {str(row["__ondatra_rowid"]) + ":" + row["__ondatra_change_type"]: send(row) for row in rows}

def send(row):
    id, change = str(row["__ondatra_rowid"]), row["__ondatra_change_type"]
    if change == "update_preimage":
        return "ok"
    if change == "delete":
        answer = http.delete("/erp/invoices/" + id)
    else:
        quantity = 2 * row["value"] + (0 if row.get("is_current", True) else 1)
        answer = http.put("/erp/invoices/" + id, json={"invoice_id": id, "lines": [{"quantity": quantity}]})
    if answer.status_code == 422:
        return "reject: " + answer.text
    return "ok" if answer.ok or answer.status_code == 404 else "error: " + answer.text
"""
# whole contents: a partition is named by its id, a table is named "all"
WHOLE_CONTENT_PUSH = """
API = {"base_url": "BASE", "auth": {"env": "API_KEY"}, "retry": 0,
       "push": {"batch_size": 0, "max_concurrent": AT_ONCE}}

def push(rows, kind):
    id = rows[0]["id"] if kind == "partition" else "all"
    lines = [{"quantity": row["value"]} for row in rows]
    if lines:
        answer = http.put("/erp/invoices/" + id, json={"invoice_id": id, "lines": lines})
    else:
        answer = http.delete("/erp/invoices/" + id)
    ok = answer.ok or answer.status_code == 404
    status = "ok" if ok else "reject: no" if answer.status_code == 422 else "error: " + answer.text
    if not rows and status != "ok":
        fail(status)
    return {str(row["__ondatra_rowid"]) + ":insert": status for row in rows}
"""
PUSH_BY_SHAPE = {UnitKind.ROW: ROW_PUSH, UnitKind.GROUP: GROUP_PUSH}
KIND_BY_SHAPE = {UnitKind.ROW: "merge", UnitKind.GROUP: "tracked"}


class ForkedSyncRuns:
    """The process that forks the runs."""

    def __init__(
        self, api: DemoApi, shape: UnitKind, *, batch_size: int, library: str | None = None, kind: str = ""
    ) -> None:
        self.shape = shape
        self.kind = kind or KIND_BY_SHAPE[shape]
        self.now = 1_800_000_000.0
        self._library = (library or PUSH_BY_SHAPE[shape]).replace("BASE", api.url).replace("SIZE", str(batch_size))
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("sync_fork_server.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"},
        )

    def use_state_folder(self, state: Path) -> None:
        """Create a new state folder and use it for all later runs."""
        (state / "lib").mkdir(parents=True)
        (state / "lib" / "api.star").write_text(self._library)
        self.state = state

    @property
    def sync(self) -> Sync:
        return build_sync(self.state, self.kind)

    def run(
        self, table: KeyedFeedTable | KindFeedTable, *, die_at: int | None = None, point: tuple[str, int] | None = None
    ) -> int:
        """Run the sync and return its exit status: 0, or minus the number of the signal that killed it."""
        self.now += 1
        (self.state / "table.pickle").write_bytes(pickle.dumps(table))
        order = {"state": str(self.state), "kind": self.kind, "now": self.now, "die_at": die_at, "point": point}
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return int(json.loads(self._process.stdout.readline())["status"])

    @property
    def last_call_count(self) -> int:
        """Return how many calls into C the last complete run made."""
        return int((self.state / "calls").read_text())

    @property
    def queue_path(self) -> Path:
        return self.state / "queue" / "sync.api.sqlite"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def read_delivered_values(api: DemoApi, shape: UnitKind) -> dict[str, list[int]]:
    """Return the API's content in the form of the table's content."""
    if shape is UnitKind.ROW:
        return {key: [int(str(row["email"]).partition("@")[0])] for key, row in api.contacts().items()}
    return {
        key: sorted(line["quantity"] for line in row["lines"])  # type: ignore[index, union-attr, call-overload]
        for key, row in api.invoices().items()
    }
