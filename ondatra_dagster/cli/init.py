"""`ondatra init`: lay down a small project that runs."""

import shutil
from importlib import resources
from pathlib import Path

import click

from ondatra_dagster.cli.output import say
from ondatra_dagster.errors import SettingsError


@click.command("init")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
def command(folder: Path) -> int:
    """Make a new project in DIR, which must be empty or not there yet."""
    if folder.is_dir() and any(folder.iterdir()):
        raise SettingsError(f"{folder} is not empty; name a folder that is empty or not there yet")
    with resources.as_file(resources.files("ondatra_dagster") / "template") as template:
        shutil.copytree(
            template, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__", "*.pyc")
        )
    say(f"{folder} is a project now; its README.md says how to go on")
    return 0
