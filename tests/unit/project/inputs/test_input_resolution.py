"""The input that a table's name in a query means."""

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
def test_an_input_is_found_in_any_case(parts, expected):
    """The path of a file and the name of a table that is a folder keep their case: they may have two spellings."""
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
def test_an_unknown_input_says_what_to_do(parts, expected):
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
        ("tables", "ROOT/tables/My Deals"),  # this folder exists
        ("/lake", "/lake/My Deals"),
        ("s3a://b/t/", "s3a://b/t/My Deals"),
    ],
)
def test_a_source_is_a_folder_or_a_schema(tmp_path, location, expected):
    (tmp_path / "tables").mkdir()
    source = SourceInput(source="crm", table="My Deals", location=location)
    address = source_table_address(source, read_settings(tmp_path, {}))
    assert (expected and expected.replace("ROOT", str(tmp_path))) == address


def test_a_source_on_s3_has_its_access_keys(tmp_path):
    """Its log is read without Spark."""
    settings = read_settings(tmp_path, {"AWS_ENDPOINT_URL": "http://127.0.0.1:9000"})
    source = SourceInput(source="crm", table="t", location="s3a://b")
    assert settings.s3 is source_table_address(source, settings).s3


def test_the_message_suggests_a_table_with_another_case(tmp_path):
    """On most systems the name of a folder has one spelling only."""
    (tmp_path / "lake" / "Deals").mkdir(parents=True)
    settings = read_settings(tmp_path, {})
    deals = SourceInput(source="crm", table="deals", location="lake/")
    assert not is_input_present(deals, settings)
    assert "did you mean `Deals`?" == absent_input_remedy(deals, settings)
    other = SourceInput(source="crm", table="zzz", location="lake/")
    assert "put it there before the model runs" == absent_input_remedy(other, settings)


def test_the_projects_own_folder_is_not_a_pattern(tmp_path):
    """A project in "my [shop]" finds its files."""
    root = tmp_path / "my [shop]"
    root.mkdir()
    (root / "x.csv").write_text("a\n")
    assert is_input_present(FileInput(format="csv", path="x.csv"), read_settings(root, {}))
    assert is_input_present(FileInput(format="csv", path=(root / "x.csv").as_uri()), read_settings(root, {}))


def test_a_misspelled_option_is_refused():
    """Otherwise Spark would read the header as a row, without a message."""
    with pytest.raises(UnknownInputError, match="'haeder' is not an option of csv files; did you mean 'header'"):
        NAMES.find_input(["csv", "x.csv"], (("haeder", "true"),))


def test_an_unknown_option_is_left_to_spark():
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
def test_an_unknown_mode_is_refused(options, told):
    """Spark would silently read 'strict' as PERMISSIVE."""
    with pytest.raises(UnknownInputError) as caught:
        InputNames(models={}, sources={}).find_input(["json", "x"], tuple(options.items()))
    assert told == str(caught.value)


def test_a_mode_may_be_written_in_any_case():
    options = (("MODE", "permissive"), ("columnnameofcorruptrecord", "bad"))
    assert options == InputNames(models={}, sources={}).find_input(["json", "x"], options).options
