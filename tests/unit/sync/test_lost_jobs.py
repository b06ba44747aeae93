"""Jobs of a queue that is lost: each row goes on with its own until that has ended, and no longer."""

import dataclasses
from pathlib import Path

import pytest
from support.kind_desk import Api, Got, Killed, KindDesk, pairs

from ondatra_dagster.delivery.frontier import Frontier
from ondatra_dagster.delivery.outcome import Outcome
from ondatra_dagster.delivery.push.push_port import Parcel, Pushed
from ondatra_dagster.delivery.queue.claim import Job, claim, frozen_batches
from ondatra_dagster.delivery.queue.jobs import keep_job
from ondatra_dagster.sync.ports import Ports
from ondatra_dagster.sync.run import run_sync
from ondatra_dagster.sync.start import Occasion
from ondatra_dagster.sync.sync import Sync
from ondatra_dagster.tracking.store import TrackingStore

DAYS = 90 * 24 * 3600.0
OPEN = "open"


class JobApi(Api):
    """Says of each row of a job what became of it; all of it, or that it works on it."""

    def __init__(self, answer=lambda row: "ok", says=lambda key: "ok") -> None:
        super().__init__(answer)
        self.says = says
        self.asked: list[list[str]] = []

    def poll(self, parcel: Parcel, reference: str) -> Pushed:
        keys = [unit.key for unit in parcel.units]
        self.asked.append(keys)
        said = {result: self.says(unit.key) for unit in parcel.units for result in unit.result_keys}
        if OPEN in said.values():
            return Pushed({}, calls=1, is_open=True)
        return Pushed({result: Outcome.parse(told) for result, told in said.items()}, calls=1)


class JobDesk(KindDesk):
    @property
    def sync(self) -> Sync:
        sync = super().sync
        push = dataclasses.replace(sync.config.push, poll_timeout_seconds=DAYS)
        config = dataclasses.replace(sync.config, push=push, functions=frozenset({"push", "poll"}))
        return dataclasses.replace(sync, config=config)

    def ports(self) -> Ports:
        return dataclasses.replace(super().ports(), sleep=self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.now += seconds

    def begin_job(self, **values: list[int]) -> None:
        """Let the API work on these, which nobody has sent yet."""
        self.held = "paused"
        self.write(**values)
        self.run()
        with self.sync.open_queue() as queue:
            batch = claim(queue, size=10, number=1)
            assert batch
            keep_job(queue, batch, Job('"J-1"', self.now, self.now))
        self.held = None

    def wait(self, **values: list[int]) -> None:
        """Let changes wait beside it, and a frontier tell of both."""
        self.api = JobApi(says=lambda key: OPEN)
        self.held = "paused"
        self.write(**values)
        self.run()
        self.held = None

    def jobs(self) -> list[list[str]]:
        with self.sync.open_queue() as queue:
            return [[unit.key for unit in batch.units] for batch in frozen_batches(queue) if batch.job]


def die(row: Got) -> str:
    raise Killed


def end_and_die(desk: JobDesk, says) -> None:
    """A run that hears of the job's end and is killed with what comes next; what it heard is recorded."""
    desk.api = JobApi(die, says)
    for _ in range(2):
        with pytest.raises(Killed):
            desk.run()
    desk.lose_queue()
    desk.api = JobApi()


@pytest.mark.parametrize(
    ("said", "sent"),
    [
        ("ok", [("update_preimage", 1), ("update_postimage", 2)]),
        ("reject: no", [("insert", 2)]),
    ],
)
def test_a_row_whose_job_has_ended_goes_on_without_it(tmp_path: Path, said: str, sent: list[object]) -> None:
    """A newer change of it waited beside the job, which the API may long have forgotten."""
    desk = JobDesk(tmp_path, "merge")
    desk.begin_job(a=[1])
    desk.wait(a=[2])
    end_and_die(desk, lambda key: said)
    assert (sent, []) == (pairs(desk.sends()), desk.api.asked)


def test_only_the_rows_that_have_no_end_are_asked_about(tmp_path: Path) -> None:
    """Of the others one has its newest values, one was refused, and one goes on with a newer change."""
    desk = JobDesk(tmp_path, "merge")
    desk.begin_job(a=[1], b=[5], c=[7], d=[9])
    desk.wait(c=[8])
    said = {"a": "ok", "b": "reject: no", "c": "ok", "d": "error: later"}
    end_and_die(desk, lambda key: said[key])
    summary = desk.run()
    assert [["d"]] == desk.api.asked
    assert [("update_preimage", 7), ("update_postimage", 8)] == pairs(desk.api.take())
    assert (1, 0) == (summary.queue.dead, summary.queue.depth)


class DyingStore(TrackingStore):
    def write_frontier(self, frontier: Frontier) -> None:
        raise Killed


def test_a_job_keeps_to_its_rows_though_others_take_their_places(tmp_path: Path) -> None:
    """The queue gives the number of a row that is gone to the next one: its end must not be that one's."""
    desk = JobDesk(tmp_path, "merge")
    desk.begin_job(a=[1], b=[5])
    desk.wait()
    desk.api = JobApi(says={"a": "error: later", "b": "ok"}.__getitem__)
    desk.now += 10_000
    dying = dataclasses.replace(desk.ports(), tracking=DyingStore(str(desk.state / "tracking")))
    with pytest.raises(Killed):
        run_sync(desk.sync, dying, Occasion(trigger="test"))
    desk.lose_queue()
    desk.api = JobApi(die, says=lambda key: OPEN)
    desk.write(e=[9])
    with pytest.raises(Killed):
        desk.run()
    assert [["a"]] == desk.jobs()
