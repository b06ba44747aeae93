"""The command `ondatra init`, which creates a small project that runs."""

import re
import shlex
import shutil
from importlib import resources
from pathlib import Path

import click

from ondatra_dagster.cli.output import print_message
from ondatra_dagster.count_time_and_size_format import ondatra_version
from ondatra_dagster.errors import SettingsError

DEFAULT_NAME = "ondatra-project"
RESERVED_NAME = "ondatra"  # the name of the package: a project of this name couldn't depend on it
DEMO_COMMAND = "python -m ondatra_dagster.testing.demo_api --state .ondatra/demo_api.json -- ondatra run"


@click.command("init")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
def command(folder: Path) -> int:
    """Create a new project in DIR, which must be empty or not exist yet."""
    if str(folder).startswith("-"):
        raise SettingsError(f"commands take {folder} as an option; choose a name that doesn't begin with -")
    try:
        if folder.is_dir() and any(folder.iterdir()):
            raise SettingsError(f"{folder} is not empty; name an empty or a new folder")
        _write_project(folder)
    except OSError as error:
        raise SettingsError(
            f"{folder} can't be made a project ({_error_reason(error)}); name another folder"
        ) from error
    cd_command = f"cd {shlex.quote(str(folder))}"
    print_message(
        f"{folder} is a project now. Continue with:\n\n  {cd_command}\n  {DEMO_COMMAND}\n\n"
        "The last line runs it with a demo API. `ondatra doctor` shows what is missing on this machine."
    )
    return 0


def _write_project(folder: Path) -> None:
    with resources.as_file(resources.files("ondatra_dagster") / "template") as template:
        shutil.copytree(template, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
    _name_project(folder, project_name(folder))
    _write_secrets(folder)


def _error_reason(error: OSError) -> str:
    if isinstance(error, shutil.Error):  # the error's argument lists each file that couldn't be copied, with the reason
        return str(error.args[0][0][2])
    return error.strerror or str(error)


def project_name(folder: Path) -> str:
    """Return the folder's name in a form that is valid for a package and a code location."""
    name = re.sub(r"[^a-z0-9]+", "-", folder.resolve().name.casefold()).strip("-")
    return DEFAULT_NAME if name in ("", RESERVED_NAME) else name


def template_replacements(name: str) -> dict[str, dict[str, str]]:
    """Return the replacements in the template's files: for each file, the template's text → the new project's text."""
    location = f'code_location_name = "{name}"'
    return {
        "pyproject.toml": {
            f'name = "{DEFAULT_NAME}"': f'name = "{name}"',
            'dependencies = ["ondatra"]': f'dependencies = ["ondatra=={ondatra_version()}"]',
            'code_location_name = "ondatra"': location,
        },
        "workspace.yaml": {"location_name: ondatra ": f'location_name: "{name}" '},
    }


def _name_project(folder: Path, name: str) -> None:
    """Name the project after its folder, so that two projects in one Dagster have different names."""
    for file, texts in template_replacements(name).items():
        path = folder / file
        content = path.read_text(encoding="utf-8")
        for old, new in texts.items():
            content = content.replace(old, new)
        path.write_text(content, encoding="utf-8")


def _write_secrets(folder: Path) -> None:
    """Write .env, which only this user can read and which git ignores."""
    secrets = folder / ".env"
    secrets.touch(mode=0o600)
    secrets.write_bytes((folder / ".env.example").read_bytes())
