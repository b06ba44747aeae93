"""What runs and why, for each state that a table, an input and a queue can be in."""

import dataclasses
from pathlib import Path

import pytest

from ondatra_dagster.errors import SelectionError
from ondatra_dagster.planning.commit_note import CommitNote
from ondatra_dagster.planning.delta_log import TableState
from ondatra_dagster.planning.noop_cache import Unchanged
from ondatra_dagster.planning.plan import Look, Need, Plan, make_plan
from ondatra_dagster.planning.versions import input_versions
from ondatra_dagster.project.kinds import KINDS
from ondatra_dagster.project.model import CheckWord, FileInput, Input, Model, ModelInput, RowCheck, SinkUse
from ondatra_dagster.project.project import Project
from ondatra_dagster.project.settings.settings import read_settings

CSV = FileInput(format="csv", path="data/x.csv", options=(("header", "true"),))
RAW = ModelInput(model="raw.x")


def a_model(name: str, *inputs: Input, sink: SinkUse | None = None, is_deterministic: bool = True) -> Model:
    return Model(
        name=name,
        path=Path("x.sql"),
        file="models/x.sql",
        kind=KINDS["table"],
        sql="",
        sql_line=1,
        definition=f"definition of {name}",
        inputs=inputs,
        sink=sink,
        is_deterministic=is_deterministic,
    )


@dataclasses.dataclass(kw_only=True)
class Queue:
    """A queue as it stands."""

    table_id: str | None = "sync.crm"
    watermark: int = 1
    invalid_watermark: int = -1
    pending: int = 0
    due: int = 0
    next_due_at: float | None = None
    polls_due: int = 0
    can_finalize: bool = False
    has_open_run: bool = False
    is_paused: bool = False

    @property
    def can_send(self) -> bool:
        return bool(self.pending or self.due or self.polls_due or self.can_finalize or self.has_open_run)


@dataclasses.dataclass
class World:
    """raw.x reads a file, sync.crm reads raw.x and is pushed; all is up to date until a test changes it."""

    root: Path
    sinks: str = "on"

    def __post_init__(self) -> None:
        sink = SinkUse(name="crm", arguments=(), sync_id="crm", line=1)
        (self.root / "data").mkdir()
        (self.root / "data" / "x.csv").write_text("old")
        self.models = [a_model("raw.x", CSV), a_model("sync.crm", RAW, sink=sink)]
        self.tables: dict[str, TableState] = {}
        self.queues: dict[str, Queue] = {"crm": Queue()}
        self.begun: set[str] = set()
        self.invalid = -1
        self.unchanged: dict[str, Unchanged] = {}
        for model in self.models:
            self.write(model)

    @property
    def project(self) -> Project:
        settings = read_settings(self.root, {"ONDATRA_SINKS": self.sinks})
        models = {model.id: model for model in self.models}
        return Project(root=self.root, settings=settings, models=models, sink_files={})

    def write(self, model: Model, *, version: int = 1, note: bool = True) -> None:
        """The model's table as a run leaves it now."""
        noted = CommitNote(definition=model.definition, inputs=self.versions(model), run_id="r")
        self.tables[model.id] = TableState(
            table_id=model.id,
            version=version,
            log_version=version,
            note=noted if note else None,
            columns=(),
            properties={},
            metrics={},
        )

    def versions(self, model: Model) -> dict[str, str]:
        return input_versions(model.inputs, read_settings(self.root, {}), self.tables.get)

    def plan(self, *selection: str) -> Plan:
        look = Look(
            tables=self.tables.get,
            invalid_versions=lambda _: self.invalid,
            queues=self.queues.get,
            unchanged=self.unchanged,
            has_begun=self.begun.__contains__,
        )
        return make_plan(self.project, look, selection=selection or None)

    def told(self, *selection: str) -> list[tuple[str, Need, str]]:
        plan = self.plan(*selection)
        return [(step.model.name, step.need, step.reason) for step in plan.models]

    def sync(self) -> tuple[Need, str]:
        (step,) = self.plan().syncs
        return step.need, step.reason


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


IDLE = "nothing it reads has changed"


def test_nothing_runs_when_nothing_changed(world: World) -> None:
    """The no-op that users meet most has to cost nothing."""
    assert [("raw.x", Need.NONE, IDLE), ("sync.crm", Need.NONE, IDLE)] == world.told()
    assert not world.plan().has_work


