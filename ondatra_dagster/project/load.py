"""From the user's files to a Project: everything that is wrong with any of them is reported together.

Reads files only: no JVM, no network, and nothing is written.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ondatra_dagster.errors import Problem, ProjectError
from ondatra_dagster.project import graph
from ondatra_dagster.project.draft import Draft, read_draft
from ondatra_dagster.project.header import Header
from ondatra_dagster.project.inputs.file_options import FORMATS
from ondatra_dagster.project.inputs.sources import OWN_SCHEMA, Names, is_there, remedy_of, sources_of
from ondatra_dagster.project.model import FileInput, Model, ModelInput
from ondatra_dagster.project.model_files import ModelFile, find_models, find_sinks
from ondatra_dagster.project.project import Project
from ondatra_dagster.project.settings.setting_places import place_of
from ondatra_dagster.project.settings.settings import Settings
from ondatra_dagster.project.sql.query import Query
from ondatra_dagster.project.sql.query_shape import is_ordered, is_row_by_row, leaves_equals_out
from ondatra_dagster.project.sql.references import Found, find_references

SYNC_ID_LENGTH = 100


class Reading(NamedTuple):
    """A project as far as it can be read, and everything that is wrong with its files."""

    project: Project
    problems: Sequence[Problem]
    is_whole: bool  # every file that can be a model is one of the project's


def load_project(root: Path, settings: Settings) -> Project:
    """The project at `root`; raises ProjectError with every problem that its files have."""
    reading = read_project(root, settings)
    if reading.problems:
        raise ProjectError(reading.problems)
    return reading.project


def read_project(root: Path, settings: Settings) -> Reading:
    """The same for who has more to find out before it complains."""
    root = root.resolve()
    problems: list[Problem] = []
    warnings: list[Problem] = []
    sinks = find_sinks(root)
    files = find_models(root, problems.append)
    names = Names(models={file.name.casefold(): file.name for file in files}, sources=sources_of(settings))
    drafts = [draft for file in files if (draft := read_draft(file, sinks, problems.append))]
    models: dict[str, Model] = {}
    lines: dict[str, Found] = {}
    for draft in drafts:
        found = find_references(draft.query, names)
        problems += [draft.problem(*missing) for missing in found.missing]
        warnings += [*_absent(draft, found, settings), *_strict_comparison(draft), *_bare_decimals(draft)]
        model = _model(draft, found, settings)
        models[model.id] = model
        lines[model.id] = found
    problems += _same_sync_ids(list(models.values()))
    problems += _clashing_sources(files, settings)
    order, cycles = graph.in_order(_reads(models))
    problems += [_cycle_problem(cycle, models, lines) for cycle in cycles]
    project = Project(
        root=root,
        settings=settings,
        models={id_: models[id_] for id_ in order},
        sink_files=sinks,
        warnings=tuple(sorted(warnings)),
    )
    return Reading(project, problems, is_whole=len(drafts) == len(files))


def _model(draft: Draft, found: Found, settings: Settings) -> Model:
    header, query = draft.header, draft.query
    key_columns = tuple(draft.columns.find(name) or name for name in header.key_columns)
    return Model(
        name=draft.source.name,
        path=draft.source.path,
        file=draft.source.file,
        kind=header.kind,
        sql=query.sql,
        sql_line=draft.line,
        definition=_definition(query, header, settings),
        inputs=found.inputs,
        references=found.references,
        edits=query.dialect.edits,
        is_deterministic=query.is_deterministic,
        is_row_by_row=query.is_deterministic and len(found.inputs) == 1 and is_row_by_row(query.tree),
        is_ordered=is_ordered(query.tree),
        last_values=query.last_values,
        incremental=header.incremental,
        event_columns=draft.event_columns,
        storage_columns=tuple(draft.columns.find(name) or name for name in header.storage_columns),
        key_columns=key_columns,
        sink=header.sink,
        description=header.description,
        owners=header.owners,
        tags=header.tags,
        column_descriptions=header.column_descriptions,
        checks=header.checks,
        schedule=header.schedule,
    )


def _definition(query: Query, header: Header, settings: Settings) -> str:
    """A digest of all that decides which rows the inputs become: Spark SQL's own settings are part of it."""
    session = {name: value for name, value in settings.spark.conf.items() if name.startswith("spark.sql.")}
    key = [name.casefold() for name in header.key_columns]
    incremental = header.incremental.column.casefold() if header.incremental else None
    decides = json.dumps([query.words, header.kind.name, key, incremental, session], sort_keys=True)
    return hashlib.sha256(decides.encode()).hexdigest()


