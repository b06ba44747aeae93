"""What a table's name stands for."""

import pytest

from ondatra_dagster.project.inputs.input_resolution import (
    InputNames,
    UnknownInputError,
    absent_input_remedy,
    is_input_present,
    source_table_address,
)
from ondatra_dagster.project.model import FileInput, ModelInput, SourceInput
from ondatra_dagster.project.settings.read_settings_and_defaults import read_settings

NAMES = InputNames(models={"mart.orders": "mart.Orders", "crm2.x": "crm2.x"}, sources={"Crm": "main.crm"})


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
    assert expected == NAMES.find_input(parts)


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (["orders"], "'orders' is not an input; did you mean mart.Orders?"),
        (["mart.orders"], "'mart.orders' is not an input; did you mean mart.Orders?"),
        (["a", "b", "c"], "'a.b.c' is not an input; give its schema a name in [tool.ondatra.sources] and read it as"),
        (["text", "x"], "nothing makes text.x; add models/text/x.sql, or text to [tool.ondatra.sources]"),
    ],
)
def test_a_name_that_nothing_makes_says_what_to_do(parts, expected):
    with pytest.raises(UnknownInputError) as caught:
        NAMES.find_input(parts)
    assert str(caught.value).startswith(expected)


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("main.crm", None),
        ("crm", None),
        ("data/crm", "ROOT/data/crm/My Deals"),
        ("./crm", "ROOT/crm/My Deals"),
        ("tables", "ROOT/tables/My Deals"),  # it is there
        ("/lake", "/lake/My Deals"),
        ("s3a://b/t/", "s3a://b/t/My Deals"),
    ],
)
def test_a_source_is_a_folder_or_a_schema(tmp_path, location, expected):
    (tmp_path / "tables").mkdir()
    source = SourceInput(source="crm", table="My Deals", location=location)
    found = source_table_address(source, read_settings(tmp_path, {}))
    assert (expected and expected.replace("ROOT", str(tmp_path))) == found


def test_a_folder_on_s3_knows_its_keys(tmp_path):
    """Its log is read without Spark."""
    settings = read_settings(tmp_path, {"AWS_ENDPOINT_URL": "http://127.0.0.1:9000"})
    source = SourceInput(source="crm", table="t", location="s3a://b")
    assert settings.s3 is source_table_address(source, settings).s3


def test_a_table_that_is_spelled_otherwise_is_named(tmp_path):
    """On most systems a folder has one spelling only."""
    (tmp_path / "lake" / "Deals").mkdir(parents=True)
    settings = read_settings(tmp_path, {})
    deals = SourceInput(source="crm", table="deals", location="lake/")
    assert not is_input_present(deals, settings)
    assert "did you mean `Deals`?" == absent_input_remedy(deals, settings)
    other = SourceInput(source="crm", table="zzz", location="lake/")
    assert "put it there before the model runs" == absent_input_remedy(other, settings)


def test_the_projects_own_folder_is_no_pattern(tmp_path):
    """A project in "my [shop]" finds its files."""
    root = tmp_path / "my [shop]"
    root.mkdir()
    (root / "x.csv").write_text("a\n")
    assert is_input_present(FileInput(format="csv", path="x.csv"), read_settings(root, {}))
    assert is_input_present(FileInput(format="csv", path=(root / "x.csv").as_uri()), read_settings(root, {}))


def test_a_misspelled_option_is_refused():
    """Spark would read the header as a row, and say nothing."""
    with pytest.raises(UnknownInputError, match="'haeder' is not an option of csv files; did you mean 'header'"):
        NAMES.find_input(["csv", "x.csv"], (("haeder", "true"),))


def test_an_option_that_nobody_knows_is_left_to_spark():
    options = (("HEADER", "true"), ("fs.s3a.aws.credentials.provider", "x"))
    assert options == NAMES.find_input(["csv", "x.csv"], options).options


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"mode": "strict"}, "'strict' is not a mode; write one of PERMISSIVE, DROPMALFORMED, FAILFAST"),
        (
            {"columnNameOfCorruptRecord": "bad"},
            "'columnNameOfCorruptRecord' names a column that only one mode fills;"
            " add 'mode' = 'PERMISSIVE', or remove it",
        ),
    ],
)
def test_a_mode_that_means_nothing_is_refused(options, told):
    """Spark would take the first for PERMISSIVE, in silence."""
    with pytest.raises(UnknownInputError) as caught:
        InputNames(models={}, sources={}).find_input(["json", "x"], tuple(options.items()))
    assert told == str(caught.value)


def test_a_mode_may_be_spelled_in_any_letters():
    options = (("MODE", "permissive"), ("columnnameofcorruptrecord", "bad"))
    assert options == InputNames(models={}, sources={}).find_input(["json", "x"], options).options