def test_a_changed_file_runs_its_model_and_perhaps_what_is_below(world: World) -> None:
    """Whether the rows below change is known when those above are there."""
    (world.root / "data" / "x.csv").write_text("newer")
    assert [
        ("raw.x", Need.SURE, "data/x.csv changed"),
        ("sync.crm", Need.MAYBE, "raw.x may change"),
    ] == world.told()
    assert (Need.MAYBE, "sync.crm may change") == world.sync()


def test_a_lost_file_is_told(world: World) -> None:
    """The run says what to do, and what the table has stays."""
    (world.root / "data" / "x.csv").unlink()
    assert ("raw.x", Need.SURE, "data/x.csv isn't there") == world.told()[0]


def test_a_model_whose_input_was_written_runs(world: World) -> None:
    """For instance by a run that was killed before it came to this model."""
    world.write(world.models[0], version=2)
    assert ("sync.crm", Need.SURE, "raw.x changed") == world.told()[1]


def test_a_model_without_a_table_runs(world: World) -> None:
    """Its first run."""
    del world.tables["raw.x"]
    assert ("raw.x", Need.SURE, "it has no table yet") == world.told()[0]


def test_a_changed_definition_runs(world: World) -> None:
    """Comments and white space aren't part of it: that is the loader's."""
    world.models[0] = dataclasses.replace(world.models[0], definition="another")
    assert ("raw.x", Need.SURE, "its definition changed") == world.told()[0]


def test_a_new_check_runs_its_model(world: World) -> None:
    """Rows that nobody looked at may fail it; that nothing is written then is the kind's affair."""
    check = RowCheck(
        word=CheckWord.AUDIT, name="audit_a", condition="a", sql="a", words=("a",), columns=("a",), line=1
    )
    world.models[0] = dataclasses.replace(world.models[0], checks=(check,))
    assert ("raw.x", Need.SURE, "its checks changed") == world.told()[0]
    world.unchanged["raw.x"] = Unchanged(
        definition=world.models[0].definition,
        inputs=world.versions(world.models[0]),
        table_version="raw.x@1",
        at=1.5,
        checks=world.models[0].checks_digest,
        warned={"warning_b": 3},
    )
    assert ("raw.x", Need.NONE, IDLE) == world.told()[0]
    assert {"warning_b": 3} == world.plan().models[0].warned


def test_a_query_that_may_differ_each_time_always_runs(world: World) -> None:
    """rand() has no version."""
    world.models[0] = dataclasses.replace(world.models[0], is_deterministic=False)
    assert ("raw.x", Need.SURE, "its query may give other rows each time") == world.told()[0]


def test_a_table_that_somebody_else_wrote_is_brought_back(world: World) -> None:
    """RESTORE by hand leaves a commit without our note."""
    world.write(world.models[0], version=2, note=False)
    assert ("raw.x", Need.SURE, "its table was last written by another hand") == world.told()[0]


def test_a_run_that_wrote_nothing_is_enough(world: World) -> None:
    """It found the table as it should be, from these very inputs."""
    world.write(world.models[0], version=2)
    crm = world.models[1]
    world.unchanged["sync.crm"] = Unchanged(
        definition=crm.definition, inputs=world.versions(crm), table_version="sync.crm@1", at=1.5
    )
    assert Need.NONE == world.told()[1][1]


def test_a_remembered_run_of_another_version_counts_for_nothing(world: World) -> None:
    """The table was written since, maybe by another hand."""
    crm = world.models[1]
    world.write(world.models[0], version=2)
    world.unchanged["sync.crm"] = Unchanged(
        definition=crm.definition, inputs=world.versions(crm), table_version="sync.crm@0", at=1.5
    )
    assert Need.SURE == world.told()[1][1]


def test_an_input_without_versions_always_runs_its_model(world: World) -> None:
    """It may have changed."""
    there = FileInput(format="csv", path="hdfs://host/x.csv")
    world.models[0] = dataclasses.replace(world.models[0], inputs=(there,))
    world.write(world.models[0])
    assert ("raw.x", Need.SURE, "hdfs://host/x.csv can't be told to be unchanged") == world.told()[0]


def test_a_selection_leaves_the_rest_alone(world: World) -> None:
    """What isn't selected doesn't run, and counts as it stands."""
    del world.tables["sync.crm"]
    assert ["sync.crm"] == [name for name, _, _ in world.told("sync.crm")]
    assert ["raw.x"] == [name for name, _, _ in world.told("raw.x")]
    assert () == world.plan("raw.x").syncs


