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
case "$*" in *"$FAILS"*)
    grep -q "apt-get install" "$ASKED" || { echo "a sentence from Python" >&2; exit 1; } ;;
esac
"""
FAKE_APT = """#!/bin/sh
echo "${0##*/} $*" >>"$ASKED"
"""
WHAT_RUNNING_NEEDS = [
    "-m venv --clear .venv",
    "-m pip --quiet --disable-pip-version-check install --require-hashes --requirement requirements.txt",
    "-m pip --quiet --disable-pip-version-check install --no-deps --no-build-isolation --editable .",
    "-m ondatra_dagster.warehouse.spark.java_finder",
    "-m ondatra_dagster.warehouse.spark.jar_download",
]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The files that set-up reads, in a folder with a space in its name."""
    project = tmp_path / "my project"
    project.mkdir()
    for name in ("setup.sh", "pyproject.toml", "requirements.txt", "requirements-dev.txt", ".env.example"):
        shutil.copy(ROOT / name, project / name)
    (tmp_path / "bin").mkdir()
    add_program(project, "python3", FAKE_PYTHON)
    return project


def add_program(project: Path, name: str, text: str) -> None:
    """A program that set-up finds before the system's own."""
    program = project.parent / "bin" / name
    program.write_text(text)
    program.chmod(0o755)


def set_up(
    project: Path, *arguments: str, fails: str = "(nothing)", path: str | None = None, java_home: str = ""
) -> list[str]:
    """What Python was asked to do by `sh setup.sh`, run from elsewhere."""
    asked = project.parent / "asked"
    asked.write_text("")
    variables = {
        "PATH": f"{project.parent / 'bin'}:{os.defpath}" if path is None else path,
        "ASKED": str(asked),
        "FAILS": fails,
        "JAVA_HOME": java_home,
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


def test_a_command_with_another_module_is_installed_again(project: Path) -> None:
    """Else .venv/bin/ondatra imports a module that a pull has renamed."""
    set_up(project)
    with (project / "pyproject.toml").open("a") as file:
        file.write("# another entry point\n")
    assert WHAT_RUNNING_NEEDS[1:] == set_up(project)


def test_a_folder_that_was_moved_is_set_up_anew(project: Path) -> None:
    """The scripts of a virtual environment name the folder that it was made in."""
    set_up(project)
    moved = project.rename(project.with_name("elsewhere"))
    assert WHAT_RUNNING_NEEDS == set_up(moved)


def test_a_step_that_failed_is_tried_again(project: Path) -> None:
    """No stamp before the end: an interrupted download isn't taken for done."""
    with pytest.raises(SystemExit):
        set_up(project, fails="warehouse.spark.jar_download")
    assert WHAT_RUNNING_NEEDS[1:] == set_up(project)


def test_without_a_python_it_says_what_to_get(project: Path) -> None:
    """One sentence, and no traceback, for who has an older Python."""
    with pytest.raises(SystemExit, match=r"^set-up: this needs Python 3\.11 or newer"):
        set_up(project, fails="", path=a_path_without_python(project.parent))


def test_java_is_installed_where_that_is_allowed(project: Path) -> None:
    """As root on Debian nobody has to read a sentence first."""
    add_program(project, "apt-get", FAKE_APT)
    add_program(project, "apt-cache", "#!/bin/sh\n")
    add_program(project, "id", "#!/bin/sh\necho 0\n")
    java = "-m ondatra_dagster.warehouse.spark.java_finder"
    assert [
        *WHAT_RUNNING_NEEDS[:4],
        "apt-get update --quiet --quiet",
        "apt-get install --quiet --quiet --yes --no-install-recommends openjdk-21-jre-headless",
        java,
        *WHAT_RUNNING_NEEDS[4:],
    ] == set_up(project, fails=java)


def test_what_the_tests_need_is_installed_where_that_is_allowed(project: Path) -> None:
    """A browser and a PostgreSQL server, which no Python package brings along."""
    for name in ("apt-get", "apt-cache"):
        add_program(project, name, FAKE_APT)
    add_program(project, "id", "#!/bin/sh\necho 0\n")
    programs = a_path_without_python(project.parent, "sh", "env", "true", "mkdir", "grep")
    asked = set_up(project, "test", path=f"{project.parent / 'bin'}:{programs}")
    installs = [words.split("--no-install-recommends ")[1] for words in asked if "apt-get install" in words]
    assert ["chromium fonts-liberation", "postgresql"] == installs


@pytest.mark.parametrize(
    ("user", "java_home"), [pytest.param(1000, "", id="not root"), pytest.param(0, "/opt/jdk", id="JAVA_HOME")]
)
def test_where_java_may_not_be_installed_it_is_asked_for(project: Path, user: int, java_home: str) -> None:
    """Nor is it installed beside one that the user has chosen: that choice is what has to be put right."""
    add_program(project, "apt-get", FAKE_APT)
    add_program(project, "sudo", "#!/bin/sh\nexit 1\n")
    add_program(project, "id", f"#!/bin/sh\necho {user}\n")
    with pytest.raises(SystemExit, match=r"set-up: a sentence from Python\s$"):
        set_up(project, fails="-m ondatra_dagster.warehouse.spark.java_finder", java_home=java_home)


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


def a_path_without_python(folder: Path, *more: str) -> str:
    """A PATH with the few programs that set-up calls before it looks for Python, and these."""
    programs = folder / "programs"
    programs.mkdir()
    for name in ("dirname", "cat", "cksum", "head", "cp", *more):
        (programs / name).symlink_to(shutil.which(name) or f"/bin/{name}")
    return str(programs)
