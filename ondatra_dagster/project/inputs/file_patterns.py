"""The files of a path or a pattern, found by Spark's rules: a check then looks at the files that Spark reads."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

PATTERN_CHARACTERS = re.compile(r"[{}\[\]*?\\]")
READ_HIDDEN_PREFIXES = ("_common_metadata", "_metadata")


def find_matching_paths(root: Path, written: str) -> list[Path]:
    """Return the files and folders that a path or pattern below `root` matches.

    If a file or folder has exactly this name, it is the only result.
    """
    exact_path = root / written
    if exact_path.exists():
        return [exact_path]
    if not PATTERN_CHARACTERS.search(written):
        return []
    paths = {path for pattern in expand_braces(written) for path in _match_segments(root, pattern)}
    return sorted(path for path in paths if not is_ignored_by_spark(path.name))


def walk_files(path: Path) -> Iterator[Path]:
    """Yield a file itself, or all files of a folder and its subfolders, without those that Spark ignores."""
    if not path.is_dir():
        yield path
        return
    for folder, folders, names in os.walk(path, followlinks=True):
        folders[:] = [name for name in folders if not is_ignored_by_spark(name)]
        yield from (Path(folder, name) for name in names if not is_ignored_by_spark(name))


def is_ignored_by_spark(name: str) -> bool:
    """Return whether Spark ignores files and folders of that name: markers, or parts of an unfinished write."""
    if name.startswith(READ_HIDDEN_PREFIXES):
        return False
    return name.startswith(".") or name.endswith("._COPYING_") or (name.startswith("_") and "=" not in name)


def escape_pattern(path: str) -> str:
    """Return the path escaped for Spark, so that nothing in it counts as a pattern."""
    return PATTERN_CHARACTERS.sub(r"\\\g<0>", path)


def compile_pattern(written: str) -> re.Pattern[str]:
    """Return the regular expression of a pattern without braces; * and ? match within one folder."""
    return re.compile("/".join(map(_segment_regex, written.split("/"))))


def expand_braces(written: str) -> list[str]:
    """Return one pattern for each choice of {a,b}."""
    open_brace = _find_unescaped(written, "{")
    if open_brace is None:
        return [written]
    close_brace = _find_closing_brace(written, open_brace)
    if close_brace is None:
        return [written]
    before, after = written[:open_brace], written[close_brace + 1 :]
    choices = _split_choices(written[open_brace + 1 : close_brace])
    return [pattern for choice in choices for pattern in expand_braces(before + choice + after)]


def _match_segments(root: Path, written: str) -> Iterator[Path]:
    paths = [Path("/") if written.startswith("/") else root]
    for segment in filter(None, written.split("/")):
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


def _segment_regex(written: str) -> str:
    """Return the regular expression of a pattern's part between two slashes."""
    pieces: list[str] = []
    position = 0
    while position < len(written):
        letter = written[position]
        close = written.find("]", position + 2) if letter == "[" else -1
        if letter == "\\" and position + 1 < len(written):
            position += 1
            pieces.append(re.escape(written[position]))
        elif close > 0:
            pieces.append(_character_class_regex(written[position + 1 : close]))
            position = close
        else:
            pieces.append({"*": "[^/]*", "?": "[^/]"}.get(letter, re.escape(letter)))
        position += 1
    return "".join(pieces)


def _character_class_regex(inside: str) -> str:
    """Return the regular expression of [a-c] or [^a-c], which may be written [!a-c]."""
    is_negated = inside[0] in "^!"
    characters = re.sub(r"([\[\]\\^&~|])", r"\\\1", inside[1:] if is_negated else inside)
    return f"[{'^/' if is_negated else ''}{characters}]"


def _find_unescaped(written: str, letter: str) -> int | None:
    """Return the first place of a letter that isn't escaped."""
    match = re.search(rf"(?<!\\)(?:\\\\)*{re.escape(letter)}", written)
    return match.end() - 1 if match else None


def _find_closing_brace(written: str, opened: int) -> int | None:
    depth = 0
    for place in range(opened, len(written)):
        depth += {"{": 1, "}": -1}.get(written[place], 0)
        if depth == 0:
            return place
    return None


def _split_choices(choices: str) -> list[str]:
    """Return the choices between braces. Commas within further braces don't separate choices."""
    parts, depth = [""], 0
    for letter in choices:
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts
