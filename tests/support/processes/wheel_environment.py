"""An environment with the installed wheel of the working tree, as a user makes it on a new machine.

Its dependencies are a gigabyte, so they are linked from the environment that runs the tests. Only those are linked
that the wheel's metadata requires, with their own requirements. Then pip installs the wheel without an index, so it
refuses the wheel when a requirement is missing or has a wrong version.
"""

import contextlib
import dataclasses
import importlib.metadata
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ondatra_dagster.project.settings.read_settings_and_defaults import read_settings
from ondatra_dagster.warehouse.spark.jar_download import DELTA_JARS, fetch_jar_set
from ondatra_dagster.warehouse.spark.java_finder import find_java

ROOT = Path(__file__).parents[3]
TEST_PACKAGES = ("pytest", "flit_core")  # a new project's `pip install -e '.[test]'` fetches these
SCRIPT_TEMPLATE = "#!{python}\nimport sys\nfrom {module} import {name}\nsys.exit({call}())\n"


@dataclasses.dataclass(frozen=True)
class WheelEnvironment:
    """A home folder that contains only a virtual environment with the wheel."""

    home: Path

    @property
    def bin(self) -> Path:
        return self.home / ".venv" / "bin"

    def run(self, command: str, *, folder: Path | None = None, **variables: str) -> "subprocess.CompletedProcess[str]":
        """Run the command in a shell in which the environment is active."""
        java = find_java(read_settings(ROOT).java_home).executable.parent
        return subprocess.run(
            ["bash", "-c", command],
            cwd=folder or self.home,
            env={"HOME": str(self.home), "PATH": f"{self.bin}:{java}:{os.defpath}", "LC_ALL": "C.UTF-8", **variables},
            capture_output=True,
            text=True,
        )


def build_wheel(folder: Path) -> Path:
    """Build the wheel of the working tree."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", folder, ROOT], check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def install_wheel(wheel: Path, home: Path) -> WheelEnvironment:
    """Create an environment in the home folder with the wheel, its requirements and those of the tests."""
    environment = WheelEnvironment(home)
    subprocess.run([sys.executable, "-m", "venv", home / ".venv"], check=True)
    packages = next((home / ".venv").glob("lib/python*/site-packages"))
    required = _requirements(wheel)
    for name in sorted(_collect_requirements([*required, *TEST_PACKAGES])):
        _link_distribution(importlib.metadata.distribution(name), packages, environment.bin)
    completed = environment.run(f"pip install --quiet --no-index '{wheel}'")
    assert 0 == completed.returncode, completed.stderr
    return environment


def yield_delta_jars() -> Iterator[tuple[str, bytes]]:
    """Yield Delta's jars with the paths of a Maven repository, from this machine's jars."""
    folder = read_settings(ROOT).jars
    fetch_jar_set(folder, DELTA_JARS, read_settings(ROOT).maven_mirror)
    for jar in DELTA_JARS.jars:
        yield f"/{jar.path}", (folder / jar.name).read_bytes()


def _requirements(wheel: Path) -> list[str]:
    (distribution,) = importlib.metadata.distributions(path=[str(wheel)])
    return [requirement for requirement in distribution.requires or () if "extra ==" not in requirement]


def _collect_requirements(requirements: Iterable[str]) -> set[str]:
    """Return the names of all required distributions, except pip, which each virtual environment has."""
    packages: set[tuple[str, str]] = set()
    open_ends = [Requirement(requirement) for requirement in requirements]
    while open_ends:
        requirement = open_ends.pop()
        for extra in ("", *requirement.extras):
            if (key := (canonicalize_name(requirement.name), extra)) not in packages:
                packages.add(key)
                open_ends += _requirements_of(requirement.name, extra)
    return {name for name, _ in packages} - {"pip"}


def _requirements_of(name: str, extra: str) -> list[Requirement]:
    needed = map(Requirement, importlib.metadata.distribution(name).requires or ())
    return [
        requirement
        for requirement in needed
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra})
    ]


def _link_distribution(distribution: importlib.metadata.Distribution, packages: Path, scripts: Path) -> None:
    """Link the distribution's files with their bytecode, and write its commands for the environment's own Python."""
    for file in distribution.files or ():
        if ".." not in file.parts and Path(str(distribution.locate_file(file))).exists():
            target = packages / file
            target.parent.mkdir(parents=True, exist_ok=True)
            _link_or_copy(Path(str(distribution.locate_file(file))), target)
    for entry in distribution.entry_points.select(group="console_scripts"):
        script = scripts / entry.name
        name = entry.attr.partition(".")[0]
        script.write_text(
            SCRIPT_TEMPLATE.format(python=scripts / "python", module=entry.module, name=name, call=entry.attr)
        )
        script.chmod(0o755)


def _link_or_copy(source: Path, target: Path) -> None:
    with contextlib.suppress(FileExistsError):  # both distributions have this file of a shared namespace
        try:
            target.hardlink_to(source)
        except OSError as error:
            if isinstance(error, FileExistsError):
                raise
            shutil.copyfile(source, target)  # the target is on another disk
