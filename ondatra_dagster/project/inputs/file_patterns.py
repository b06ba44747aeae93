"""The files that a path or a pattern matches by Spark's rules, so that checks look at the files that Spark reads."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

PATTERN_CHARACTERS = re.compile(r"[{}\[\]*?\\]")
READ_HIDDEN_PREFIXES = ("_common_metadata", "_metadata")


def find_matching_paths(root: Path, path_pattern: str) -> list[Path]:
    """Return the files and folders that a path or pattern below `root` matches.

    If a file or folder has exactly the pattern as its name, this file or folder is the only result.
    """
    exact_path = root / path_pattern
    if exact_path.exists():
        return [exact_path]
    if not PATTERN_CHARACTERS.search(path_pattern):
        return []
    paths = {path for pattern in expand_braces(path_pattern) for path in _match_segments(root, pattern)}
    return sorted(path for path in paths if not is_ignored_by_spark(path.name))


def walk_files(path: Path) -> Iterator[Path]:
    """Yield the file if the path is a file.

    Yield all files of a folder and its subfolders, except those that Spark ignores.
    """
    if not path.is_dir():
        yield path
        return
    for folder, folders, names in os.walk(path, followlinks=True):
        folders[:] = [name for name in folders if not is_ignored_by_spark(name)]
        yield from (Path(folder, name) for name in names if not is_ignored_by_spark(name))


def is_ignored_by_spark(name: str) -> bool:
    """Return whether Spark ignores a file or folder with this name: a marker, or a part of an unfinished write."""
    if name.startswith(READ_HIDDEN_PREFIXES):
        return False
    return name.startswith(".") or name.endswith("._COPYING_") or (name.startswith("_") and "=" not in name)


def escape_pattern(path: str) -> str:
    """Return the path escaped for Spark, so that Spark reads no character of it as part of a pattern."""
    return PATTERN_CHARACTERS.sub(r"\\\g<0>", path)


def compile_pattern(path_pattern: str) -> re.Pattern[str]:
    """Return the regular expression for a pattern without braces; * and ? match no slash."""
    return re.compile("/".join(map(_segment_regex, path_pattern.split("/"))))


def expand_braces(path_pattern: str) -> list[str]:
    """Return the patterns that a pattern with braces means: a/x and b/x for {a,b}/x."""
    open_brace = _find_unescaped(path_pattern, "{")
    if open_brace is None:
        return [path_pattern]
    close_brace = _find_closing_brace(path_pattern, open_brace)
    if close_brace is None:
        return [path_pattern]
    before, after = path_pattern[:open_brace], path_pattern[close_brace + 1 :]
    choices = _split_choices(path_pattern[open_brace + 1 : close_brace])
    return [pattern for choice in choices for pattern in expand_braces(before + choice + after)]


def _match_segments(root: Path, path_pattern: str) -> Iterator[Path]:
    paths = [Path("/") if path_pattern.startswith("/") else root]
    for segment in filter(None, path_pattern.split("/")):
        if segment in (".", ".."):
            paths = [folder / segment for folder in paths]
            continue
        segment_pattern = re.compile(_segment_regex(segment))
        paths = [
            entry
            for folder in paths
            if folder.is_dir()
            for entry in folder.iterdir()
            if segment_pattern.fullmatch(entry.name)
        ]
    yield from paths


def _segment_regex(path_pattern: str) -> str:
    """Return the regular expression for the part of a pattern between two slashes."""
    pieces: list[str] = []
    position = 0
    while position < len(path_pattern):
        letter = path_pattern[position]
        close = path_pattern.find("]", position + 2) if letter == "[" else -1
        if letter == "\\" and position + 1 < len(path_pattern):
            position += 1
            pieces.append(re.escape(path_pattern[position]))
        elif close > 0:
            pieces.append(_character_class_regex(path_pattern[position + 1 : close]))
            position = close
        else:
            pieces.append({"*": "[^/]*", "?": "[^/]"}.get(letter, re.escape(letter)))
        position += 1
    return "".join(pieces)


def _character_class_regex(inside: str) -> str:
    """Return the regular expression for a character class: [a-c] or [^a-c], which may also be written [!a-c]."""
    is_negated = inside[0] in "^!"
    characters = re.sub(r"([\[\]\\^&~|])", r"\\\1", inside[1:] if is_negated else inside)
    return f"[{'^/' if is_negated else ''}{characters}]"


def _find_unescaped(path_pattern: str, letter: str) -> int | None:
    """Return the position of the first such letter that isn't escaped; None if there is no such letter."""
    match = re.search(rf"(?<!\\)(?:\\\\)*{re.escape(letter)}", path_pattern)
    return match.end() - 1 if match else None


def _find_closing_brace(path_pattern: str, opening_index: int) -> int | None:
    depth = 0
    for place in range(opening_index, len(path_pattern)):
        depth += {"{": 1, "}": -1}.get(path_pattern[place], 0)
        if depth == 0:
            return place
    return None


def _split_choices(choices: str) -> list[str]:
    """Return the choices in the text between two braces. Commas within further braces don't separate choices."""
    parts, depth = [""], 0
    for letter in choices:
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts
