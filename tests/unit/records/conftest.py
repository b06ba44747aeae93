"""The fixture of a record store, at each kind of location."""

import pytest
from support.files.tracking_locations import TrackingLocation

from ondatra_dagster.records.record_store import RecordStore


@pytest.fixture
def store(tracking_location: TrackingLocation) -> RecordStore:
    return tracking_location.open_store()
