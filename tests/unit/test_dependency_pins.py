"""The pins. Each package in pyproject.toml has one, in the file from which set-up installs it."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = PYPROJECT["project"]["optional-dependencies"]
RUN = PYPROJECT["project"]["dependencies"]
TEST = [*PYPROJECT["dependency-groups"]["dev"], *(requirement for extra in EXTRAS.values() for requirement in extra)]


def pins(name: str) -> dict[str, str]:
    """Return the version of each package in a requirements file. All packages must have hashes."""
    text = (ROOT / name).read_text(encoding="utf-8")
    packages = re.findall(r"^([\w.-]+)(?:\[[\w,-]+\])?==(\S+) \\\n    --hash=", text, re.MULTILINE)
    assert len(packages) == len(re.findall(r"^[^\s#]", text, re.MULTILINE))
    return {canonicalize_name(package): version for package, version in packages}


@pytest.mark.parametrize(
    ("file", "wanted"),
    [
        *(("requirements.txt", requirement) for requirement in RUN),
        *(("requirements-dev.txt", requirement) for requirement in TEST),
    ],
)
def test_a_package_in_pyproject_is_pinned(file: str, wanted: str) -> None:
    """Those of the extras are pinned too: a test's packages must not change from one day to the next."""
    requirement = Requirement(wanted)
    version = pins(file)[canonicalize_name(requirement.name)]
    assert requirement.specifier.contains(version)


def test_both_files_pin_the_same_version() -> None:
    """The second file is installed over the first."""
    run, test = pins("requirements.txt"), pins("requirements-dev.txt")
    assert {} == {name: (run[name], test[name]) for name in run.keys() & test.keys() if run[name] != test[name]}


def test_the_pinned_sqlalchemy_works_with_dagsters_postgres_storage() -> None:
    """Version 2.1 is newer and doesn't work, so `make pin` must not choose it."""
    (sqlalchemy,) = [requirement for requirement in map(Requirement, RUN) if requirement.name == "sqlalchemy"]
    assert not sqlalchemy.specifier.contains("2.1.0")
