"""The wheel in an empty environment: a user installs it, types what the commands print, and rows arrive.

Neither the repository nor the machine's caches are used. The jars come from a repository on loopback.
"""

import re
import socket
import subprocess
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from support.apis.maven_server import MavenRepository, running_maven_repository
from support.processes.wheel_environment import ROOT, WheelEnvironment, build_wheel, install_wheel, yield_delta_jars

pytestmark = pytest.mark.acceptance

REQUIRED = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
DAGSTER_COMMANDS = (
    ("dg check defs", "dg list defs")
    if any(each.startswith("dagster-dg-cli") for each in REQUIRED)
    else ("dagster definitions validate",)
)
FIRST_PAGE = (ROOT / "PYPI.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def jars() -> Iterator[MavenRepository]:
    with running_maven_repository() as repository:
        repository.files |= dict(yield_delta_jars())
        yield repository


@pytest.fixture(scope="module")
def environment() -> Iterator[WheelEnvironment]:
    """Install the wheel by the first three commands of PYPI.md, without an index, and yield its environment."""
    with tempfile.TemporaryDirectory(prefix="ondatra-wheel-") as name:  # a gigabyte of links, so not in memory
        folder = Path(name)
        before = repository_status()
        wheel = build_wheel(folder)
        assert before == repository_status()  # nothing is left in the working tree
        yield install_wheel(wheel, folder / "home")


@pytest.fixture(scope="module")
def project(environment: WheelEnvironment) -> Path:
    """Create a new project whose demo API has a free port, and return its folder."""
    assert 0 == environment.run("ondatra init my-project").returncode
    project = environment.home / "my-project"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    push = project / "lib" / "crm_push.star"
    push.write_text(push.read_text().replace("8321", str(port)))
    return project


def repository_status() -> str:
    command = ["git", "status", "--porcelain", "--ignored", "--", "ondatra_dagster", "docs", "*.egg-info", "build"]
    completed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return "\n".join(line for line in completed.stdout.splitlines() if "__pycache__" not in line)


def commands_of_the_readme() -> list[str]:
    block = re.search(r"## Install.*?```sh\n(.*?)```", FIRST_PAGE, re.DOTALL)
    assert block
    return block[1].splitlines()


def port_of(project: Path) -> str:
    match = re.search(r"http://127\.0\.0\.1:(\d+)", (project / "lib" / "crm_push.star").read_text())
    assert match
    return match[1]


def test_the_printed_commands_deliver_rows_to_the_api(
    environment: WheelEnvironment, project: Path, jars: MavenRepository
) -> None:
    """The first run downloads the jars into the empty home."""
    printed = environment.run("ondatra init again").stderr.replace("again", "my-project")
    lines = [line.strip() for line in printed.splitlines() if line.startswith("  ")]
    assert commands_of_the_readme()[-2:] == lines
    enter, run = lines
    port = f"demo_api --port {port_of(project)}"
    ran = environment.run(f"{enter} && {run.replace('demo_api', port, 1)}", ONDATRA_MAVEN_MIRROR=jars.url, TERM="dumb")
    assert 0 == ran.returncode, ran.stderr
    assert "fetching Delta's jars into " in ran.stderr
    assert "delivered 3 inserts" in ran.stderr
    assert "The CRM holds 3 contacts" in ran.stderr
    assert 11 == len(list((environment.home / ".cache" / "ondatra" / "jars").rglob("*.jar")))


def test_doctor_finds_no_problem_after_the_first_run(
    environment: WheelEnvironment, project: Path, jars: MavenRepository
) -> None:
    """`ondatra doctor` uses the jars that the run has downloaded, and the requirements that the packages declare."""
    request_count = len(jars.requested_paths)
    completed = environment.run("ondatra doctor", folder=project, ONDATRA_MAVEN_MIRROR=jars.url)
    assert 0 == completed.returncode, completed.stdout + completed.stderr
    levels = {line.split()[1]: line.split()[0] for line in completed.stdout.splitlines()}
    assert {"packages", "settings", "variables", "java", "jars", "spark"} <= {
        name for name, level in levels.items() if level == "ok"
    }
    assert request_count == len(jars.requested_paths)


def test_a_new_project_can_be_installed_and_tested(environment: WheelEnvironment, project: Path) -> None:
    """The test runs the commands of the project's README without an index: all requirements are installed."""
    install = "pip install --quiet --no-index --no-build-isolation -e '.[test]'"
    completed = environment.run(f"{install} && pytest -q", folder=project)
    assert 0 == completed.returncode, completed.stdout + completed.stderr
    assert "2 passed" in completed.stdout


def test_the_docs_come_with_the_wheel(environment: WheelEnvironment) -> None:
    page = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    assert page == environment.run("ondatra docs tutorial").stdout


def test_dagster_loads_the_project(environment: WheelEnvironment, project: Path) -> None:
    """The location has the name of the folder. The commands are those that Dagster's own docs name."""
    for command in DAGSTER_COMMANDS:
        completed = environment.run(command, folder=project)
        assert 0 == completed.returncode, f"{command}: {completed.stdout}{completed.stderr}"
    names = [
        yaml.safe_load((project / "workspace.yaml").read_text())["load_from"][0]["python_module"]["location_name"],
        re.findall(r'^code_location_name = "(.*)"$', (project / "pyproject.toml").read_text(), re.MULTILINE)[0],
    ]
    assert ["my-project"] * 2 == names
