"""The user's files: which there are, and their text. What they say is read elsewhere."""

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeAlias

from ondatra_dagster.errors import Problem

RESERVED_FOLDERS = frozenset({"csv", "json", "parquet", "orc", "avro", "text", "delta", "ondatra"})
INVALID_SUFFIX = "__invalid"  # SCHEMA.TABLE__invalid holds the rows that were set aside
ReportProblem = Callable[[Problem], None]


class ModelFile(NamedTuple):
    name: str  # sync.crm
    path: Path
    file: str  # models/sync/crm.sql


def find_model_files(root: Path, report: ReportProblem) -> list[ModelFile]:
    """Every model file whose name can be a model's, in order; reports the others."""
    folder = root / "models"
    if not folder.is_dir():
        report(_problem("models", "there is no such folder", "stand in a project, or make one: ondatra init DIR"))
        return []
    found: dict[str, ModelFile] = {}
    for path in _sql_files(folder):
        file = path.relative_to(root).as_posix()
        model = ModelFile(".".join((path.parent.name, path.stem)), path, file)
        wrong = _find_name_problem(path, folder)
        other = found.get(_unique_model_name(model))
        if wrong:
            report(_problem(file, *wrong))
        elif other:
            same = other.name.casefold() == model.name.casefold()
            what = f"{other.file} is {'the same model' if same else 'the same name in Dagster'}"
            report(_problem(file, what, "rename one of them"))
        else:
            found[_unique_model_name(model)] = model
    return list(found.values())


def find_sink_files(root: Path) -> dict[str, Path]:
    """Every lib/*.star by its name."""
    return {path.stem: path for path in sorted((root / "lib").glob("*.star")) if path.is_file()}


def read_model_text(model: ModelFile, report: ReportProblem) -> str | None:
    """The file's text with plain line ends; None, and a problem, when it can't be read."""
    try:
        content = model.path.read_bytes()
    except OSError as error:
        report(_problem(model.file, f"the file can't be read: {error.strerror}", "make it readable"))
        return None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        report(_problem(model.file, "the file is not UTF-8", "save it as UTF-8", line=line))
        return None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _unique_model_name(model: ModelFile) -> str:
    """What no two models may share: Spark looks past case, and Dagster takes a.b__c and a__b.c for one."""
    return model.name.replace(".", "__").casefold()


def _sql_files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if path.suffix.casefold() == ".sql" and not hidden and path.is_file():
            yield path


def _find_name_problem(path: Path, folder: Path) -> tuple[str, str] | None:
    """Why a file can't be a model, and what to do about it."""
    if path.parent.parent != folder:
        return "a model is exactly one folder deep", "move it to models/FOLDER/NAME.sql"
    for name in (path.parent.name, path.stem):
        if not re.fullmatch(r"[A-Za-z0-9_]+", name):
            return f"{name!r} can't be part of a model's name", "rename it with A-Z a-z 0-9 _"
    if path.parent.name.casefold() in RESERVED_FOLDERS:
        return (f"{path.parent.name!r} can't be a folder of models", "rename it: the word has a meaning of its own")
    if path.stem.casefold().endswith(INVALID_SUFFIX):
        return (f"a model can't end in {INVALID_SUFFIX}", "rename it: such tables hold invalid rows")
    return None


def _problem(file: str, what: str, remedy: str, *, line: int = 1) -> Problem:
    return Problem(file=file, line=line, description=what, remedy=remedy)


FileStates: TypeAlias = frozenset[tuple[str, int, int]]


def read_file_states(root: Path, patterns: Iterable[str]) -> FileStates:
    """Return each file's path, time and size: another result means that one of the files has changed."""
    states = []
    for path in (path for pattern in patterns for path in root.glob(pattern)):
        with contextlib.suppress(FileNotFoundError):
            state = path.stat()
            states.append((str(path), state.st_mtime_ns, state.st_size))
    return frozenset(states)
