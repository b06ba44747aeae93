"""What runs that found nothing to write leave behind, for a Delta commit can't tell of them.

A model that was computed from these inputs and gave just what its table has needn't be computed again.
The cache may be lost at any time: that costs one computation.
"""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path

import orjson

from ondatra_dagster.store.database import Schema, Store, connect, read_only
from ondatra_dagster.store.lock import FileLock

SCHEMA = Schema(
    "cache",
    (
        (
            "runs without a change",
            """
            create table unchanged (
                model text primary key,
                definition text not null,
                inputs text not null,  -- JSON: name → version
                table_version text not null
            ) strict
            """,
        ),
        (
            "what was checked",
            """
            alter table unchanged add column checks text not null default '';
            alter table unchanged add column warned text not null default '{}';  -- JSON: check → rows
            """,
        ),
        (
            "when it was",
            "alter table unchanged add column at real",  # seconds since 1970
        ),
    ),
)

PUT = """
insert or replace into unchanged (model, definition, inputs, table_version, checks, warned, at)
values (:model, :definition, :inputs, :table_version, :checks, :warned, :at)
"""
READ = "select model, definition, inputs, table_version, checks, warned, at from unchanged"
# between the making of the file and of its columns another process may be looking
HAS_COLUMNS = "select 1 from pragma_table_info('unchanged') where name = 'at'"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Unchanged:
    """A run of a model that left its table as it was."""

    definition: str
    inputs: Mapping[str, str]
    table_version: str
    checks: str = ""  # a digest of those that were judged
    warned: Mapping[str, int] = dataclasses.field(default_factory=dict)  # @warning → how many rows failed it
    at: float | None = None  # when that was, in seconds since 1970


class NoopCache:
    """The file .ondatra/cache.sqlite. Any number of processes may use it at once."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def remember(self, model_id: str, unchanged: Unchanged) -> None:
        """Keep the model's newest run without a change."""
        with self._writing() as store:
            store.run(
                PUT,
                {
                    "model": model_id,
                    "definition": unchanged.definition,
                    "inputs": orjson.dumps(dict(unchanged.inputs)).decode(),
                    "table_version": unchanged.table_version,
                    "checks": unchanged.checks,
                    "warned": orjson.dumps(dict(unchanged.warned)).decode(),
                    "at": unchanged.at,
                },
            )

    def read(self) -> dict[str, Unchanged]:
        """What is remembered, by model id."""
        if not self._path.exists():
            return {}
        with read_only(self._path, SCHEMA) as store:
            if not store.rows(HAS_COLUMNS):
                return {}
            return {
                str(model): Unchanged(
                    definition=str(definition),
                    inputs=orjson.loads(inputs),
                    table_version=str(table_version),
                    checks=str(checks),
                    warned=orjson.loads(warned),
                    at=at,
                )
                for model, definition, inputs, table_version, checks, warned, at in store.rows(READ)
            }

    @contextlib.contextmanager
    def _writing(self) -> Iterator[Store]:
        # SQLite before 3.51.3 can damage a file that two connections write and checkpoint at one instant
        lock = FileLock(
            self._path.parent / "locks" / f"{self._path.name}.lock",
            purpose="writing the cache",
            wait_seconds=60,
        )
        with lock, connect(self._path, SCHEMA) as store, store.immediate():
            yield store
