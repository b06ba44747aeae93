"""The state folders of a sync: new, copied, lost or restored, or two that deliver it at the same time."""

import dataclasses
import shutil
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from ondatra_dagster.delivery.queue.queue_status import read_status_of_file
from ondatra_dagster.delivery.row_outcome import RowOutcome
from ondatra_dagster.errors import OtherStateFolderError, ResyncNeededError
from ondatra_dagster.records.metadata_and_heartbeat_format import RunHeartbeat
from ondatra_dagster.records.record_store import RecordStore
from ondatra_dagster.storage.state_folder_id import STATE_ID_FILE, ensure_state_id
from ondatra_dagster.sync.run_context import RunOptions
from ondatra_dagster.sync.run_summary import RunSummary
from ondatra_dagster.sync.sync_run import run_sync
from tests.unit.sync.conftest import ContactsTable, ContactSyncHarness, InMemoryContactApi

SYNC = "sync.contacts"


class WatchedStore(RecordStore):
    """A store that notes when a heartbeat of another state folder was read."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.met = threading.Event()

    def read_heartbeat(self, sync_id: str) -> RunHeartbeat | None:
        mark = super().read_heartbeat(sync_id)
        if mark and mark.state_id != self.state.id:
            self.met.set()
        return mark


class SyncMachine:
    """A machine with a separate state folder, and the messages of its runs."""

    def __init__(self, state: Path, records: Path, contacts: ContactsTable, api: InMemoryContactApi) -> None:
        state.mkdir(exist_ok=True)
        self.harness = ContactSyncHarness(
            state=state, contacts=contacts, api=api, tracking_location=str(records), batch_size=1
        )
        self.output: list[str] = []
        self.while_it_waits: Callable[[], None] = lambda: None

    def run(self, *, is_new_state: bool = False, **ports: object) -> RunSummary:
        self.output.clear()
        self.harness.now += 1
        run_ports = dataclasses.replace(
            self.harness.build_ports(),
            notify=self.output.append,
            sleep=self._sleep,
            **{"is_in_sync_log": bool, **ports},
        )
        return run_sync(self.harness.sync, run_ports, RunOptions(trigger="test", allows_new_state=is_new_state))

    def _sleep(self, seconds: float) -> None:
        self.harness.now += seconds
        self.while_it_waits()

    @property
    def id(self) -> str:
        return ensure_state_id(self.harness.state).id


@pytest.fixture
def machines(tmp_path: Path) -> tuple[SyncMachine, SyncMachine]:
    contacts, api = ContactsTable(), InMemoryContactApi()
    one, two = (SyncMachine(tmp_path / name, tmp_path / "records", contacts, api) for name in ("one", "two"))
    two.harness.now += 1000
    return one, two


def test_a_first_run_says_before_its_first_call_what_it_sends_and_where(
    machines: tuple[SyncMachine, SyncMachine],
) -> None:
    one, _ = machines
    one.harness.contacts.write(a1="Ada", b2="Bob")
    said_before: list[list[str]] = []

    def answer(_row: dict[str, object]) -> RowOutcome:
        said_before.append(list(one.output))
        return RowOutcome.parse_status("ok")

    one.harness.api.choose_outcome = answer
    one.run()
    messages = [f"{SYNC} runs for the first time: 2 inserts to send to https://api.example.com"]
    assert [messages, messages] == said_before


def test_a_new_state_folder_continues_from_the_snapshot_and_says_so(machines: tuple[SyncMachine, SyncMachine]) -> None:
    one, two = machines
    one.harness.contacts.write(a1="Ada")
    one.run()
    one.harness.contacts.write(b2="Bob")
    one.harness.api.pop_received()
    two.run()
    assert [("insert", 2, "Bob")] == two.harness.api.pop_received()
    (message,) = two.output
    assert (
        f"{SYNC}: this state folder (id {two.id}) is new to this sync; it continues from the queue snapshot" in message
    )
    assert message.endswith(f"by the state folder with the id {one.id}")


def test_a_copied_state_folder_gets_a_new_id_and_says_so(machines: tuple[SyncMachine, SyncMachine]) -> None:
    one, two = machines
    one.harness.contacts.write(a1="Ada")
    one.run()
    shutil.rmtree(two.harness.state)
    shutil.copytree(one.harness.state, two.harness.state)
    one.harness.contacts.write(b2="Bob")
    one.run()
    one.harness.api.pop_received()
    one.harness.contacts.write(c3="Cid")
    two.run()
    assert [("insert", 3, "Cid")] == two.harness.api.pop_received()
    assert one.id != two.id
    assert f"this state folder (id {two.id}) is a copy of the one with the id {one.id}" in two.output[0]


def test_a_moved_state_folder_keeps_its_id(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    before = ensure_state_id(tmp_path / "here")
    (tmp_path / "here").rename(tmp_path / "there")
    assert before == ensure_state_id(tmp_path / "there")


def test_a_damaged_id_is_replaced(tmp_path: Path) -> None:
    before = ensure_state_id(tmp_path)
    (tmp_path / STATE_ID_FILE).write_bytes(b"\x00{")
    after = ensure_state_id(tmp_path)
    assert before.id != after.id
    assert after == ensure_state_id(tmp_path)


@pytest.mark.parametrize("is_put_back", [False, True])
def test_a_lost_or_restored_queue_continues_from_the_snapshot_and_says_so(
    machines: tuple[SyncMachine, SyncMachine], tmp_path: Path, *, is_put_back: bool
) -> None:
    one, _ = machines
    one.harness.contacts.write(a1="Ada")
    one.run()
    queues = one.harness.sync.queue_file.parent
    shutil.copytree(queues, tmp_path / "backup")
    one.harness.contacts.write(b2="Bob")
    one.run()
    one.harness.api.pop_received()
    shutil.rmtree(queues)
    if is_put_back:
        shutil.copytree(tmp_path / "backup", queues)
    one.harness.contacts.write(c3="Cid")
    one.run()
    assert [("insert", 3, "Cid")] == one.harness.api.pop_received()
    what = "is older than the last run: it was restored from a backup" if is_put_back else "is missing"
    assert f"{SYNC}: the queue {what}; it continues from the queue snapshot" in one.output[0]


@pytest.mark.parametrize("witness", ["records", "sync log"])
def test_without_a_snapshot_nothing_is_sent_until_the_user_allows_it(
    machines: tuple[SyncMachine, SyncMachine], witness: str
) -> None:
    """Records or the sync log show that rows were delivered. If they were sent as new, the API would have them
    twice."""
    one, two = machines
    one.harness.contacts.write(a1="Ada")
    if witness == "records":
        one.run()
        one.harness.tracking.remove_snapshots(SYNC)
        one.harness.api.pop_received()
    logged = {"is_in_sync_log": lambda: witness == "sync log"}
    with pytest.raises(ResyncNeededError, match="run --allow-new-state"):
        two.run(**logged)
    assert [] == two.harness.api.pop_received()
    two.run(is_new_state=True, **logged)
    assert [("insert", 1, "Ada")] == two.harness.api.pop_received()


@pytest.mark.parametrize("ahead", [1, -100_000])
def test_a_run_stops_if_another_one_has_ended_since_it_began(
    machines: tuple[SyncMachine, SyncMachine], ahead: int
) -> None:
    """It doesn't matter whose clock is ahead."""
    one, two = machines
    one.harness.contacts.write(a1="Ada")
    one.run()
    one.harness.contacts.write(b2="Bob")
    run: list[RunSummary] = []

    def source() -> object:
        if not run:  # before this run locks its queue, the other one begins and ends
            two.harness.now = one.harness.now + ahead
            run.append(two.run())
        return one.harness.contacts.source()

    with pytest.raises(OtherStateFolderError, match=f"another state folder too .id {two.id}"):
        one.run(read_source=source)
    assert [1, 2] == [number for _, number, _ in one.harness.api.pop_received()]
    one.run()
    assert [] == one.harness.api.pop_received()


