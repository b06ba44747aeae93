"""The version of each thing that a model reads, as one text: where it is the same, so is what was read.

What a version means for a model is decided in plan. Nothing here opens a file but for its log.
"""

import glob
import hashlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from ondatra_dagster.planning.delta_log import TableState, read_table_state, table_path
from ondatra_dagster.project.model import FileInput, Input, ModelInput, SourceInput
from ondatra_dagster.project.settings import Settings
from ondatra_dagster.project.sources import is_folder

UNVERSIONED = "unversioned"  # nobody can tell whether it changed, so it counts as changed
MISSING = "missing"  # a model whose table was never made

Tables = Callable[[str], TableState | None]  # model id → its table


def table_version(table: TableState) -> str:
    """The version of a Delta table: another table in the same place has another one."""
    return f"{table.table_id}@{table.version}"


def input_versions(inputs: tuple[Input, ...], settings: Settings, tables: Tables) -> dict[str, str]:
    """Each input's version by its name."""
    return {read.name: _version(read, settings, tables) for read in inputs}


def tables_of(settings: Settings) -> Tables:
    """The project's tables as their logs tell; each log is read once."""
    known: dict[str, TableState | None] = {}

    def table(model_id: str) -> TableState | None:
        if model_id not in known:
            known[model_id] = read_table_state(table_path(settings, model_id))
        return known[model_id]

    return table


def _version(read: Input, settings: Settings, tables: Tables) -> str:
    match read:
        case ModelInput(model=model):
            table = tables(model)
            return table_version(table) if table else MISSING
        case FileInput(path=path):
            return UNVERSIONED if "://" in path else _files_version(settings.root, path)
        case SourceInput():
            return _source_version(read, settings)


def _source_version(source: SourceInput, settings: Settings) -> str:
    if not is_folder(source, settings):
        return UNVERSIONED
    table = read_table_state(settings.root / source.location / source.table)
    return table_version(table) if table else UNVERSIONED


def _files_version(root: Path, pattern: str) -> str:
    """A digest of every file's path, size and time."""
    digest = hashlib.sha256()
    for path in sorted(set(_files(root, pattern))):
        state = path.stat()
        digest.update(f"{path}\0{state.st_size}\0{state.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _files(root: Path, pattern: str) -> Iterator[Path]:
    """The files that Spark reads at a path: of a folder all below it, but for hidden ones."""
    for found in glob.glob(str(root / pattern)):  # noqa: PTH207 - an absolute path may be a pattern
        path = Path(found)
        if path.is_dir():
            yield from (file for file in path.rglob("*") if file.is_file() and not _is_hidden(file, path))
        elif path.is_file():
            yield path


def _is_hidden(file: Path, folder: Path) -> bool:
    return any(part.startswith((".", "_")) for part in file.relative_to(folder).parts)


def changed_inputs(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The names of inputs that are not as they were."""
    return [name for name, version in now.items() if before.get(name) != version]
