"""What a table's name stands for."""

import pytest

from ondatra_dagster.project.model import FileInput, ModelInput, SourceInput
from ondatra_dagster.project.settings import read_settings
from ondatra_dagster.project.sources import Names, UnknownInputError, is_folder, is_there

NAMES = Names(models={"mart.orders": "mart.Orders", "crm2.x": "crm2.x"}, sources={"Crm": "main.crm"})


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (["MART", "orders"], ModelInput(model="mart.orders")),
        (["crm", "Deals"], SourceInput(source="Crm", table="Deals", location="main.crm")),
        (["Parquet", "a/B"], FileInput(format="parquet", path="a/B")),
    ],
)
def test_a_name_is_found_without_regard_to_case(parts, expected):
    """But a file's path, and a table that is a folder, may have two spellings."""
    assert expected == NAMES.find(parts)


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (["orders"], "'orders' is not an input; did you mean mart.Orders?"),
        (["mart.orders"], "'mart.orders' is not an input; did you mean mart.Orders?"),
        (
            ["a", "b", "c"],
            "'a.b.c' is not an input; give its schema a name in [tool.ondatra.sources] and read it as",
        ),
        (["text", "x"], "nothing makes text.x; add models/text/x.sql, or text to [tool.ondatra.sources]"),
    ],
)
def test_a_name_that_nothing_makes_says_what_to_do(parts, expected):
    with pytest.raises(UnknownInputError) as caught:
        NAMES.find(parts)
    assert str(caught.value).startswith(expected)


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("main.crm", False),
        ("crm", False),
        ("data/crm", True),
        ("./crm", True),
        ("/lake", True),
        ("s3a://b/t", False),
    ],
)
def test_a_source_is_a_folder_or_a_schema(tmp_path, location, expected):
    source = SourceInput(source="crm", table="t", location=location)
    assert expected == is_folder(source, read_settings(tmp_path, {}))


def test_a_folder_of_the_project_needs_no_slash(tmp_path):
    (tmp_path / "tables").mkdir()
    source = SourceInput(source="crm", table="t", location="tables")
    assert is_folder(source, read_settings(tmp_path, {}))


def test_the_projects_own_folder_is_no_pattern(tmp_path):
    """A project in "my [shop]" finds its files."""
    root = tmp_path / "my [shop]"
    root.mkdir()
    (root / "x.csv").write_text("a\n")
    assert is_there(FileInput(format="csv", path="x.csv"), read_settings(root, {}))
