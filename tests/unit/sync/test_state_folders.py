"""State folders that are new, copied, lost or put back, and two of them that deliver one sync at once."""

import dataclasses
import shutil
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from ondatra_dagster.delivery.outcome import Outcome
from ondatra_dagster.delivery.queue.states import queue_state
from ondatra_dagster.errors import OtherStateError, ResyncNeededError
from ondatra_dagster.store.state_id import FILE, take_state_id
from ondatra_dagster.sync.run import run_sync
from ondatra_dagster.sync.start import Occasion
from ondatra_dagster.sync.summary import RunSummary
from ondatra_dagster.tracking.run_mark import RunMark
from ondatra_dagster.tracking.store import TrackingStore
from tests.unit.sync.conftest import Api, Contacts, Desk

SYNC = "sync.contacts"


class WatchedStore(TrackingStore):
    """One that tells when a mark of another state folder was read."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.met = threading.Event()

    def read_mark(self, sync_id: str) -> RunMark | None:
        mark = super().read_mark(sync_id)
        if mark and mark.state_id != self.state.id:
            self.met.set()
        return mark


class Machine:
    """A desk with a state folder of its own, and what a run says while it goes on."""

    def __init__(self, state: Path, records: Path, contacts: Contacts, api: Api) -> None:
        state.mkdir(exist_ok=True)
        self.desk = Desk(state=state, contacts=contacts, api=api, records=str(records), batch_size=1)
        self.said: list[str] = []
        self.while_it_waits: Callable[[], None] = lambda: None

    def run(self, *, is_new_state: bool = False, **ports: object) -> RunSummary:
        self.said.clear()
        self.desk.now += 1
        given = dataclasses.replace(
            self.desk.ports(), notify=self.said.append, sleep=self._sleep, **{"is_logged": bool, **ports}
        )
        return run_sync(self.desk.sync, given, Occasion(trigger="test", allows_new_state=is_new_state))

    def _sleep(self, seconds: float) -> None:
        self.desk.now += seconds
        self.while_it_waits()

    @property
    def id(self) -> str:
        return take_state_id(self.desk.state).id


@pytest.fixture
def machines(tmp_path: Path) -> tuple[Machine, Machine]:
    contacts, api = Contacts(), Api()
    one, two = (Machine(tmp_path / name, tmp_path / "records", contacts, api) for name in ("one", "two"))
    two.desk.now += 1000
    return one, two


def test_a_first_run_says_before_its_first_call_what_goes_where(machines: tuple[Machine, Machine]) -> None:
    one, _ = machines
    one.desk.contacts.write(a1="Ada", b2="Bob")
    said_before: list[list[str]] = []

    def answer(_row: dict[str, object]) -> Outcome:
        said_before.append(list(one.said))
        return Outcome.parse("ok")

    one.desk.api.answer = answer
    one.run()
    said = [f"{SYNC} runs for the first time: 2 inserts to send to https://api.example.com"]
    assert [said, said] == said_before


def test_a_new_state_folder_goes_on_from_the_frontier_and_says_so(machines: tuple[Machine, Machine]) -> None:
    one, two = machines
    one.desk.contacts.write(a1="Ada")
    one.run()
    one.desk.contacts.write(b2="Bob")
    one.desk.api.take()
    two.run()
    assert [("insert", 2, "Bob")] == two.desk.api.take()
    (said,) = two.said
    assert (
        f"{SYNC}: this state folder (id {two.id}) is new to this sync; it goes on from what was left" in said
    )
    assert said.endswith(f"by the state folder with the id {one.id}")


def test_a_copied_state_folder_has_an_id_of_its_own_and_says_so(machines: tuple[Machine, Machine]) -> None:
    one, two = machines
    one.desk.contacts.write(a1="Ada")
    one.run()
    shutil.rmtree(two.desk.state)
    shutil.copytree(one.desk.state, two.desk.state)
    one.desk.contacts.write(b2="Bob")
    one.run()
    one.desk.api.take()
    one.desk.contacts.write(c3="Cid")
    two.run()
    assert [("insert", 3, "Cid")] == two.desk.api.take()
    assert one.id != two.id
    assert f"this state folder (id {two.id}) is a copy of the one with the id {one.id}" in two.said[0]


def test_a_moved_state_folder_keeps_its_id(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    before = take_state_id(tmp_path / "here")
    (tmp_path / "here").rename(tmp_path / "there")
    assert before == take_state_id(tmp_path / "there")


def test_a_damaged_id_is_replaced(tmp_path: Path) -> None:
    before = take_state_id(tmp_path)
    (tmp_path / FILE).write_bytes(b"\x00{")
    after = take_state_id(tmp_path)
    assert before.id != after.id
    assert after == take_state_id(tmp_path)


@pytest.mark.parametrize("is_put_back", [False, True])
def test_a_lost_or_restored_queue_goes_on_from_the_frontier_and_says_so(
    machines: tuple[Machine, Machine], tmp_path: Path, *, is_put_back: bool
) -> None:
    one, _ = machines
    one.desk.contacts.write(a1="Ada")
    one.run()
    queues = one.desk.sync.queue.parent
    shutil.copytree(queues, tmp_path / "backup")
    one.desk.contacts.write(b2="Bob")
    one.run()
    one.desk.api.take()
    shutil.rmtree(queues)
    if is_put_back:
        shutil.copytree(tmp_path / "backup", queues)
    one.desk.contacts.write(c3="Cid")
    one.run()
    assert [("insert", 3, "Cid")] == one.desk.api.take()
    what = "is older than the last run: it was put back" if is_put_back else "is missing"
    assert f"{SYNC}: the queue {what}; it goes on from what was left" in one.said[0]


@pytest.mark.parametrize("witness", ["records", "sync log"])
def test_without_a_frontier_nothing_is_sent_until_that_is_allowed(
    machines: tuple[Machine, Machine], witness: str
) -> None:
    """Records or the sync log show that rows were delivered: sent as new ones, they would be there twice."""
    one, two = machines
    one.desk.contacts.write(a1="Ada")
    if witness == "records":
        one.run()
        one.desk.tracking.forget_frontiers(SYNC)
        one.desk.api.take()
    logged = {"is_logged": lambda: witness == "sync log"}
    with pytest.raises(ResyncNeededError, match="run --allow-new-state"):
        two.run(**logged)
    assert [] == two.desk.api.take()
    two.run(is_new_state=True, **logged)
    assert [("insert", 1, "Ada")] == two.desk.api.take()


@pytest.mark.parametrize("ahead", [1, -100_000])
def test_a_run_stops_when_another_one_has_ended_since_it_began(
    machines: tuple[Machine, Machine], ahead: int
) -> None:
    """Whose clock is ahead doesn't matter."""
    one, two = machines
    one.desk.contacts.write(a1="Ada")
    one.run()
    one.desk.contacts.write(b2="Bob")
    run: list[RunSummary] = []

    def source() -> object:
        if not run:  # before this run has its queue, the other one begins and ends
            two.desk.now = one.desk.now + ahead
            run.append(two.run())
        return one.desk.contacts.source()

    with pytest.raises(OtherStateError, match=f"another state folder too .id {two.id}"):
        one.run(source=source)
    assert [1, 2] == [number for _, number, _ in one.desk.api.take()]
    one.run()
    assert [] == one.desk.api.take()


