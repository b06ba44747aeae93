"""The table of kinds, which must be consistent."""

import pytest

from ondatra_dagster.project.model_header import HEADER_WORDS, KEY_WORDS
from ondatra_dagster.project.model_kinds import KINDS, Kind


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_every_key_is_named_by_a_known_word(kind: Kind):
    """Otherwise a kind could require a header that doesn't exist."""
    assert set(kind.key_headers) <= set(KEY_WORDS) <= set(HEADER_WORDS)
