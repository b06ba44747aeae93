"""The plan: which models and syncs run and why, for each state of a table, an input and a queue."""

import dataclasses
from pathlib import Path

import pytest

from ondatra_dagster.deltalog.commit_user_metadata import CommitMetadata
from ondatra_dagster.deltalog.log_reader import TableState
from ondatra_dagster.errors import SelectionError
from ondatra_dagster.planning.input_versions import read_input_versions
from ondatra_dagster.planning.plan import Plan, PlanInputs, WorkNeeded, make_plan
from ondatra_dagster.planning.unchanged_run_cache import UnchangedRun
from ondatra_dagster.project.model import CheckType, FileInput, Input, Model, ModelInput, ModelSink, RowCheck
from ondatra_dagster.project.model_kinds import KINDS
from ondatra_dagster.project.project import Project
from ondatra_dagster.project.settings.read_settings_and_defaults import read_settings

CSV = FileInput(format="csv", path="data/x.csv", options=(("header", "true"),))
RAW = ModelInput(model="raw.x")


def a_model(name: str, *inputs: Input, sink: ModelSink | None = None, is_deterministic: bool = True) -> Model:
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
class FakeQueueStatus:
    """The status of a queue, without a queue."""

    table_id: str | None = "sync.crm"
    watermark: int = 1
    invalid_watermark: int = -1
    pending_units: int = 0
    due_units: int = 0
    next_due_at: float | None = None
    polls_due: int = 0
    can_finalize: bool = False
    has_open_run: bool = False
    is_paused: bool = False

    @property
    def can_send(self) -> bool:
        return bool(self.pending_units or self.due_units or self.polls_due or self.can_finalize or self.has_open_run)


@dataclasses.dataclass
class PlanFixture:
    """A project in which raw.x reads a file, and sync.crm reads raw.x and is pushed. At first all is up to date."""

    root: Path
    sinks: str = "on"

    def __post_init__(self) -> None:
        sink = ModelSink(name="crm", arguments=(), sync_id="crm", line=1)
        (self.root / "data").mkdir()
        (self.root / "data" / "x.csv").write_text("old")
        self.models = [a_model("raw.x", CSV), a_model("sync.crm", RAW, sink=sink)]
        self.tables: dict[str, TableState] = {}
        self.queues: dict[str, FakeQueueStatus] = {"crm": FakeQueueStatus()}
        self.begun: set[str] = set()
        self.invalid = -1
        self.unchanged_runs: dict[str, UnchangedRun] = {}
        for model in self.models:
            self.write(model)

    @property
    def project(self) -> Project:
        settings = read_settings(self.root, {"ONDATRA_SINKS": self.sinks})
        models = {model.id: model for model in self.models}
        return Project(root=self.root, settings=settings, models=models, sink_files={})

    def write(self, model: Model, *, version: int = 1, note: bool = True) -> None:
        """Write the model's table as a run would leave it now."""
        noted = CommitMetadata(definition=model.definition, inputs=self.versions(model), run_id="r")
        self.tables[model.id] = TableState(
            table_id=model.id,
            version=version,
            log_version=version,
            commit_metadata=noted if note else None,
            columns=(),
            properties={},
            metrics={},
        )

    def versions(self, model: Model) -> dict[str, str]:
        return read_input_versions(model.inputs, read_settings(self.root, {}), self.tables.get)

    def plan(self, *selection: str) -> Plan:
        look = PlanInputs(
            tables=self.tables.get,
            invalid_table_version=lambda _: self.invalid,
            queues=self.queues.get,
            unchanged_runs=self.unchanged_runs,
            has_ever_run=self.begun.__contains__,
        )
        return make_plan(self.project, look, selection=selection or None)

    def planned_steps(self, *selection: str) -> list[tuple[str, WorkNeeded, str]]:
        plan = self.plan(*selection)
        return [(step.model.name, step.work_needed, step.reason) for step in plan.models]

    def sync(self) -> tuple[WorkNeeded, str]:
        (step,) = self.plan().syncs
        return step.work_needed, step.reason


