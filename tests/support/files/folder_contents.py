"""The contents of folders, for a comparison byte for byte."""

from pathlib import Path


def read_folder(folder: Path) -> dict[str, bytes]:
    """Return the content of every file below the folder, by path."""
    return {str(file): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}
