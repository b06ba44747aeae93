"""The checks of a lib/*.star file, and of a model's @sink line against that file. Nothing is run."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ondatra_dagster.delivery.push.push_config import WHOLE_TABLE_SIZE, PushConfig
from ondatra_dagster.delivery.push.push_file_parser import PushFile, parse_push_file
from ondatra_dagster.delivery.push.starlark.library_files import find_undefined_names, list_library_files
from ondatra_dagster.errors import Problem, ProjectError
from ondatra_dagster.project.model import Model
from ondatra_dagster.project.model_kinds import KINDS


class PushFileCheck(NamedTuple):
    """The result of the check of one file."""

    config: PushConfig | None  # None: the file can't be used
    problems: Sequence[Problem]
    warnings: Sequence[Problem]  # problems that must be fixed before the sinks run, perhaps outside of the file


def check_push_file(path: Path, *, secrets: Callable[[str], str | None]) -> PushFileCheck:
    """Return the config of lib/NAME.star, and the problems of this file and of the files that it loads."""
    source, problems = parse_push_file(path, f"{path.parent.name}/{path.name}")
    if source is None:
        return PushFileCheck(None, problems, ())
    try:
        problems = list(find_undefined_names(list_library_files(path)))
    except ProjectError as error:
        return PushFileCheck(None, error.problems, ())
    if problems:
        return PushFileCheck(None, problems, ())
    return PushFileCheck(
        source.config, (), [*_find_unset_variables(source, secrets), *_find_unused_credentials(source)]
    )


def _find_unset_variables(source: PushFile, secrets: Callable[[str], str | None]) -> Iterator[Problem]:
    for name in source.config.variables:
        if not secrets(name):
            problem = f"the variable {name} is not set"
            yield _new_warning(source, name, problem, "set it in .env or the environment before the sync runs")


def _find_unused_credentials(source: PushFile) -> Iterator[Problem]:
    """Yield a warning for each setting that needs a base_url, if there is none."""
    config = source.config
    if config.base_url is None:
        for key, setting in (("auth", config.auth), ("headers", config.headers), ("rate_limit", config.rate_limit)):
            if setting:
                problem = f'"{key}" applies to the host of base_url, and there is none'
                yield _new_warning(source, key, problem, "give API a base_url")


def _new_warning(source: PushFile, word: str, description: str, remedy: str) -> Problem:
    lines = enumerate(source.text.splitlines(), 1)
    line = next((number for number, text in lines if f'"{word}"' in text or f"'{word}'" in text), 1)
    return Problem(file=source.config.file, line=line, description=description, remedy=remedy)


def check_sink_line(config: PushConfig, model: Model) -> Sequence[Problem]:
    """Return the problems of the model's @sink line, compared with the config of its library."""
    if model.sink is None:
        return ()
    parameters, arguments = config.push.args, model.sink.arguments
    problems = []
    if len(parameters) != len(arguments):
        problem = f"@sink gives {config.name} {len(arguments)} arguments, but it takes {len(parameters)}"
        names = ", ".join(f"'{name}'" for name in parameters)
        problems.append((problem, f"write @sink: {config.name}({names})" if names else f"write @sink: {config.name}"))
    kinds = config.push.supported_kinds
    if kinds and model.kind.name not in kinds:
        problem = f"{config.name} doesn't take models of kind {model.kind.name}"
        problems.append((problem, f"it takes {', '.join(kinds)}"))
    if config.push.batch_size == WHOLE_TABLE_SIZE and not model.kind.replaces_rows:
        mirrors = " and ".join(kind.name for kind in KINDS.values() if kind.replaces_rows)
        problem = f'{config.name} takes whole tables or partitions ("batch_size": 0), which only {mirrors} have'
        problems.append((problem, f"give {config.file} a batch_size, or the model another kind"))
    return [
        Problem(file=model.file, line=model.sink.line, description=problem, remedy=remedy)
        for problem, remedy in problems
    ]