@pytest.fixture
def plan_fixture(tmp_path: Path) -> PlanFixture:
    return PlanFixture(tmp_path)


IDLE = "nothing it reads has changed"


def test_nothing_runs_if_nothing_has_changed(plan_fixture: PlanFixture) -> None:
    """This is the most frequent case, so it must cost nothing."""
    assert [("raw.x", WorkNeeded.NO, IDLE), ("sync.crm", WorkNeeded.NO, IDLE)] == plan_fixture.planned_steps()
    assert not plan_fixture.plan().has_work


def test_a_changed_file_runs_its_model_and_perhaps_the_models_below(plan_fixture: PlanFixture) -> None:
    """Whether the rows below change is known only after the models above have run."""
    (plan_fixture.root / "data" / "x.csv").write_text("newer")
    assert [
        ("raw.x", WorkNeeded.YES, "data/x.csv changed"),
        ("sync.crm", WorkNeeded.MAYBE, "raw.x may change"),
    ] == plan_fixture.planned_steps()
    assert (WorkNeeded.MAYBE, "sync.crm may change") == plan_fixture.sync()


def test_a_missing_file_is_the_reason_to_run(plan_fixture: PlanFixture) -> None:
    """The run says what to do, and the table keeps its rows."""
    (plan_fixture.root / "data" / "x.csv").unlink()
    assert ("raw.x", WorkNeeded.YES, "data/x.csv isn't there") == plan_fixture.planned_steps()[0]


def test_a_model_whose_input_was_written_runs(plan_fixture: PlanFixture) -> None:
    """For example, an earlier run was killed before it reached this model."""
    plan_fixture.write(plan_fixture.models[0], version=2)
    assert ("sync.crm", WorkNeeded.YES, "raw.x changed") == plan_fixture.planned_steps()[1]


def test_a_model_without_a_table_runs(plan_fixture: PlanFixture) -> None:
    """This is its first run."""
    del plan_fixture.tables["raw.x"]
    assert ("raw.x", WorkNeeded.YES, "it has no table yet") == plan_fixture.planned_steps()[0]


def test_a_changed_definition_runs(plan_fixture: PlanFixture) -> None:
    """The loader excludes comments and white space from the definition."""
    plan_fixture.models[0] = dataclasses.replace(plan_fixture.models[0], definition="another")
    assert ("raw.x", WorkNeeded.YES, "its definition changed") == plan_fixture.planned_steps()[0]


def test_a_new_check_runs_its_model(plan_fixture: PlanFixture) -> None:
    """Existing rows may fail the new check. The kind ensures that nothing is written then."""
    check = RowCheck(
        check_type=CheckType.AUDIT, name="audit_a", condition="a", sql="a", words=("a",), columns=("a",), line=1
    )
    plan_fixture.models[0] = dataclasses.replace(plan_fixture.models[0], checks=(check,))
    assert ("raw.x", WorkNeeded.YES, "its checks changed") == plan_fixture.planned_steps()[0]
    plan_fixture.unchanged_runs["raw.x"] = UnchangedRun(
        definition=plan_fixture.models[0].definition,
        inputs=plan_fixture.versions(plan_fixture.models[0]),
        table_version="raw.x@1",
        at=1.5,
        checks=plan_fixture.models[0].checks_digest,
        warned={"warning_b": 3},
    )
    assert ("raw.x", WorkNeeded.NO, IDLE) == plan_fixture.planned_steps()[0]
    assert {"warning_b": 3} == plan_fixture.plan().models[0].warning_counts


def test_a_query_that_is_not_deterministic_always_runs(plan_fixture: PlanFixture) -> None:
    """rand() has no version."""
    plan_fixture.models[0] = dataclasses.replace(plan_fixture.models[0], is_deterministic=False)
    assert ("raw.x", WorkNeeded.YES, "its query may give other rows each time") == plan_fixture.planned_steps()[0]