def test_a_run_waits_for_a_heartbeat_of_a_run_that_has_not_ended_elsewhere(
    machines: tuple[SyncMachine, SyncMachine],
) -> None:
    """It stops at the first heartbeat, and continues if there is none."""
    one, two = machines
    one.harness.contacts.write(a1="Ada")
    one.run()
    one.harness.api.pop_received()
    one.harness.contacts.write(b2="Bob")
    alive = RunHeartbeat(run_id="20991231T000000Z-aaaaaa", state_id=one.id, seen_at=one.harness.build_ports().now())
    one.harness.tracking.write_heartbeat(SYNC, alive)

    def give_a_sign() -> None:
        sign = dataclasses.replace(alive, seen_at=alive.seen_at + timedelta(seconds=10))
        one.harness.tracking.write_heartbeat(SYNC, sign)

    two.while_it_waits = give_a_sign
    with pytest.raises(OtherStateFolderError, match=alive.run_id):
        two.run()
    assert [] == two.harness.api.pop_received()
    assert "waiting 20 s for its heartbeat" in two.output[0]
    two.while_it_waits = lambda: None
    two.run()
    assert [("insert", 2, "Bob")] == two.harness.api.pop_received()


def test_a_run_stops_sending_once_another_state_folder_has_begun_a_run(
    machines: tuple[SyncMachine, SyncMachine],
) -> None:
    """Batches in flight are finished. The other run sends the rest."""
    one, two = machines
    names = {f"{letter}{number}": letter for number, letter in enumerate("abcdef", start=1)}
    one.harness.contacts.write(**names)

    tracking = WatchedStore(one.harness.tracking_location, state=lambda: ensure_state_id(one.harness.state))

    def answer(row: dict[str, object]) -> RowOutcome:
        if row["id"] == 2:
            mark = RunHeartbeat(
                run_id="20991231T000000Z-aaaaaa", state_id=two.id, seen_at=one.harness.build_ports().now()
            )
            two.harness.tracking.write_heartbeat(SYNC, mark)
            one.harness.now += 11  # time to read heartbeats again
        elif row["id"] == 3:
            assert tracking.met.wait(60)
        return RowOutcome.parse_status("ok")

    one.harness.api.choose_outcome = answer
    with pytest.raises(OtherStateFolderError):
        one.run(record_store=tracking)
    sent_count = len(one.harness.api.pop_received())
    assert 2 <= sent_count < 6
    assert 6 - sent_count == read_status_of_file(one.harness.sync.queue_file, now=one.harness.now).depth  # type: ignore[union-attr]
    two.harness.now = one.harness.now
    two.run()
    assert 6 == sent_count + len(two.harness.api.pop_received())
    one.harness.contacts.write(a1="Ann")
    one.run()
    assert 1 == sum(change == "update_postimage" for change, _, _ in one.harness.api.pop_received())
