"""One model's run: its query over pinned inputs, and its result written as its kind says."""

import contextlib
import dataclasses
import shutil
from collections.abc import Iterator, Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's documentation calls it
from pyspark.sql.types import MapType, StructType

from ondatra_dagster.arrivals import Misfit, WaitingEvents
from ondatra_dagster.changes import Column
from ondatra_dagster.errors import ChecksFailedError, WarehouseError
from ondatra_dagster.planning.commit_note import CommitNote
from ondatra_dagster.planning.delta_log import read_table_state
from ondatra_dagster.planning.delta_schema import PARTITION, REASON
from ondatra_dagster.planning.versions import input_versions, table_version, tables_of
from ondatra_dagster.project.finding import Finding, warned
from ondatra_dagster.project.model import Model, ModelInput
from ondatra_dagster.warehouse import invalid_rows
from ondatra_dagster.warehouse.column_types import check_columns, visible
from ondatra_dagster.warehouse.comparison import column_of
from ondatra_dagster.warehouse.delta_tables import Identity, Target, aligned, open_target
from ondatra_dagster.warehouse.earlier import EarlierInputs, EarlierResults, inputs_then
from ondatra_dagster.warehouse.file_inputs import check_files
from ondatra_dagster.warehouse.inputs import pin_inputs, query_over
from ondatra_dagster.warehouse.kinds.effect import Earlier, Work
from ondatra_dagster.warehouse.kinds.one_a_key import refuse_doubled
from ondatra_dagster.warehouse.kinds.writers import FIRST_VALUES, OWN_COLUMNS, STANDING, WRITERS
from ondatra_dagster.warehouse.last_value import last_value
from ondatra_dagster.warehouse.malformed_rows import explain_malformed_rows
from ondatra_dagster.warehouse.process_locks import writing
from ondatra_dagster.warehouse.row_checks import RowChecks
from ondatra_dagster.warehouse.spark_errors import explained
from ondatra_dagster.warehouse.spark_session import Warehouse
from ondatra_dagster.warehouse.upkeep import mend
from ondatra_dagster.warehouse.work_size import model_bytes, tune

SAMPLES = 20
MISFIT = "MISFIT"  # why an event was put aside


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class InvalidSample:
    key: tuple[str | None, ...]
    reason: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What a model's write did."""

    changed: bool  # False: there was no commit
    table_id: str
    version: int  # the last commit that changed rows
    rows: int  # in the table now
    inputs: Mapping[str, str]  # the versions that were read: when another run came first, newer than planned
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    invalid: Mapping[str, int] = dataclasses.field(
        default_factory=dict
    )  # NULL and DUPLICATE → rows set aside now
    invalid_samples: Sequence[InvalidSample] = ()
    columns: tuple[Column, ...] = ()
    findings: tuple[Finding, ...] = ()  # of the model's checks, each


def evaluate(
    warehouse: Warehouse, model: Model, versions: Mapping[str, str], *, is_full: bool = False
) -> DataFrame:
    """The model's query over its inputs at `versions` (Input.name → version); nothing is computed yet.

    For a full refresh an incremental query begins at its beginning.
    """
    check_files(warehouse.settings, model)
    with explained(model, explain_malformed_rows(warehouse, model)):
        for source in model.inputs:
            if isinstance(source, ModelInput):
                mend(warehouse, source.model)
        views = pin_inputs(warehouse.session, warehouse.settings, model, versions)
        last = last_value(warehouse, model, views, from_start=is_full)
        return query_over(warehouse.session, model, views, last_value=last)


def write_model(
    warehouse: Warehouse,
    model: Model,
    frame: DataFrame,
    note: CommitNote,
    *,
    is_full: bool = False,
    planned: str | None = None,
    events: WaitingEvents | None = None,
) -> Written:
    """Bring the model's table to what the frame holds, in one commit at most; of kind events, append those.

    A full refresh also takes away what the query no longer gives, where the kind would leave it. `planned` is
    the table's version that was planned from: when another run has written since, the query is asked anew.
    Raises WarehouseError, and ChecksFailedError when rows fail the model's checks: then nothing is written.
    """
    explaining = explained(model, explain_malformed_rows(warehouse, model))
    with _releasing(frame), writing(warehouse.locks, model.id, run_id=note.run_id), explaining:
        tune(warehouse.session, warehouse.settings, model_bytes(warehouse.settings, model))
        if planned is not None and planned != _version_now(warehouse, model):
            note, frame = _asked_anew(warehouse, model, note, is_full=is_full)
        check_columns(frame.schema, own=model.kind.own_columns)
        _check_key(model, frame.schema)
        checks = RowChecks(model)
        if model.kind.has_query:
            checks.judge_query(frame)
        note = dataclasses.replace(note, warned=warned(checks.findings))
        with _leaving_no_trace(warehouse.table_path(model.id)):
            return _write(warehouse, model, frame, note, checks, events, is_full=is_full)


def _asked_anew(
    warehouse: Warehouse, model: Model, note: CommitNote, *, is_full: bool
) -> tuple[CommitNote, DataFrame]:
    """The query over its inputs as they are by now."""
    inputs = input_versions(model.inputs, warehouse.settings, tables_of(warehouse.settings))
    return dataclasses.replace(note, inputs=inputs), evaluate(warehouse, model, inputs, is_full=is_full)


