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
    ),
)

PUT = "insert or replace into unchanged values (:model, :definition, :inputs, :table_version)"
READ = "select model, definition, inputs, table_version from unchanged"
# between the making of the file and of its table another process may be looking
HAS_TABLE = "select 1 from sqlite_master where name = 'unchanged'"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Unchanged:
    """A run of a model that left its table as it was."""

    definition: str
    inputs: Mapping[str, str]
    table_version: str


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
                },
            )

    def read(self) -> dict[str, Unchanged]:
        """What is remembered, by model id."""
        if not self._path.exists():
            return {}
        with read_only(self._path) as store:
            if not store.rows(HAS_TABLE):
                return {}
            return {
                str(model): Unchanged(
                    definition=str(definition),
                    inputs=orjson.loads(inputs),
                    table_version=str(table_version),
                )
                for model, definition, inputs, table_version in store.rows(READ)
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
