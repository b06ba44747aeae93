"""A project with one model of kind events."""

from pathlib import Path

import pytest
from support.collecting import EventProject


@pytest.fixture
def project(tmp_path: Path) -> EventProject:
    return EventProject.at(tmp_path / "my shop")
