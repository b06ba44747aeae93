"""A SQLite file: private, durable and migrated, used by one process or by several.

A write transaction takes the write lock first. All SQL statements on a file's tables are in the module that owns
these tables.
"""

import contextlib
import dataclasses
import errno
import functools
import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from ondatra_dagster.count_time_and_size_format import ondatra_version
from ondatra_dagster.errors import StateError
from ondatra_dagster.storage.file_errors import (
    FILE_ERRORS,
    RESTORE_FROM_BACKUP,
    damage_error,
    explain_file_errors,
    integrity_errors,
    raise_state_error,
)

if TYPE_CHECKING:
    from sqlite_utils import Database
from ondatra_dagster.storage.file_lock import FileLock

COPY_TRIES = 3
IDLE_SECONDS = 0.05  # a file without a write for this long counts as idle
VACUUM_FREE_SHARE = 0.2  # share of a file's pages: with more free pages, a VACUUM is worth its time

SqlValue: TypeAlias = str | bytes | int | float | None
SqlParameters: TypeAlias = Mapping[str, SqlValue] | Sequence[SqlValue]
SqlRow: TypeAlias = tuple[Any, ...]  # the statement determines the types, and its caller knows them

SELECT_OBJECTS = "select name, sql from sqlite_master where sql is not null"
WRONG_SCHEMA = "its schema was changed"
SELECT_STEPS_TABLE = "select 1 from sqlite_master where name = '_sqlite_migrations'"
SELECT_STEPS = "select name from _sqlite_migrations where migration_set = ?"
# the version of ondatra that applied the newest step: an older version names it in its error
CREATE_WRITER_TABLE = "create table if not exists _written_by (id integer primary key check (id = 1), version text)"
WRITE_WRITER = "insert or replace into _written_by values (1, ?)"
SELECT_WRITER = "select version from _written_by"
CANNOT_CREATE_FILES_CODES = (
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
)
FIRST_READ = "select 1 from sqlite_master limit 1"  # fixes the snapshot of a deferred transaction


@dataclasses.dataclass(frozen=True, slots=True)
class SqliteSchema:
    """The schema of one kind of file, as migration steps: (name, SQL script), oldest first."""

    name: str
    steps: tuple[tuple[str, str], ...]
    page_bytes: int = 4096  # for a new file; large rows need large pages
    damage_advice: str = RESTORE_FROM_BACKUP  # what to do with a damaged file, and what that costs


