"""docs/push-functions.md says all there is to a push function, and what it shows works."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from ondatra_dagster.delivery.api_auth import AUTH_KEYS, OAUTH2_KEYS
from ondatra_dagster.delivery.api_dict import API_KEYS, PARAMETERS, PUSH_KEYS
from ondatra_dagster.delivery.outcome import Verdict
from ondatra_dagster.delivery.push_library import WORDS, load_library

PAGE = Path(__file__).parents[3].joinpath("docs/push-functions.md").read_text(encoding="utf-8")
GIVEN = sorted({name for names in PARAMETERS.values() for name in names})
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("word", [*API_KEYS, *PUSH_KEYS, *AUTH_KEYS, *OAUTH2_KEYS, *GIVEN, *WORDS, *Verdict])
def test_every_word_is_on_the_page(word: str) -> None:
    """A key that isn't written down doesn't exist for its users."""
    assert re.search(rf"[`\"]{word}\b", PAGE)


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_can_be_loaded(example: str, lib: Callable[..., Path]) -> None:
    """People copy them."""
    assert load_library(lib(example=example)).config.name == "example"
