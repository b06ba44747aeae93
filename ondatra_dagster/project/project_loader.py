"""The loading of a Project from the user's files. All problems of all files are reported together.

This module only reads files: it starts no JVM, opens no network connection and writes nothing.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ondatra_dagster.errors import Problem, ProjectError
from ondatra_dagster.project.find_and_parse_model_files import (
    ModelFile,
    ParsedModelFile,
    find_model_files,
    find_sink_files,
    parse_model_file,
)
from ondatra_dagster.project.inputs.input_resolution import (
    ONDATRA_SCHEMA,
    InputNames,
    absent_input_remedy,
    is_input_present,
    source_locations,
)
from ondatra_dagster.project.inputs.known_file_options_and_parse_mode import FILE_FORMATS
from ondatra_dagster.project.model import FileInput, Model, ModelInput
from ondatra_dagster.project.model_header import Header
from ondatra_dagster.project.model_order_and_dependencies import model_graph, sort_topologically
from ondatra_dagster.project.project import Project
from ondatra_dagster.project.settings.read_raw_setting_entries import find_setting_line
from ondatra_dagster.project.settings.read_settings_and_defaults import Settings
from ondatra_dagster.project.sql.input_references import InputReferences, find_references
from ondatra_dagster.project.sql.query_parser import ParsedQuery
from ondatra_dagster.project.sql.query_properties import excludes_last_value, is_ordered, is_row_by_row

SYNC_ID_LENGTH = 100


class PartialProject(NamedTuple):
    """The readable part of a project, and all problems of its files."""

    project: Project
    problems: Sequence[Problem]
    is_complete: bool  # whether every model file with a valid name could be parsed


def load_project(root: Path, settings: Settings) -> Project:
    """Return the project at `root`; raise ProjectError with every problem of its files."""
    partial_project = read_project(root, settings)
    if partial_project.problems:
        raise ProjectError(partial_project.problems)
    return partial_project.project


def read_project(root: Path, settings: Settings) -> PartialProject:
    """Return the readable part of the project with its problems, for callers that find further problems."""
    root = root.resolve()
    problems: list[Problem] = []
    warnings: list[Problem] = []
    sinks = find_sink_files(root)
    files = find_model_files(root, problems.append)
    names = InputNames(models={file.name.casefold(): file.name for file in files}, sources=source_locations(settings))
    drafts = [draft for file in files if (draft := parse_model_file(file, sinks, problems.append))]
    models: dict[str, Model] = {}
    references_by_model: dict[str, InputReferences] = {}
    for draft in drafts:
        references = find_references(draft.query, names)
        problems += map(draft.query_problem, references.unreadable_inputs)
        warnings += [
            *_absent_input_warnings(draft, references, settings),
            *_strict_comparison_warnings(draft),
            *_bare_decimal_warnings(draft),
        ]
        model = _build_model(draft, references, settings)
        models[model.id] = model
        references_by_model[model.id] = references
    problems += _sync_id_problems(list(models.values()))
    problems += _source_name_problems(files, settings)
    order, cycles = sort_topologically(model_graph(models))
    problems += [_cycle_problem(cycle, models, references_by_model) for cycle in cycles]
    project = Project(
        root=root,
        settings=settings,
        models={id_: models[id_] for id_ in order},
        sink_files=sinks,
        warnings=tuple(sorted(warnings)),
    )
    return PartialProject(project, problems, is_complete=len(drafts) == len(files))


def _build_model(draft: ParsedModelFile, references: InputReferences, settings: Settings) -> Model:
    header, query = draft.header, draft.query
    key_columns = tuple(draft.columns.find_column(name) or name for name in header.key_columns)
    return Model(
        name=draft.source.name,
        path=draft.source.path,
        file=draft.source.file,
        kind=header.kind,
        sql=query.sql,
        sql_line=draft.line,
        definition=_definition_digest(query, header, settings),
        inputs=references.inputs,
        references=references.references,
        edits=query.dialect.edits,
        is_deterministic=query.is_deterministic,
        is_row_by_row=query.is_deterministic and len(references.inputs) == 1 and is_row_by_row(query.tree),
        is_ordered=is_ordered(query.tree),
        last_values=query.last_values,
        incremental=header.incremental,
        event_columns=draft.event_columns,
        storage_columns=tuple(draft.columns.find_column(name) or name for name in header.storage_columns),
        key_columns=key_columns,
        sink=header.sink,
        description=header.description,
        owners=header.owners,
        tags=header.tags,
        column_descriptions=header.column_descriptions,
        checks=header.checks,
        schedule=header.schedule,
    )


def _definition_digest(query: ParsedQuery, header: Header, settings: Settings) -> str:
    """Return a digest of the query, and of header words and spark.sql settings that decide which rows it returns."""
    session = {name: value for name, value in settings.spark.conf.items() if name.startswith("spark.sql.")}
    key = [name.casefold() for name in header.key_columns]
    incremental = header.incremental.column.casefold() if header.incremental else None
    content = json.dumps([query.words, header.kind.name, key, incremental, session], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def _absent_input_warnings(
    draft: ParsedModelFile, references: InputReferences, settings: Settings
) -> Iterator[Problem]:
    """Yield a warning for each missing file or table: not a problem, because it may be created before the run."""
    for input_, line in references.lines:
        if not isinstance(input_, ModelInput) and not is_input_present(input_, settings):
            name = input_.path if isinstance(input_, FileInput) else input_.name
            yield draft.problem(line, f"{name} isn't there", absent_input_remedy(input_, settings))


def _strict_comparison_warnings(draft: ParsedModelFile) -> Iterator[Problem]:
    """Yield a warning if the query compares with > {{ last_value }}: later rows with an equal value are never read."""
    if draft.query.last_values and excludes_last_value(draft.query.tree):
        line = draft.query.sql.count("\n", 0, draft.query.last_values[0][0]) + 1
        description = "rows that are equal to {{ last_value }} and come later are lost"
        yield draft.problem(line, description, "compare with >=: rows that are already there aren't added again")


def _bare_decimal_warnings(draft: ParsedModelFile) -> Iterator[Problem]:
    """Yield a warning for each DECIMAL without digits: in Spark it has no decimal places, in other dialects it has."""
    for type_name, line in sorted({(type_name.upper(), line) for type_name, line in draft.query.bare_decimals}):
        description = f"{type_name} without digits is DECIMAL(10, 0) in Spark: it has no decimal places"
        yield draft.problem(line, description, f"write {type_name}(18, 2), or how many digits it has")


def _sync_id_problems(models: Sequence[Model]) -> Iterator[Problem]:
    """Yield a problem for each sync id that two syncs share, or that is too long for a folder's name."""
    models_by_sync_id: dict[str, Model] = {}
    for model in models:
        if model.sink is None:
            continue
        sync_id = model.sink.sync_id
        first_model = models_by_sync_id.setdefault(sync_id.casefold(), model)
        if first_model is not model:
            description = f"sync id {sync_id!r} is also that of {first_model.file}"
            yield Problem(
                file=model.file, line=model.sink.line, description=description, remedy="give it another @sync_id"
            )
        if len(sync_id) > SYNC_ID_LENGTH:
            description = f"the model's name is too long for a sync id ({len(sync_id)} of {SYNC_ID_LENGTH})"
            yield Problem(file=model.file, line=model.sink.line, description=description, remedy="add a @sync_id")


