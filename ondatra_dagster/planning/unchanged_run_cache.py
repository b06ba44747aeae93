"""The cache of runs that found nothing to write. Such a run leaves no Delta commit.

A model needn't be computed again if it was computed from the same inputs and its table already had this content. The
cache may be lost at any time. Models are then computed once more.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import orjson

from ondatra_dagster.storage.sqlite_database import SqliteSchema, open_existing_database, open_transaction

SCHEMA = SqliteSchema(
    "cache",
    (
        (
            "runs without a change",
            """
            create table unchanged (
                model text primary key,
                definition text not null,
                inputs text not null,  -- JSON: name → version
                table_version text not null,
                checks text not null,
                warned text not null,  -- JSON: check → rows
                at real not null  -- seconds since 1970
            ) strict
            """,
        ),
    ),
    damage_advice="move it away: some models are computed once more than needed",
)

INSERT_RUN = """
insert or replace into unchanged (model, definition, inputs, table_version, checks, warned, at)
values (?, ?, ?, ?, ?, ?, ?)
"""
SELECT_RUNS = "select model, definition, inputs, table_version, checks, warned, at from unchanged"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class UnchangedRun:
    """A run of a model that didn't change its table."""

    definition: str
    inputs: Mapping[str, str]
    table_version: str
    at: float  # the time of the run, in seconds since 1970
    checks: str = ""  # a digest of the checks that the run evaluated
    warned: Mapping[str, int] = dataclasses.field(default_factory=dict)  # name of a @warning → rows that failed it


class UnchangedRunCache:
    """The cache file .ondatra/cache.sqlite. Any number of processes may use it at once."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def store_run(self, model_id: str, run: UnchangedRun) -> None:
        """Store the model's newest run that changed nothing, over an earlier one."""
        with open_transaction(self._path, SCHEMA, purpose="writing the cache") as store:
            inputs, warnings_text = (orjson.dumps(dict(mapping)).decode() for mapping in (run.inputs, run.warned))
            columns = (run.definition, inputs, run.table_version, run.checks, warnings_text, run.at)
            store.execute(INSERT_RUN, (model_id, *columns))

    def read_runs(self) -> dict[str, UnchangedRun]:
        """Return the stored run of each model, by the model's id."""
        with open_existing_database(self._path, SCHEMA) as store:
            rows = store.fetch_rows(SELECT_RUNS) if store else ()
            return {
                str(model): UnchangedRun(
                    definition=str(definition),
                    inputs=orjson.loads(inputs),
                    table_version=str(table_version),
                    checks=str(checks),
                    warned=orjson.loads(warnings_text),
                    at=run_at,
                )
                for model, definition, inputs, table_version, checks, warnings_text, run_at in rows
            }
