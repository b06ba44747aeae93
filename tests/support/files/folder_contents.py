"""Folders, compared byte for byte."""

from pathlib import Path


def read_folder(folder: Path) -> dict[str, bytes]:
    """Every file below the folder, by its path."""
    return {str(file): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}