def test_a_run_waits_for_a_sign_of_one_that_has_not_ended_elsewhere(
    machines: tuple[Machine, Machine],
) -> None:
    """It stops at the first, and goes on when there is none."""
    one, two = machines
    one.desk.contacts.write(a1="Ada")
    one.run()
    one.desk.api.take()
    one.desk.contacts.write(b2="Bob")
    alive = RunMark(run_id="20991231T000000Z-aaaaaa", state_id=one.id, seen_at=one.desk.ports().now())
    one.desk.tracking.write_mark(SYNC, alive)

    def give_a_sign() -> None:
        sign = dataclasses.replace(alive, seen_at=alive.seen_at + timedelta(seconds=10))
        one.desk.tracking.write_mark(SYNC, sign)

    two.while_it_waits = give_a_sign
    with pytest.raises(OtherStateError, match=alive.run_id):
        two.run()
    assert [] == two.desk.api.take()
    assert "waiting 20 s for a sign of it" in two.said[0]
    two.while_it_waits = lambda: None
    two.run()
    assert [("insert", 2, "Bob")] == two.desk.api.take()


def test_a_run_stops_sending_once_another_state_folder_has_begun_one(
    machines: tuple[Machine, Machine],
) -> None:
    """What is on its way comes to its end; the rest is the other one's."""
    one, two = machines
    names = {f"{letter}{number}": letter for number, letter in enumerate("abcdef", start=1)}
    one.desk.contacts.write(**names)

    tracking = WatchedStore(one.desk.records, state=lambda: take_state_id(one.desk.state))

    def answer(row: dict[str, object]) -> Outcome:
        if row["id"] == 2:
            mark = RunMark(run_id="20991231T000000Z-aaaaaa", state_id=two.id, seen_at=one.desk.ports().now())
            two.desk.tracking.write_mark(SYNC, mark)
            one.desk.now += 11  # time to look around
        elif row["id"] == 3:
            assert tracking.met.wait(60)
        return Outcome.parse("ok")

    one.desk.api.answer = answer
    with pytest.raises(OtherStateError):
        one.run(tracking=tracking)
    sent = len(one.desk.api.take())
    assert 2 <= sent < 6
    assert 6 - sent == queue_state(one.desk.sync.queue, now=one.desk.now).depth  # type: ignore[union-attr]
    two.desk.now = one.desk.now
    two.run()
    assert 6 == sent + len(two.desk.api.take())
    one.desk.contacts.write(a1="Ann")
    one.run()
    assert 1 == sum(change == "update_postimage" for change, _, _ in one.desk.api.take())