def test_a_selection_that_needs_more_says_what(world: World) -> None:
    """Else Spark would say it, a minute later and in other words."""
    del world.tables["raw.x"]
    with pytest.raises(SelectionError, match=r"needs raw\.x to be made before it; select \+sync\.crm"):
        world.plan("sync.crm")


@pytest.mark.parametrize(
    ("queue", "reason"),
    [
        (Queue(watermark=0), "version 1 of sync.crm"),
        (Queue(watermark=-1), "version 1 of sync.crm"),
        (Queue(table_id="another"), "sync.crm has another table now"),
        (Queue(table_id=None), "it has never run"),
        (None, "it has never run"),
        (Queue(pending=2), "2 pending in the queue"),
        (Queue(pending=2, due=1), "2 pending and 1 due again in the queue"),
        (Queue(polls_due=1), "open jobs are to be asked about"),
        (Queue(can_finalize=True), "finalize() is owed"),
        (Queue(has_open_run=True), "an earlier run left records to publish"),
    ],
)
def test_a_sync_with_work_says_which(world: World, queue: Queue | None, reason: str) -> None:
    """Work is what is there, not what was heard of."""
    world.queues = {"crm": queue} if queue else {}
    assert (Need.SURE, reason) == world.sync()


def test_a_sync_that_ran_and_has_no_queue_is_not_told_as_new(world: World) -> None:
    """Who read that it never ran would wait for its whole table to go out."""
    world.begun = {"crm"}
    for world.queues in ({}, {"crm": Queue(table_id=None)}):
        assert (Need.SURE, "it has no queue any more") == world.sync()


def test_many_versions_are_told_as_a_range(world: World) -> None:
    """A sink that was off for a while has them."""
    world.write(world.models[1], version=7)
    assert (Need.SURE, "versions 2 to 7 of sync.crm") == world.sync()


def test_rows_that_were_newly_set_aside_wake_the_sync(world: World) -> None:
    """They have to be recorded, although the table itself didn't change."""
    world.invalid = 0
    assert (Need.SURE, "rows of sync.crm are newly invalid") == world.sync()


def test_waiting_rows_alone_are_no_work(world: World) -> None:
    """They have their time."""
    world.queues["crm"] = Queue(next_due_at=9e9)
    assert Need.NONE == world.sync()[0]


@pytest.mark.parametrize(("queue", "reads"), [(Queue(watermark=0), True), (Queue(pending=1), False)])
def test_only_news_need_the_table(world: World, queue: Queue, *, reads: bool) -> None:
    """A retry must not start a JVM."""
    world.queues["crm"] = queue
    (step,) = world.plan().syncs
    assert (reads, True) == (step.reads_table, step.will_run)


def test_sinks_that_are_off_have_no_work(world: World) -> None:
    """The changes wait in the feed."""
    world.sinks = "off"
    world.queues["crm"] = Queue(watermark=0)
    assert (Need.NONE, "sinks are off") == world.sync()


def test_a_paused_sync_asks_about_its_jobs(world: World) -> None:
    """Their time passes, and to ask sends no row."""
    world.queues["crm"] = Queue(pending=2, polls_due=1, is_paused=True)
    assert (Need.SURE, "open jobs are to be asked about") == world.sync()


@pytest.mark.parametrize(
    ("sinks", "queue", "told"),
    [
        ("dry", Queue(pending=2), "sinks are dry: 2 pending in the queue"),
        ("on", Queue(pending=2, is_paused=True), "it is paused: 2 pending in the queue"),
        ("on", Queue(is_paused=True), "it is paused: nothing waits"),
        ("dry", Queue(polls_due=1), "sinks are dry: open jobs are to be asked about"),
    ],
)
def test_a_held_sync_takes_what_is_new_and_leaves_what_waits(
    world: World, sinks: str, queue: Queue, told: str
) -> None:
    """A run that sends nothing is started for new rows, not once more for those that it left."""
    world.sinks = sinks
    world.queues["crm"] = queue
    assert (Need.NONE, told) == world.sync()
    world.queues["crm"] = dataclasses.replace(queue, watermark=0)
    assert (Need.SURE, "version 1 of sync.crm") == world.sync()