class SqliteStore:
    """An open SQLite file. One thread uses it at a time. Its methods raise StateError for a fault of the file."""

    def __init__(self, connection: sqlite3.Connection, path: Path, *, damage_advice: str = RESTORE_FROM_BACKUP) -> None:
        self.path = path
        self._connection = connection
        self._damage_advice = damage_advice

    @contextlib.contextmanager
    def write_transaction(self) -> Iterator[None]:
        """Run the statements of the `with` block in one transaction, which takes the write lock first.

        A deferred transaction would fail at its first write if another process had written since its first read. A
        nested transaction is part of the outermost one, which commits or rolls back.
        """
        if self._connection.in_transaction:
            yield
            return
        self.execute("begin immediate")
        try:
            yield
            self.execute("commit")
        except BaseException:
            self._roll_back()
            raise

    def _roll_back(self) -> None:
        """End the transaction, unless a full disk has ended it already."""
        with contextlib.suppress(sqlite3.Error):  # the error that led here says more
            if self._connection.in_transaction:
                self._connection.execute("rollback")

    @contextlib.contextmanager
    def read_transaction(self) -> Iterator[None]:
        """Run the statements of the `with` block on one snapshot of the file; keep the time short.

        Meanwhile other connections' writes stay in the write-ahead log, and a checkpoint of the log has to wait.
        """
        self.execute("begin")
        try:
            self.fetch_rows(FIRST_READ)
            yield
        finally:
            self._roll_back()

    def fetch_rows(self, statement: str, parameters: SqlParameters = ()) -> list[SqlRow]:
        """Return all rows of the result at once, because a half-read RETURNING would keep its transaction open."""
        try:
            return self._connection.execute(statement, parameters).fetchall()
        except FILE_ERRORS as error:
            self._raise_state_error(error)

    def iterate_rows(self, statement: str, parameters: SqlParameters = ()) -> Iterator[SqlRow]:
        """Yield the rows of a large result one by one."""
        with explain_file_errors(self.path, self._damage_advice):
            rows = self._connection.execute(statement, parameters)
        while (row := self._fetch_next(rows)) is not None:
            yield row

    def _fetch_next(self, rows: sqlite3.Cursor) -> SqlRow | None:
        try:
            row: SqlRow | None = next(rows, None)
        except FILE_ERRORS as error:
            self._raise_state_error(error)
        return row

    def execute(self, statement: str, parameters: SqlParameters = ()) -> int:
        """Execute the statement; return how many rows it changed."""
        try:
            return self._connection.execute(statement, parameters).rowcount
        except FILE_ERRORS as error:
            self._raise_state_error(error)

    def execute_many(self, statement: str, parameters: Iterable[SqlParameters]) -> None:
        try:
            self._connection.executemany(statement, parameters)
        except FILE_ERRORS as error:
            self._raise_state_error(error)

    @contextlib.contextmanager
    def explain_damage(self) -> Iterator[None]:
        """Raise StateError for an unforeseen error in the `with` block if SQLite finds the file damaged.

        Wherever a value is read, a damaged page may give a value of another type, or no value.
        """
        try:
            yield
        except (TypeError, ValueError, LookupError) as error:
            with explain_file_errors(self.path, self._damage_advice):
                problems = integrity_errors(self._connection)
            if problems:
                raise self.damage_error("; ".join(problems)) from error
            raise

    def add_function(self, name: str, function: Callable[..., SqlValue]) -> None:
        """Make a Python function available to statements of this connection. The function must be deterministic."""
        self._connection.create_function(name, -1, function, deterministic=True)

    def checkpoint(self) -> None:
        """Write the write-ahead log into the file and empty the log, as far as readers allow it."""
        self.fetch_rows("pragma wal_checkpoint(truncate)")

    def damage_error(self, damage: str) -> StateError:
        """Return the error of a file whose content can't be trusted, with the reason."""
        return damage_error(self.path, damage, self._damage_advice)

    def _raise_state_error(self, error: Exception) -> NoReturn:
        raise_state_error(error, self.path, self._damage_advice)

    @property
    def connection(self) -> sqlite3.Connection:
        """Return the connection. Only this module may use it, to open and migrate files."""
        return self._connection

    def back_up(self, target: sqlite3.Connection) -> None:
        """Copy the file's present content into another database."""
        with explain_file_errors(self.path, self._damage_advice):
            self._connection.backup(target)

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> "SqliteStore":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_database(
    path: Path, schema: SqliteSchema, *, wait_seconds: float = 30, used_by_threads: bool = False
) -> SqliteStore:
    """Open the file at `path` and migrate it; create it, readable by its owner only, if it is missing.

    With `used_by_threads`, several threads may use the file. The caller makes sure that only one does so at a time.
    """
    with explain_file_errors(path, schema.damage_advice, is_opening=True):
        _create_private(path)
        connection = sqlite3.connect(
            path, timeout=wait_seconds, isolation_level=None, check_same_thread=not used_by_threads
        )
        try:
            connection.execute(f"pragma page_size = {schema.page_bytes}")  # no effect once the file has pages
            connection.execute("pragma journal_mode = wal").fetchall()
            connection.execute("pragma synchronous = full")
            _migrate(connection, schema, path)
        except BaseException:
            connection.close()
            raise
    return SqliteStore(connection, path, damage_advice=schema.damage_advice)


@contextlib.contextmanager
def open_read_only(path: Path, schema: SqliteSchema | None = None) -> Iterator[SqliteStore]:
    """Open the file at `path` to read it: don't create or migrate it, and don't disturb its writer.

    With a `schema`, a file of an older ondatra is migrated in memory, and a file of a newer ondatra is refused.
    """
    damage_advice = schema.damage_advice if schema else RESTORE_FROM_BACKUP
    with contextlib.ExitStack() as stack:
        with explain_file_errors(path, damage_advice, is_opening=True):
            store = stack.enter_context(SqliteStore(_connect_read_only(path), path, damage_advice=damage_advice))
            applied_steps = _read_applied_steps(store.connection, schema, path) if schema else set()
            if schema and applied_steps and applied_steps != {name for name, _ in schema.steps}:
                in_memory = sqlite3.connect(":memory:", isolation_level=None)
                migrated_store = stack.enter_context(SqliteStore(in_memory, path, damage_advice=damage_advice))
                store.back_up(migrated_store.connection)
                _migrate(migrated_store.connection, schema, path)
                store = migrated_store
        yield store


