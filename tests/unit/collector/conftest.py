"""A project with one model of kind `events`."""

from pathlib import Path

import pytest
from support.projects.event_project import EventProject


@pytest.fixture
def project(tmp_path: Path) -> EventProject:
    return EventProject.create(tmp_path / "my shop")