def _write(
    warehouse: Warehouse,
    model: Model,
    frame: DataFrame,
    note: CommitNote,
    checks: RowChecks,
    events: WaitingEvents | None,
    *,
    is_full: bool,
) -> Written:
    """Hand the rows to the model's kind, and tell what it made of them."""
    target = _open(warehouse, model, frame, is_full=is_full)
    aside = _Aside(target, note)
    work = Work(
        rows=aligned(frame, target),
        target=target,
        note=note,
        set_aside=aside,
        before_commit=checks.judge_table,
        judge=checks.judge_query,
        warned=lambda: warned(checks.findings),
        events=events,
        earlier=_earlier(warehouse, model, frame, target, note),
        is_full=is_full,
        keeps_order=model.is_ordered,
    )
    effect = WRITERS[model.kind.name](work)
    target.end(is_rewritten=effect.is_of_all_rows)
    state = read_table_state(target.path) or target.state
    return Written(
        changed=effect.changed,
        table_id=state.table_id,
        version=state.version,
        rows=effect.rows,
        inputs=note.inputs,
        inserted=effect.inserted,
        updated=effect.updated,
        deleted=effect.deleted,
        invalid={MISFIT: effect.misfits} if effect.misfits else aside.counts,
        invalid_samples=_misfit_samples(effect.some_misfits) or aside.samples,
        columns=state.columns,
        findings=checks.findings,
    )


def _misfit_samples(misfits: Sequence[Misfit]) -> tuple[InvalidSample, ...]:
    return tuple(InvalidSample(key=(misfit.event,), reason=misfit.problem) for misfit in misfits)


def _version_now(warehouse: Warehouse, model: Model) -> str:
    table = read_table_state(warehouse.table_path(model.id))
    return table_version(table) if table else ""


def _earlier(
    warehouse: Warehouse, model: Model, frame: DataFrame, target: Target, note: CommitNote
) -> Earlier:
    """What the query gave before, for the kind that asks for it."""
    before = target.state.note
    if model.incremental is None:
        return _earlier_inputs(warehouse, model, target, note)
    is_redefined = before is not None and before.definition != note.definition
    return EarlierResults(
        target=target,
        now=aligned(frame, target),
        column=model.incremental.column,
        inputs=_earlier_inputs(warehouse, model, target, note) if is_redefined else None,
    )


def _earlier_inputs(warehouse: Warehouse, model: Model, target: Target, note: CommitNote) -> EarlierInputs:
    return EarlierInputs(
        warehouse=warehouse,
        model=model,
        now=note.inputs,
        then=inputs_then(warehouse.session, model, target, note.inputs),
        align=lambda past: aligned(past, target),
    )


@contextlib.contextmanager
def _releasing(frame: DataFrame) -> Iterator[None]:
    try:
        yield
    finally:
        frame.unpersist()


@contextlib.contextmanager
def _leaving_no_trace(path: str) -> Iterator[None]:
    """A table that is made for rows which an audit then refuses goes again: nothing was written."""
    was_there = read_table_state(path) is not None
    try:
        yield
    except ChecksFailedError:
        if not was_there and "://" not in path:  # elsewhere an empty table stays, which the next run fills
            shutil.rmtree(path)
        raise


class _Aside:
    """Takes the rows that a kind can't write, and remembers how many and some of them."""

    def __init__(self, target: Target, note: CommitNote) -> None:
        self._target = target
        self._note = note
        self.counts: Mapping[str, int] = {}
        self.samples: Sequence[InvalidSample] = ()

    def __call__(self, rows: DataFrame, counts: Mapping[str, int]) -> None:
        self.counts = dict(counts)
        if counts:
            self.samples = _samples(rows, self._target.key_columns)
        invalid_rows.set_aside(self._target.session, self._target, rows, counts, self._note)


def _open(warehouse: Warehouse, model: Model, frame: DataFrame, *, is_full: bool) -> Target:
    identity = Identity(
        kind=model.kind.name,
        key_columns=model.key_columns,
        own_columns=OWN_COLUMNS.get(model.kind.name, {}),
        first_values=FIRST_VALUES.get(model.kind.name, {}),
        partitioned_by=PARTITION if model.kind.name == "partition" else None,
        clustered_by=model.storage_columns,
    )
    return open_target(
        warehouse.session,
        warehouse.table_path(model.id),
        visible(frame.schema),
        identity,
        before_change=lambda: _show_itself(warehouse, model, frame, is_full=is_full),
        converts=is_full,
    )


def _show_itself(warehouse: Warehouse, model: Model, frame: DataFrame, *, is_full: bool) -> None:
    """Raise where the write would fail for its rows, before columns change: the table is left as it was."""
    frame.persist().count()
    path = warehouse.table_path(model.id)
    standing = STANDING.get(model.kind.name)
    if is_full and standing and read_table_state(path):
        there = warehouse.session.read.format("delta").load(path)
        refuse_doubled(frame, standing(there), model.key_columns)


def _check_key(model: Model, schema: StructType) -> None:
    """Refuse a key that the query doesn't give, or that can't be compared."""
    given = {field.name.casefold(): field for field in schema.fields}
    for name in model.key_columns:
        if name.casefold() not in given:
            there = ", ".join(field.name for field in schema.fields)
            raise WarehouseError(
                f"the key {name!r} is no column of the query, which has {there}; select it too"
            )
        if isinstance(given[name.casefold()].dataType, MapType):
            raise WarehouseError(f"the key {name!r} is a map, which can't be one; choose another column")


def _samples(rows: DataFrame, key_columns: tuple[str, ...]) -> tuple[InvalidSample, ...]:
    keys = [column_of(name).cast("string").alias(f"k{place}") for place, name in enumerate(key_columns)]
    found = rows.select(F.array(*keys).alias("key"), REASON).limit(SAMPLES).collect()
    return tuple(InvalidSample(key=tuple(row["key"]), reason=row[REASON]) for row in found)