def _connect_read_only(path: Path) -> sqlite3.Connection:
    """Open the file to read it, even if the disk is full or read-only.

    To read a database, SQLite creates files next to it. If it can't create them, and the write-ahead log is empty,
    the file is opened as immutable.
    """
    uri = f"{path.absolute().as_uri()}?mode=ro"
    try:
        return _open_uri(uri)
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF not in CANNOT_CREATE_FILES_CODES or _file_bytes(path) > path.stat().st_size:
            raise
        return _open_uri(f"{uri}&immutable=1")


def _open_uri(uri: str) -> sqlite3.Connection:
    connection = sqlite3.connect(uri, uri=True, timeout=5, isolation_level=None)
    try:
        connection.execute(FIRST_READ)  # SQLite opens the file at its first read
    except BaseException:
        connection.close()
        raise
    return connection


def check_integrity(path: Path, damage_advice: str) -> None:
    """Raise StateError if the file's tables and indexes disagree, or if pages of it are damaged.

    The caller holds the file's lock.
    """
    with explain_file_errors(path, damage_advice, is_opening=True), _open_connection(path) as connection:
        problems = integrity_errors(connection)
    if problems:
        raise damage_error(path, "; ".join(problems), damage_advice)


def compact_database(path: Path, damage_advice: str = RESTORE_FROM_BACKUP) -> int:
    """Free the unused space of the file and of its write-ahead log; return how many bytes were freed.

    The caller holds the file's lock: SQLite before 3.51.3 can damage a file that two connections checkpoint.
    """
    with explain_file_errors(path, damage_advice, is_opening=True):
        bytes_before = _file_bytes(path)
        with _open_connection(path) as connection:
            connection.execute("pragma wal_checkpoint(truncate)").fetchall()
            ((free_pages,),), ((pages,),) = (
                connection.execute(f"pragma {name}").fetchall() for name in ("freelist_count", "page_count")
            )
            if free_pages > pages * VACUUM_FREE_SHARE:
                connection.execute("vacuum")
                connection.execute("pragma wal_checkpoint(truncate)").fetchall()
        return max(0, bytes_before - _file_bytes(path))


def _open_connection(path: Path) -> contextlib.closing[sqlite3.Connection]:
    return contextlib.closing(sqlite3.connect(path, timeout=5, isolation_level=None))


def _file_bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in _list_database_files(path) if file.exists())


def copy_database(path: Path, target_path: Path) -> None:
    """Copy the file at `path`, as of one moment, to a file that only its owner may read; leave `path` unchanged.

    SQLite leaves files next to a database that it opens, even to read it. So the files are copied without SQLite.
    SQLite makes the copy only if another process keeps writing.
    """
    for _ in range(COPY_TRIES):
        with explain_file_errors(path):
            states_before = _read_file_states(path)
            for source, target in zip(_list_database_files(path), _list_database_files(target_path), strict=True):
                _copy_file(source, target)
            # the second of two writes in one tick of the clock doesn't change the file's time
            is_idle = all(time.time() - written > IDLE_SECONDS for _, written in states_before)
            if is_idle and states_before == _read_file_states(path):
                return
        time.sleep(IDLE_SECONDS)
    with explain_file_errors(target_path):
        for target in _list_database_files(target_path):
            target.unlink(missing_ok=True)
        _create_private(target_path)
        with open_read_only(path) as store, contextlib.closing(sqlite3.connect(target_path)) as written:
            store.back_up(written)


def _copy_file(source: Path, target: Path) -> None:
    with explain_file_errors(target):
        target.unlink(missing_ok=True)
        with contextlib.suppress(FileNotFoundError), source.open("rb") as source_file:
            _create_private(target)
            with target.open("wb") as target_file:
                shutil.copyfileobj(source_file, target_file)