def test_a_table_that_another_program_wrote_is_computed_again(plan_fixture: PlanFixture) -> None:
    """RESTORE leaves a commit without ondatra's metadata."""
    plan_fixture.write(plan_fixture.models[0], version=2, note=False)
    assert ("raw.x", WorkNeeded.YES, "another program wrote its table last") == plan_fixture.planned_steps()[0]


def test_a_run_that_wrote_nothing_counts_as_up_to_date(plan_fixture: PlanFixture) -> None:
    """It computed the same rows from the same inputs."""
    plan_fixture.write(plan_fixture.models[0], version=2)
    crm = plan_fixture.models[1]
    plan_fixture.unchanged_runs["sync.crm"] = UnchangedRun(
        definition=crm.definition, inputs=plan_fixture.versions(crm), table_version="sync.crm@1", at=1.5
    )
    assert WorkNeeded.NO == plan_fixture.planned_steps()[1][1]


def test_a_cached_run_of_another_table_version_is_ignored(plan_fixture: PlanFixture) -> None:
    """The table was written since then, perhaps by another program."""
    crm = plan_fixture.models[1]
    plan_fixture.write(plan_fixture.models[0], version=2)
    plan_fixture.unchanged_runs["sync.crm"] = UnchangedRun(
        definition=crm.definition, inputs=plan_fixture.versions(crm), table_version="sync.crm@0", at=1.5
    )
    assert WorkNeeded.YES == plan_fixture.planned_steps()[1][1]


def test_an_input_without_versions_always_runs_its_model(plan_fixture: PlanFixture) -> None:
    """The input may have changed."""
    there = FileInput(format="csv", path="hdfs://host/x.csv")
    plan_fixture.models[0] = dataclasses.replace(plan_fixture.models[0], inputs=(there,))
    plan_fixture.write(plan_fixture.models[0])
    assert (
        "raw.x",
        WorkNeeded.YES,
        "hdfs://host/x.csv can't be shown to be unchanged",
    ) == plan_fixture.planned_steps()[0]


def test_models_outside_the_selection_do_not_run(plan_fixture: PlanFixture) -> None:
    """Their tables are used without an update."""
    del plan_fixture.tables["sync.crm"]
    assert ["sync.crm"] == [name for name, _, _ in plan_fixture.planned_steps("sync.crm")]
    assert ["raw.x"] == [name for name, _, _ in plan_fixture.planned_steps("raw.x")]
    assert () == plan_fixture.plan("raw.x").syncs


def test_a_selection_that_needs_more_models_names_them(plan_fixture: PlanFixture) -> None:
    """Otherwise Spark would report it a minute later, and in other words."""
    del plan_fixture.tables["raw.x"]
    with pytest.raises(SelectionError, match=r"needs raw\.x to be computed first; select \+sync\.crm"):
        plan_fixture.plan("sync.crm")


@pytest.mark.parametrize(
    ("queue", "reason"),
    [
        (FakeQueueStatus(watermark=0), "version 1 of sync.crm"),
        (FakeQueueStatus(watermark=-1), "version 1 of sync.crm"),
        (FakeQueueStatus(table_id="another"), "sync.crm has another table now"),
        (FakeQueueStatus(table_id=None), "it has never run"),
        (None, "it has never run"),
        (FakeQueueStatus(pending_units=2), "2 pending in the queue"),
        (FakeQueueStatus(pending_units=2, due_units=1), "2 pending and 1 due again in the queue"),
        (FakeQueueStatus(polls_due=1), "open jobs are to be polled"),
        (FakeQueueStatus(can_finalize=True), "finalize() is still to be called"),
        (FakeQueueStatus(has_open_run=True), "an earlier run left records to publish"),
    ],
)
def test_a_sync_with_work_says_what_it_is(
    plan_fixture: PlanFixture, queue: FakeQueueStatus | None, reason: str
) -> None:
    """The plan reads the actual state, and relies on no notification."""
    plan_fixture.queues = {"crm": queue} if queue else {}
    assert (WorkNeeded.YES, reason) == plan_fixture.sync()


