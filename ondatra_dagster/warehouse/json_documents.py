"""JSON files that are read with multiLine: Spark takes the first value of each, and leaves out the others.

The common mistake is found, where a file on this machine has a value a line. Its beginning tells.
"""

import contextlib
import gzip
from pathlib import Path
from typing import IO

import orjson

from ondatra_dagster.project.inputs.file_options import is_true
from ondatra_dagster.project.inputs.file_patterns import files_in, matches
from ondatra_dagster.project.model import FileInput, Input
from ondatra_dagster.project.settings.addresses import local_path
from ondatra_dagster.project.settings.settings import Settings

LINE_BYTES = 1_000_000  # a longer first line is taken for a whole file


def values_left_out(settings: Settings, source: Input) -> str | None:
    """Return a sentence on the first file that has a value a line; None when there is none."""
    if (
        not isinstance(source, FileInput)
        or source.format != "json"
        or not is_true(source.options, "multiLine")
    ):
        return None
    path = local_path(source.path)
    for match in matches(settings.root, str(path)) if path else ():
        for file in sorted(files_in(match)):
            if _has_a_value_a_line(file):
                name = file.relative_to(settings.root) if file.is_relative_to(settings.root) else file
                return (
                    f"{name} has a JSON value a line, and with 'multiLine' only the first is read;"
                    " remove the option"
                )
    return None


def _has_a_value_a_line(path: Path) -> bool:
    with contextlib.suppress(gzip.BadGzipFile, EOFError), _opened(path) as file:  # Spark will say so
        first = file.readline(LINE_BYTES).removeprefix(b"\xef\xbb\xbf")
        while first.isspace():
            first = file.readline(LINE_BYTES)
        try:
            orjson.loads(first)
        except orjson.JSONDecodeError:
            return False  # the value goes on in the next line
        return any(not line.isspace() for line in iter(lambda: file.readline(LINE_BYTES), b""))
    return False


def _opened(path: Path) -> "contextlib.closing[IO[bytes] | gzip.GzipFile]":
    return contextlib.closing(gzip.open(path) if path.suffix == ".gz" else path.open("rb"))
