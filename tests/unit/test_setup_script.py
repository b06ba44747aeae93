"""The script setup.sh, with a fake Python that only records its arguments. CI runs it with the real one."""

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
    """Return a copy of the files that set-up reads, in a folder with a space in its name."""
    project = tmp_path / "my project"
    project.mkdir()
    for name in ("setup.sh", "pyproject.toml", "requirements.txt", "requirements-dev.txt", ".env.example"):
        shutil.copy(ROOT / name, project / name)
    (tmp_path / "bin").mkdir()
    add_program(project, "python3", FAKE_PYTHON)
    return project


def add_program(project: Path, name: str, text: str) -> None:
    """Add a program that set-up finds before the system's own."""
    program = project.parent / "bin" / name
    program.write_text(text)
    program.chmod(0o755)


def set_up(
    project: Path, *arguments: str, fails: str = "(nothing)", path: str | None = None, java_home: str = ""
) -> list[str]:
    """Run `sh setup.sh` from another folder, and return the calls of the fake programs."""
    call_log = project.parent / "asked"
    call_log.write_text("")
    variables = {
        "PATH": f"{project.parent / 'bin'}:{os.defpath}" if path is None else path,
        "ASKED": str(call_log),
        "FAILS": fails,
        "JAVA_HOME": java_home,
    }
    shell = shutil.which("sh") or "/bin/sh"
    completed = subprocess.run(
        [shell, project / "setup.sh", *arguments], env=variables, cwd="/", capture_output=True, text=True
    )
    if completed.returncode:
        raise SystemExit(completed.stderr)
    return call_log.read_text().splitlines()


def test_everything_is_set_up_once(project: Path) -> None:
    """The second `make run` must not wait for set-up."""
    assert WHAT_RUNNING_NEEDS == set_up(project)
    assert [] == set_up(project)


def test_other_pins_are_installed_into_the_same_environment(project: Path) -> None:
    """After a pull that changes a pin, the next `make` installs it without a new environment."""
    set_up(project)
    with (project / "requirements.txt").open("a") as file:
        file.write("# a newer pin\n")
    assert WHAT_RUNNING_NEEDS[1:] == set_up(project)


def test_after_a_change_of_the_entry_point_the_package_is_reinstalled(project: Path) -> None:
    """Otherwise .venv/bin/ondatra would import a module that a pull has renamed."""
    set_up(project)
    with (project / "pyproject.toml").open("a") as file:
        file.write("# another entry point\n")
    assert WHAT_RUNNING_NEEDS[1:] == set_up(project)


def test_a_moved_folder_is_set_up_again(project: Path) -> None:
    """The scripts of a virtual environment contain the path of its folder."""
    set_up(project)
    moved = project.rename(project.with_name("elsewhere"))
    assert WHAT_RUNNING_NEEDS == set_up(moved)


def test_a_failed_step_is_repeated(project: Path) -> None:
    """The stamp is written at the end, so an interrupted download doesn't count as done."""
    with pytest.raises(SystemExit):
        set_up(project, fails="warehouse.spark.jar_download")
    assert WHAT_RUNNING_NEEDS[1:] == set_up(project)


def test_without_a_suitable_python_it_says_what_to_install(project: Path) -> None:
    """A user with an older Python gets one sentence and no traceback."""
    with pytest.raises(SystemExit, match=r"^set-up: this needs Python 3\.11 or newer"):
        set_up(project, fails="", path=a_path_without_python(project.parent))


def test_java_is_installed_if_set_up_is_allowed_to(project: Path) -> None:
    """As root on Debian, the user doesn't have to install anything first."""
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


def test_the_programs_for_tests_are_installed_if_set_up_is_allowed_to(project: Path) -> None:
    """They are a browser and a PostgreSQL server, which aren't in any Python package."""
    for name in ("apt-get", "apt-cache"):
        add_program(project, name, FAKE_APT)
    add_program(project, "id", "#!/bin/sh\necho 0\n")
    programs = a_path_without_python(project.parent, "sh", "env", "true", "mkdir", "grep")
    calls = set_up(project, "test", path=f"{project.parent / 'bin'}:{programs}")
    installs = [words.split("--no-install-recommends ")[1] for words in calls if "apt-get install" in words]
    assert ["chromium fonts-liberation", "postgresql"] == installs


@pytest.mark.parametrize(
    ("user", "java_home"), [pytest.param(1000, "", id="not root"), pytest.param(0, "/opt/jdk", id="JAVA_HOME")]
)
def test_if_java_may_not_be_installed_the_user_gets_a_sentence(project: Path, user: int, java_home: str) -> None:
    """Java isn't installed when JAVA_HOME is set, either: the user has to correct JAVA_HOME."""
    add_program(project, "apt-get", FAKE_APT)
    add_program(project, "sudo", "#!/bin/sh\nexit 1\n")
    add_program(project, "id", f"#!/bin/sh\necho {user}\n")
    with pytest.raises(SystemExit, match=r"set-up: a sentence from Python\s$"):
        set_up(project, fails="-m ondatra_dagster.warehouse.spark.java_finder", java_home=java_home)


def test_the_secrets_file_is_created_once_and_is_private(project: Path) -> None:
    """A key that the user has written to .env is kept."""
    set_up(project)
    laid_down = project / ".env"
    assert 0o600 == laid_down.stat().st_mode & 0o777
    laid_down.write_text("DEMO_API_KEY=mine\n")
    set_up(project)
    assert "DEMO_API_KEY=mine\n" == laid_down.read_text()


def test_an_unknown_argument_is_refused(project: Path) -> None:
    with pytest.raises(SystemExit, match="there is no 'tset' here: it is run, test or pin"):
        set_up(project, "tset")


def a_path_without_python(folder: Path, *more: str) -> str:
    """Return a PATH with the few programs that set-up calls before it searches for Python, and with the given ones."""
    programs = folder / "programs"
    programs.mkdir()
    for name in ("dirname", "cat", "cksum", "head", "cp", *more):
        (programs / name).symlink_to(shutil.which(name) or f"/bin/{name}")
    return str(programs)
