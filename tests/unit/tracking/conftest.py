"""A store at a place of every kind that there is."""

import pytest
from support.places import Place

from ondatra_dagster.tracking.store import TrackingStore


@pytest.fixture
def store(at: Place) -> TrackingStore:
    return at.store()