def _source_name_problems(files: Sequence[ModelFile], settings: Settings) -> Iterator[Problem]:
    """Yield a problem for each source named like a model folder or a file format: table names would be ambiguous."""
    folders = {file.name.partition(".")[0].casefold() for file in files}
    for source in settings.sources:
        other_meaning = f"models/{source}" if source.casefold() in folders else None
        other_meaning = "a file format" if source.casefold() in FILE_FORMATS else other_meaning
        other_meaning = "where ondatra's own tables are" if source.casefold() == ONDATRA_SCHEMA else other_meaning
        if other_meaning:
            description = f"[tool.ondatra.sources] {source!r} is also {other_meaning}"
            file, line = find_setting_line(f"sources.{source}", settings.root)
            yield Problem(file=file, line=line, description=description, remedy="rename the source")


def _cycle_problem(
    cycle: Sequence[str], models: Mapping[str, Model], references: Mapping[str, InputReferences]
) -> Problem:
    """Return the problem of a cycle with its whole path, at the line where its first model reads the next one."""
    first_model = models[cycle[0]]
    line = dict(references[first_model.id].lines)[ModelInput(model=cycle[1])]
    path = " reads ".join(models[id_].name for id_ in cycle)
    return Problem(
        file=first_model.file,
        line=first_model.sql_line + line - 1,
        description=f"a cycle: {path}",
        remedy="remove one of these inputs",
    )