def _absent(draft: Draft, found: Found, settings: Settings) -> Iterator[Problem]:
    """Files and tables that aren't there now: only a warning, for something may yet bring them."""
    for read, line in found.lines:
        if not isinstance(read, ModelInput) and not is_there(read, settings):
            name = read.path if isinstance(read, FileInput) else read.name
            yield draft.problem(line, f"{name} isn't there", remedy_of(read, settings))


def _strict_comparison(draft: Draft) -> Iterator[Problem]:
    """Rows that are as new as the newest may still come: > leaves them out for ever."""
    if draft.query.last_values and leaves_equals_out(draft.query.tree):
        line = draft.query.sql.count("\n", 0, draft.query.last_values[0][0]) + 1
        what = "rows that are equal to {{ last_value }} and come later are lost"
        yield draft.problem(line, what, "compare with >=: those that are there already aren't taken twice")


def _bare_decimals(draft: Draft) -> Iterator[Problem]:
    """Decimals that lose what is behind the point: elsewhere those without digits keep it."""
    for written, line in sorted({(written.upper(), line) for written, line in draft.query.bare_decimals}):
        what = f"{written} without digits is DECIMAL(10, 0) in Spark: nothing stays behind the point"
        yield draft.problem(line, what, f"write {written}(18, 2), or how many digits it has")


def _same_sync_ids(models: Sequence[Model]) -> Iterator[Problem]:
    """Ids that two syncs share, or that are too long for a folder's name."""
    first: dict[str, Model] = {}
    for model in models:
        if model.sink is None:
            continue
        sync_id = model.sink.sync_id
        other = first.setdefault(sync_id.casefold(), model)
        if other is not model:
            what = f"sync id {sync_id!r} is also that of {other.file}"
            yield Problem(file=model.file, line=model.sink.line, what=what, remedy="give it an own @sync_id")
        if len(sync_id) > SYNC_ID_LENGTH:
            what = f"the model's name is too long for a sync id ({len(sync_id)} of {SYNC_ID_LENGTH})"
            yield Problem(file=model.file, line=model.sink.line, what=what, remedy="add a @sync_id")


def _clashing_sources(files: Sequence[ModelFile], settings: Settings) -> Iterator[Problem]:
    """Sources with the name of a folder of models or a file format: which is meant would be a guess."""
    folders = {file.name.partition(".")[0].casefold() for file in files}
    for source in settings.sources:
        taken = f"models/{source}" if source.casefold() in folders else None
        taken = "a file format" if source.casefold() in FORMATS else taken
        taken = "where ondatra's own tables are" if source.casefold() == OWN_SCHEMA else taken
        if taken:
            what = f"[tool.ondatra.sources] {source!r} is also {taken}"
            file, line = place_of(f"sources.{source}", settings.root)
            yield Problem(file=file, line=line, what=what, remedy="rename the source")


def _reads(models: Mapping[str, Model]) -> dict[str, list[str]]:
    return {
        model.id: [read.model for read in model.inputs if isinstance(read, ModelInput)]
        for model in models.values()
    }


def _cycle_problem(cycle: Sequence[str], models: Mapping[str, Model], found: Mapping[str, Found]) -> Problem:
    """The whole path, at the line where its first model reads the next."""
    first = models[cycle[0]]
    line = dict(found[first.id].lines)[ModelInput(model=cycle[1])]
    path = " reads ".join(models[id_].name for id_ in cycle)
    return Problem(
        file=first.file,
        line=first.sql_line + line - 1,
        what=f"a cycle: {path}",
        remedy="take one of these inputs away",
    )