def _list_database_files(path: Path) -> tuple[Path, Path]:
    """Return the files that hold the database's content: the database and its write-ahead log."""
    return path, path.with_name(f"{path.name}-wal")


def _read_file_states(path: Path) -> list[tuple[int, float]]:
    """Return the files' sizes and modification times. While these stay equal, no process has written."""
    states = []
    for file in _list_database_files(path):
        with contextlib.suppress(FileNotFoundError):
            state = file.stat()
            states.append((state.st_size, state.st_mtime))
    return states


def _create_private(path: Path) -> None:
    # the -wal and -shm files get the database's mode, so it has to exist before SQLite opens it
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.is_symlink() and not path.exists():  # the disk that the link leads to may be missing
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))


def _migrate(connection: sqlite3.Connection, schema: SqliteSchema, path: Path) -> None:
    if _read_applied_steps(connection, schema, path) == {name for name, _ in schema.steps}:
        return
    from sqlite_utils import Database, Migrations  # imported here: it loads pandas if that is installed

    # written before the steps: an ondatra that doesn't know one of them names the writer's version in its error
    connection.execute(CREATE_WRITER_TABLE)
    connection.execute(WRITE_WRITER, (ondatra_version(),))
    migrations = Migrations(schema.name)
    for name, script in schema.steps:
        migrations(name=name)(_build_step(script))
    migrations.apply(Database(connection))


def _read_applied_steps(connection: sqlite3.Connection, schema: SqliteSchema, path: Path) -> set[str]:
    """Return the names of the steps that were applied to the file.

    Raise StateError if a newer ondatra applied some, or if the tables aren't those of the steps.
    """
    objects = set(connection.execute(SELECT_OBJECTS))
    if not connection.execute(SELECT_STEPS_TABLE).fetchone():
        if objects & _expected_objects(schema):
            raise damage_error(path, WRONG_SCHEMA, schema.damage_advice)
        return set()
    applied_steps = {str(name) for (name,) in connection.execute(SELECT_STEPS, (schema.name,))}
    if unknown_steps := applied_steps - {name for name, _ in schema.steps}:
        writer = connection.execute(SELECT_WRITER).fetchone()[0]
        raise StateError(
            f"{path} was written by ondatra {writer} (it has {', '.join(sorted(unknown_steps))}), and this is"
            f" {ondatra_version()}: use ondatra {writer} or a newer one"
        )
    if len(applied_steps) == len(schema.steps) and not _expected_objects(schema) <= objects:
        raise damage_error(path, WRONG_SCHEMA, schema.damage_advice)
    return applied_steps


@functools.lru_cache
def _expected_objects(schema: SqliteSchema) -> frozenset[tuple[str, str]]:
    """Return the names and definitions of the tables and indexes that the steps create."""
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        for _, script in schema.steps:
            for statement in _split_statements(script):
                connection.execute(statement)
        return frozenset(connection.execute(SELECT_OBJECTS))


def _split_statements(script: str) -> Iterator[str]:
    return filter(str.strip, script.split(";"))


def _build_step(script: str):  # type: ignore[no-untyped-def]  # the library's own decorator is generic over it
    def run_script(database: "Database") -> None:
        for statement in _split_statements(script):
            database.execute(statement)

    return run_script


WAIT_SECONDS = 60


@contextlib.contextmanager
def open_existing_database(path: Path, schema: SqliteSchema) -> Iterator[SqliteStore | None]:
    """Open the file to read it; yield None if it is missing, or while another process creates its tables."""
    with explain_file_errors(path, schema.damage_advice):
        is_there = path.exists() or path.is_symlink()
    if not is_there:
        yield None
        return
    with open_read_only(path, schema) as store:
        with explain_file_errors(path, schema.damage_advice, is_opening=True):
            has_tables = bool(_read_applied_steps(store.connection, schema, path))
        yield store if has_tables else None


@contextlib.contextmanager
def open_transaction(path: Path, schema: SqliteSchema, *, purpose: str) -> Iterator[SqliteStore]:
    """Open the file, or create it, for one transaction. Other processes that write the file wait for the lock."""
    lock = FileLock(path.parent / "locks" / f"{path.name}.lock", purpose=purpose, wait_seconds=WAIT_SECONDS)
    with lock, open_database(path, schema) as store, store.write_transaction():
        yield store
