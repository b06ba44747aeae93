"""The pins: each package that pyproject.toml names has one, in the file that set-up installs it from."""

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
TEST = [*PYPROJECT["dependency-groups"]["dev"], *(each for extra in EXTRAS.values() for each in extra)]


def pins(name: str) -> dict[str, str]:
    """The version of each package in a requirements file; all of them have hashes."""
    text = (ROOT / name).read_text(encoding="utf-8")
    found = re.findall(r"^([\w.-]+)(?:\[[\w,-]+\])?==(\S+) \\\n    --hash=", text, re.MULTILINE)
    assert len(found) == len(re.findall(r"^[^\s#]", text, re.MULTILINE))
    return {canonicalize_name(package): version for package, version in found}


@pytest.mark.parametrize(
    ("file", "wanted"),
    [*(("requirements.txt", each) for each in RUN), *(("requirements-dev.txt", each) for each in TEST)],
)
def test_a_package_that_is_named_is_pinned(file: str, wanted: str) -> None:
    """Those of the extras too: what a test uses must not change from one day to the next."""
    requirement = Requirement(wanted)
    version = pins(file)[canonicalize_name(requirement.name)]
    assert requirement.specifier.contains(version)


def test_both_files_pin_the_same_version() -> None:
    """The second file is installed over the first."""
    run, test = pins("requirements.txt"), pins("requirements-dev.txt")
    assert {} == {name: (run[name], test[name]) for name in run.keys() & test.keys() if run[name] != test[name]}


def test_dagsters_storage_on_postgres_has_a_sqlalchemy_that_it_works_with() -> None:
    """Version 2.1 is newer, so the next `make pin` would take it."""
    (wanted,) = [each for each in map(Requirement, RUN) if each.name == "sqlalchemy"]
    assert not wanted.specifier.contains("2.1.0")