def test_a_sync_that_ran_and_lost_its_queue_is_not_called_new(plan_fixture: PlanFixture) -> None:
    """A user who reads that it never ran would expect its whole table to be sent."""
    plan_fixture.begun = {"crm"}
    for plan_fixture.queues in ({}, {"crm": FakeQueueStatus(table_id=None)}):
        assert (WorkNeeded.YES, "it has no queue any more") == plan_fixture.sync()


def test_many_versions_are_shown_as_a_range(plan_fixture: PlanFixture) -> None:
    """A sync whose sink was off for a while has many new versions."""
    plan_fixture.write(plan_fixture.models[1], version=7)
    assert (WorkNeeded.YES, "versions 2 to 7 of sync.crm") == plan_fixture.sync()


def test_new_invalid_rows_run_the_sync(plan_fixture: PlanFixture) -> None:
    """They have to be recorded, although the table itself didn't change."""
    plan_fixture.invalid = 0
    assert (WorkNeeded.YES, "rows of sync.crm are newly invalid") == plan_fixture.sync()


def test_waiting_rows_alone_are_no_work(plan_fixture: PlanFixture) -> None:
    """Their retry time hasn't come yet."""
    plan_fixture.queues["crm"] = FakeQueueStatus(next_due_at=9e9)
    assert WorkNeeded.NO == plan_fixture.sync()[0]


@pytest.mark.parametrize(
    ("queue", "reads"), [(FakeQueueStatus(watermark=0), True), (FakeQueueStatus(pending_units=1), False)]
)
def test_only_new_versions_need_the_table(plan_fixture: PlanFixture, queue: FakeQueueStatus, *, reads: bool) -> None:
    """A retry must not start a JVM."""
    plan_fixture.queues["crm"] = queue
    (step,) = plan_fixture.plan().syncs
    assert (reads, True) == (step.reads_table, step.will_run)


def test_sinks_that_are_off_have_no_work(plan_fixture: PlanFixture) -> None:
    """The changes wait in the table's change feed."""
    plan_fixture.sinks = "off"
    plan_fixture.queues["crm"] = FakeQueueStatus(watermark=0)
    assert (WorkNeeded.NO, "sinks are off") == plan_fixture.sync()


def test_a_paused_sync_still_polls_its_jobs(plan_fixture: PlanFixture) -> None:
    """The jobs have a time limit, and a poll sends no row."""
    plan_fixture.queues["crm"] = FakeQueueStatus(pending_units=2, polls_due=1, is_paused=True)
    assert (WorkNeeded.YES, "open jobs are to be polled") == plan_fixture.sync()


@pytest.mark.parametrize(
    ("sinks", "queue", "told"),
    [
        ("dry", FakeQueueStatus(pending_units=2), "sinks are dry: 2 pending in the queue"),
        ("on", FakeQueueStatus(pending_units=2, is_paused=True), "it is paused: 2 pending in the queue"),
        ("on", FakeQueueStatus(is_paused=True), "it is paused: nothing waits"),
        ("dry", FakeQueueStatus(polls_due=1), "sinks are dry: open jobs are to be polled"),
    ],
)
def test_a_sync_that_cannot_send_reads_new_rows_only(
    plan_fixture: PlanFixture, sinks: str, queue: FakeQueueStatus, told: str
) -> None:
    """A run that sends nothing starts for new rows, but not again for rows that already wait."""
    plan_fixture.sinks = sinks
    plan_fixture.queues["crm"] = queue
    assert (WorkNeeded.NO, told) == plan_fixture.sync()
    plan_fixture.queues["crm"] = dataclasses.replace(queue, watermark=0)
    assert (WorkNeeded.YES, "version 1 of sync.crm") == plan_fixture.sync()
