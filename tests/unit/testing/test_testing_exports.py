"""The names that users import from ondatra_dagster.testing: each is there."""

import pytest

from ondatra_dagster import testing


@pytest.mark.parametrize("name", sorted(testing._EXPORTS))
def test_an_exported_name_can_be_imported(name: str) -> None:
    assert getattr(testing, name)


def test_another_name_is_refused() -> None:
    with pytest.raises(ImportError, match="cannot import name 'problem_of'"):
        from ondatra_dagster.testing import problem_of  # noqa: F401
