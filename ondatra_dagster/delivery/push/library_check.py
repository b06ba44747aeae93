"""Judges a lib/*.star file, and a model's @sink line against it, without running anything."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ondatra_dagster.delivery.push.push_config import WHOLE, PushConfig
from ondatra_dagster.delivery.push.push_source import PushSource, read_source
from ondatra_dagster.delivery.push.starlark.library_files import files_of
from ondatra_dagster.delivery.push.starlark.unknown_names import unknown_names
from ondatra_dagster.errors import Problem, ProjectError
from ondatra_dagster.project.kinds import KINDS
from ondatra_dagster.project.model import Model


class LibraryCheck(NamedTuple):
    """What is known of one file."""

    config: PushConfig | None  # None: the file can't be used as it stands
    problems: Sequence[Problem]
    warnings: Sequence[Problem]  # the sinks run only once these are mended, but that may be elsewhere


def check_library(path: Path, *, secrets: Callable[[str], str | None]) -> LibraryCheck:
    """The config of lib/NAME.star, and all that is wrong with it and with the files it loads."""
    source, problems = read_source(path, f"{path.parent.name}/{path.name}")
    if source is None:
        return LibraryCheck(None, problems, ())
    try:
        problems = list(unknown_names(files_of(path)))
    except ProjectError as error:
        return LibraryCheck(None, error.problems, ())
    if problems:
        return LibraryCheck(None, problems, ())
    return LibraryCheck(source.config, (), [*_unset(source, secrets), *_useless(source)])


def _unset(source: PushSource, secrets: Callable[[str], str | None]) -> Iterator[Problem]:
    for name in source.config.variables:
        if not secrets(name):
            what = f"the variable {name} is not set"
            yield _warning(source, name, what, "set it in .env or the environment before the sync runs")


def _useless(source: PushSource) -> Iterator[Problem]:
    """Credentials that no call would get."""
    config = source.config
    if config.base_url is None:
        for key, given in (
            ("auth", config.auth),
            ("headers", config.headers),
            ("rate_limit", config.rate_limit),
        ):
            if given:
                what = f'"{key}" holds for the host of base_url, and there is none'
                yield _warning(source, key, what, "give API a base_url")


def _warning(source: PushSource, word: str, what: str, remedy: str) -> Problem:
    lines = enumerate(source.text.splitlines(), 1)
    line = next((number for number, text in lines if f'"{word}"' in text or f"'{word}'" in text), 1)
    return Problem(file=source.config.file, line=line, what=what, remedy=remedy)


def check_use(config: PushConfig, model: Model) -> Sequence[Problem]:
    """What is wrong with the model's @sink line, as its library sees it."""
    if model.sink is None:
        return ()
    wanted, given = config.push.args, model.sink.arguments
    found = []
    if len(wanted) != len(given):
        what = f"@sink gives {config.name} {len(given)} arguments, but it takes {len(wanted)}"
        found.append((what, f"write @sink: {config.name}{_form(wanted)}"))
    kinds = config.push.supported_kinds
    if kinds and model.kind.name not in kinds:
        what = f"{config.name} doesn't take models of kind {model.kind.name}"
        found.append((what, f"it takes {', '.join(kinds)}"))
    if config.push.batch_size == WHOLE and not model.kind.replaces_rows:
        mirrors = " and ".join(kind.name for kind in KINDS.values() if kind.replaces_rows)
        what = f'{config.name} takes whole contents ("batch_size": 0), which only {mirrors} have'
        found.append((what, f"give {config.file} a batch_size, or the model another kind"))
    return [
        Problem(file=model.file, line=model.sink.line, what=what, remedy=remedy) for what, remedy in found
    ]


def _form(names: Sequence[str]) -> str:
    return "({})".format(", ".join(f"'{name}'" for name in names)) if names else ""
