"""The table of kinds agrees with itself."""

import pytest

from ondatra_dagster.project.model_header import HEADER_WORDS, KEY_WORDS
from ondatra_dagster.project.model_kinds import KINDS, Kind


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_every_key_is_named_by_a_known_word(kind: Kind):
    """A kind could else ask for a header that nobody can write."""
    assert set(kind.key_headers) <= set(KEY_WORDS) <= set(HEADER_WORDS)
