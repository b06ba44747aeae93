"""The `ondatra lineage` command: its output for users and for programs."""

import pytest
from support.processes.cli_terminal import CommandLine
from support.projects.shop_project import ShopProject


@pytest.fixture
def models(shop: ShopProject) -> ShopProject:
    """Add a model that reads one file in two ways, and one whose columns can't be traced."""
    folder = shop.root / "models" / "mart"
    folder.mkdir()
    (folder / "both.sql").write_text(
        "SELECT a.id, concat(a.email, b.email) AS emails FROM sync.crm a JOIN raw.contacts b USING (id)"
    )
    (folder / "turned.sql").write_text("SELECT total FROM sync.crm PIVOT (count(email) FOR id IN ('a1' AS total))")
    return shop


def test_the_tree_of_a_column_ends_at_the_files(models: ShopProject, ondatra: CommandLine) -> None:
    result = ondatra("lineage", "mart.both.EMAILS")
    assert 0 == result.exit_code
    assert [
        "mart.both.emails",
        "├─ raw.contacts.email",
        "│  └─ csv.`data/contacts.csv`.email",
        "└─ sync.crm.email",
        "   └─ raw.contacts.email  (see above)",
    ] == result.stdout.splitlines()


def test_a_model_shows_the_tree_of_each_column(models: ShopProject, ondatra: CommandLine) -> None:
    result = ondatra("lineage", "mart/both")
    assert ["mart.both.id", "mart.both.emails"] == [line for line in result.stdout.splitlines() if line[0] == "m"]


def test_a_column_that_cannot_be_traced_is_marked(models: ShopProject, ondatra: CommandLine) -> None:
    expected = "mart.turned.total  (not known: the query doesn't show it)\n"
    assert (0, expected) == (ondatra("lineage", "mart.turned").exit_code, ondatra("lineage", "mart.turned").stdout)


def test_a_program_gets_one_object_per_column(models: ShopProject, ondatra: CommandLine) -> None:
    (emails,) = ondatra("lineage", "mart.both.emails", "--json").json_lines
    file = "csv.`data/contacts.csv` WITH ('header' = 'true')"
    assert {
        "model": "mart.both",
        "column": "emails",
        "is_known": True,
        "inputs": [{"input": "raw.contacts", "column": "email"}, {"input": "sync.crm", "column": "email"}],
        "are_sources_known": True,
        "sources": [{"input": file, "column": "email"}],
    } == emails
    assert 2 == len(ondatra("lineage", "mart.both", "--json").json_lines)


def test_a_model_whose_columns_are_unknown_has_to_run_first(models: ShopProject, ondatra: CommandLine) -> None:
    """Its query is SELECT * from a file that was never read."""
    (models.root / "models" / "raw" / "all.sql").write_text(
        "SELECT * FROM csv.`data/contacts.csv` WITH ('header' = 'true')"
    )
    result = ondatra("lineage", "raw.all")
    assert (0, "") == (result.exit_code, result.stdout)
    assert "the query of raw.all doesn't name its columns, but its table will: run the model first\n" == result.stderr


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("mart.bth", "there is no model 'mart.bth'; did you mean 'mart.both'?"),
        ("both", "there is no model 'both'; did you mean"),
        ("mart.both.emial", "mart.both has no column 'emial'; did you mean 'emails'? the columns are emails, id"),
        ("mart.both.x.y", "mart.both has no column 'x.y'; the columns are emails, id"),
    ],
)
def test_a_wrong_name_is_a_wrong_invocation(
    models: ShopProject, ondatra: CommandLine, name: str, sentence: str
) -> None:
    result = ondatra("lineage", name)
    assert 2 == result.exit_code
    assert result.stderr.startswith(sentence)
