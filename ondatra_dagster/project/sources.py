"""What a table's name in a query stands for: a model, a file, or a table of a source that exists already."""

import dataclasses
import glob
from collections.abc import Mapping, Sequence
from pathlib import Path

from ondatra_dagster.project.model import FileInput, Input, ModelInput, SourceInput
from ondatra_dagster.project.settings import Settings
from ondatra_dagster.project.suggestions import nearest

FORMATS = ("csv", "json", "parquet")
Options = tuple[tuple[str, str], ...]


class UnknownInputError(ValueError):
    """A name that nothing makes: what it is, and what to do."""

    def __init__(self, what: str, remedy: str) -> None:
        self.what = what
        self.remedy = remedy
        super().__init__(f"{what}; {remedy}")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """All that a query of the project may read."""

    models: Mapping[str, str]  # id → as the file is spelled
    sources: Mapping[str, str]  # as in the settings

    def find(self, parts: Sequence[str], options: Options = ()) -> Input:
        """The input that a name of these parts stands for; raises UnknownInputError."""
        if len(parts) != 2:
            raise UnknownInputError(f"{'.'.join(parts)!r} is not an input", self._remedy(parts))
        schema, table = parts
        if schema.casefold() in FORMATS:
            return FileInput(format=schema.casefold(), path=table, options=options)
        if options:
            raise UnknownInputError(
                f"{schema}.{table} can't have options", "remove WITH (…): it is for files"
            )
        model = f"{schema}.{table}".casefold()
        if model in self.models:
            return ModelInput(model=model)
        for source, location in self.sources.items():
            if source.casefold() == schema.casefold():
                return SourceInput(source=source, table=table, location=location)
        raise UnknownInputError(f"nothing makes {schema}.{table}", self._remedy(parts))

    def _remedy(self, parts: Sequence[str]) -> str:
        if len(parts) > 2:
            return "give its schema a name in [tool.ondatra.sources] and read it as name.table"
        guess = self._nearest(parts)
        if guess:
            return f"did you mean {guess}?"
        if len(parts) == 1:
            return "write schema.table"
        return f"add models/{parts[0]}/{parts[1]}.sql, or {parts[0]} to [tool.ondatra.sources]"

    def _nearest(self, parts: Sequence[str]) -> str | None:
        if len(parts) == 2:
            return nearest(".".join(parts), self.models.values())
        by_table = {name.partition(".")[2]: name for name in self.models.values()}
        guess = nearest(parts[0], by_table)
        return by_table[guess] if guess else None


def is_there(file: FileInput | SourceInput, settings: Settings) -> bool:
    """Whether the files are there now, as far as that can be seen without asking another machine."""
    if isinstance(file, SourceInput):
        return not is_folder(file, settings) or (settings.root / file.location / file.table).is_dir()
    if "://" in file.path:
        return True
    return bool(glob.glob(file.path, root_dir=settings.root))  # noqa: PTH207 - may be absolute, and a pattern


def is_folder(source: SourceInput, settings: Settings) -> bool:
    """Whether the source is a folder of tables on this machine, not a catalog's schema."""
    location = Path(source.location)
    if "://" in source.location:
        return False
    return "/" in source.location or "\\" in source.location or (settings.root / location).is_dir()
