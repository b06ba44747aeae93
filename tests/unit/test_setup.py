"""setup.sh, with a Python that only writes down what it was asked to do: the real thing is what CI runs."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FAKE_PYTHON = """#!/bin/sh
if [ "$1 $2" = "-m venv" ]; then
    mkdir -p .venv/bin
    cp "$0" .venv/bin/python
fi
[ "$1" = "-c" ] || echo "$*" >>"$ASKED"
case "$*" in *"$FAILS"*) exit 1 ;; esac
"""
WHAT_RUNNING_NEEDS = [
    "-m venv --clear .venv",
    "-m pip --quiet --disable-pip-version-check install --require-hashes --requirement requirements.txt",
    "-m pip --quiet --disable-pip-version-check install --no-deps --no-build-isolation --editable .",
    "-m ondatra_dagster.warehouse.java",
    "-m ondatra_dagster.warehouse.jars",
]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The files that set-up reads, in a folder with a space in its name."""
    project = tmp_path / "my project"
    project.mkdir()
    for name in ("setup.sh", "requirements.txt", "requirements-dev.txt", ".env.example"):
        shutil.copy(ROOT / name, project / name)
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python3"
    python.write_text(FAKE_PYTHON)
    python.chmod(0o755)
    return project


def set_up(project: Path, *arguments: str, fails: str = "(nothing)", path: str | None = None) -> list[str]:
    """What Python was asked to do by `sh setup.sh`, run from elsewhere."""
    asked = project.parent / "asked"
    asked.write_text("")
    variables = {
        "PATH": f"{project.parent / 'bin'}:{os.defpath}" if path is None else path,
        "ASKED": str(asked),
        "FAILS": fails,
    }
    shell = shutil.which("sh") or "/bin/sh"
    done = subprocess.run(
        [shell, project / "setup.sh", *arguments], env=variables, cwd="/", capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return asked.read_text().splitlines()


def test_everything_is_set_up_once(project: Path) -> None:
    """The second `make run` must not wait for set-up."""
    assert WHAT_RUNNING_NEEDS == set_up(project)
    assert [] == set_up(project)


def test_other_pins_are_installed_into_the_same_environment(project: Path) -> None:
    """A pull that changes a pin is followed by the next `make`, without starting over."""
    set_up(project)
    with (project / "requirements.txt").open("a") as file:
        file.write("# a newer pin\n")
    assert WHAT_RUNNING_NEEDS[1:] == set_up(project)


def test_a_folder_that_was_moved_is_set_up_anew(project: Path) -> None:
    """The scripts of a virtual environment name the folder that it was made in."""
    set_up(project)
    moved = project.rename(project.with_name("elsewhere"))
    assert WHAT_RUNNING_NEEDS == set_up(moved)


def test_a_step_that_failed_is_tried_again(project: Path) -> None:
    """No stamp before the end: an interrupted download isn't taken for done."""
    with pytest.raises(SystemExit):
        set_up(project, fails="warehouse.jars")
    assert WHAT_RUNNING_NEEDS[1:] == set_up(project)


def test_without_a_python_it_says_what_to_get(project: Path) -> None:
    """One sentence, and no traceback, for who has an older Python."""
    with pytest.raises(SystemExit, match=r"^set-up: this needs Python 3\.11 or newer"):
        set_up(project, fails="", path=a_path_without_python(project.parent))


def test_secrets_are_laid_down_once_and_private(project: Path) -> None:
    """A key that the user has put into .env stays."""
    set_up(project)
    laid_down = project / ".env"
    assert 0o600 == laid_down.stat().st_mode & 0o777
    laid_down.write_text("DEMO_API_KEY=mine\n")
    set_up(project)
    assert "DEMO_API_KEY=mine\n" == laid_down.read_text()


def test_an_unknown_word_is_refused(project: Path) -> None:
    with pytest.raises(SystemExit, match="there is no 'tset' here: it is run, test or pin"):
        set_up(project, "tset")


def a_path_without_python(folder: Path) -> str:
    """A PATH with the few programs that set-up calls before it looks for Python."""
    programs = folder / "programs"
    programs.mkdir()
    for name in ("dirname", "cat", "cksum", "head", "cp"):
        (programs / name).symlink_to(shutil.which(name) or f"/bin/{name}")
    return str(programs)
