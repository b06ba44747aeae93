"""The resolution of a table's name in a query to an input: a model, a file, or a table of an existing source."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from ondatra_dagster.project.inputs.file_patterns import find_matching_paths
from ondatra_dagster.project.inputs.known_file_options_and_parse_mode import (
    CORRUPT_COLUMN_OPTION,
    FILE_FORMATS,
    MODE_OPTION,
    ParseMode,
    option_value,
    read_parse_mode,
    suggest_option,
)
from ondatra_dagster.project.model import FileInput, Input, ModelInput, SourceInput
from ondatra_dagster.project.settings.read_settings_and_defaults import Settings
from ondatra_dagster.project.settings.storage_access import StorageAddress, local_path, scheme_of
from ondatra_dagster.project.spelling_suggestions import find_nearest

OptionPairs = tuple[tuple[str, str], ...]
ONDATRA_SCHEMA = "ondatra"  # the schema of the tables that ondatra itself keeps in the warehouse


class UnknownInputError(ValueError):
    """The error for a name that isn't an input's. Its text says what is wrong, and what to do."""

    def __init__(self, description: str, remedy: str) -> None:
        self.description = description
        self.remedy = remedy
        super().__init__(f"{description}; {remedy}")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class InputNames:
    """The names of all inputs that a query of the project may read."""

    models: Mapping[str, str]  # id → name in the spelling of the model's file
    sources: Mapping[str, str]  # name → where the source's tables are

    def find_input(self, parts: Sequence[str], options: OptionPairs = ()) -> Input:
        """Return the input whose name has these parts; raise UnknownInputError if there is no such input."""
        if len(parts) != 2:
            raise UnknownInputError(f"{'.'.join(parts)!r} is not an input", self._unknown_input_remedy(parts))
        schema, table = parts
        if schema.casefold() in FILE_FORMATS:
            return _build_file_input(schema.casefold(), table, options)
        if options:
            raise UnknownInputError(f"{schema}.{table} can't have options", "remove WITH (…): it is for files")
        model = f"{schema}.{table}".casefold()
        if model in self.models:
            return ModelInput(model=model)
        for source, location in self.sources.items():
            if source.casefold() == schema.casefold():
                return SourceInput(source=source, table=table, location=location)
        raise UnknownInputError(f"nothing makes {schema}.{table}", self._unknown_input_remedy(parts))

    def _unknown_input_remedy(self, parts: Sequence[str]) -> str:
        if len(parts) > 2:
            return "give its schema a name in [tool.ondatra.sources] and read it as name.table"
        guess = self._find_nearest_model(parts)
        if guess:
            return f"did you mean {guess}?"
        if len(parts) == 1:
            return "write schema.table"
        return f"add models/{parts[0]}/{parts[1]}.sql, or {parts[0]} to [tool.ondatra.sources]"

    def _find_nearest_model(self, parts: Sequence[str]) -> str | None:
        if len(parts) == 2:
            return find_nearest(".".join(parts), self.models.values())
        names_by_table = {name.partition(".")[2]: name for name in self.models.values()}
        guess = find_nearest(parts[0], names_by_table)
        return names_by_table[guess] if guess else None


def _build_file_input(file_format: str, path: str, options: OptionPairs) -> FileInput:
    for name, _ in options:
        guess = suggest_option(file_format, name)
        if guess:
            raise UnknownInputError(f"{name!r} is not an option of {file_format} files", f"did you mean {guess!r}?")
    _check_mode(options)
    return FileInput(format=file_format, path=path, options=options)


def _check_mode(options: OptionPairs) -> None:
    """Raise UnknownInputError for an unknown parse mode: Spark would replace it by PERMISSIVE.

    Raise it also if the options name a column for malformed texts and the mode never fills this column.
    """
    mode_text = option_value(options, MODE_OPTION)
    try:
        mode = read_parse_mode(options)
    except ValueError:
        raise UnknownInputError(
            f"{mode_text!r} is not a mode", f"write one of {', '.join(map(str, ParseMode))}"
        ) from None
    if option_value(options, CORRUPT_COLUMN_OPTION) is not None and mode is not ParseMode.PERMISSIVE:
        raise UnknownInputError(
            f"{CORRUPT_COLUMN_OPTION!r} names a column that only one mode fills",
            f"add '{MODE_OPTION}' = '{ParseMode.PERMISSIVE}', or remove it",
        )


def source_locations(settings: Settings) -> Mapping[str, str]:
    """Return where the tables of each source are. The sources are the user's and ondatra's own schema."""
    return {**settings.sources, ONDATRA_SCHEMA: f"{settings.warehouse.rstrip('/')}/{ONDATRA_SCHEMA}"}


def is_input_present(file: FileInput | SourceInput, settings: Settings) -> bool:
    """Return whether the input's files exist on this machine. An input on another machine counts as present."""
    if isinstance(file, SourceInput):
        table = source_table_address(file, settings)
        path = local_path(table) if table else None
        return path is None or path.is_dir()
    path = local_path(file.path)
    return path is None or bool(find_matching_paths(settings.root, str(path)))


def absent_input_remedy(file: FileInput | SourceInput, settings: Settings) -> str:
    """Return what the user should do about a missing file or table."""
    if isinstance(file, SourceInput) and file.source == ONDATRA_SCHEMA:
        return "it is created by a run that sends something"
    table = source_table_address(file, settings) if isinstance(file, SourceInput) else None
    path = local_path(table) if table else None
    if path is not None and path.parent.is_dir():
        guess = find_nearest(path.name, [entry.name for entry in path.parent.iterdir() if entry.is_dir()])
        if guess:
            return f"did you mean `{guess}`?"
    return "put it there before the model runs"


def source_table_address(source: SourceInput, settings: Settings) -> StorageAddress | None:
    """Return the address of the folder of a source's table; None if Spark finds the table through a catalog."""
    location = source.location
    if scheme_of(location) is not None:
        return StorageAddress(location, settings.s3).join_names(source.table)
    folder = settings.root / Path(location).expanduser()
    if "/" in location or "\\" in location or folder.is_dir():
        return StorageAddress(str(folder), settings.s3).join_names(source.table)
    return None
