"""The loading of a whole project. All its problems are reported together."""

import subprocess
import sys
from pathlib import Path

import pytest

from ondatra_dagster.errors import Problem, ProjectError
from ondatra_dagster.project.model import FileInput, Model, ModelInput, ModelSink, Reference, SourceInput
from ondatra_dagster.project.model_kinds import KINDS
from ondatra_dagster.project.project_loader import load_project
from ondatra_dagster.project.settings.read_settings_and_defaults import read_settings

SHOP = {
    "data/customers.csv": "id,name\n1,Anna\n",
    "lib/crm_push.star": "",
    "models/raw/customers.sql": "select * from csv.`data/customers.csv` with ('header' = 'true')",
    "models/mart/customers.sql": "-- @kind: table\nselect id, name from raw.customers",
    "models/sync/crm.sql": (
        "-- Who we write to\n"
        "-- @kind: merge\n"
        "-- @unique_key: ID\n"
        "-- @sink: crm_push('eu')\n"
        "\n"
        "select id, name\n"
        "from mart.customers;\n"
        "-- the end\n"
    ),
}


def test_a_project_is_loaded_completely(load_from_files):
    project = load_from_files(SHOP)
    assert ["raw.customers", "mart.customers", "sync.crm"] == list(project.models)
    assert ["crm_push"] == list(project.sink_files)
    assert () == project.warnings


def test_a_model_has_all_values_of_its_file(load_from_files):
    project = load_from_files(SHOP)
    model = project.models["sync.crm"]
    customers = ModelInput(model="mart.customers")
    expected = Model(
        name="sync.crm",
        path=project.root / "models" / "sync" / "crm.sql",
        file="models/sync/crm.sql",
        kind=KINDS["merge"],
        sql="select id, name\nfrom mart.customers",
        sql_line=6,
        definition=model.definition,
        inputs=(customers,),
        references=(Reference(start=21, end=35, input=customers, alias="customers"),),
        is_row_by_row=True,
        key_columns=("id",),  # spelled as in the query
        sink=ModelSink(name="crm_push", arguments=("eu",), sync_id="sync.crm", line=4),
    )
    assert expected == model


def test_a_project_may_have_no_models(load_from_files):
    assert {} == load_from_files({}).models


def test_models_are_found_in_any_case(load_from_files):
    project = load_from_files({"models/Mart/A.sql": "select 1 as x", "models/mart/B.sql": "select * from MART.a"})
    assert (ModelInput(model="mart.a"),) == project.models["mart.b"].inputs
    assert "Mart.A" == project.models["mart.a"].name


def test_a_source_is_resolved_from_the_settings(load_from_files):
    project = load_from_files(
        {
            "pyproject.toml": '[tool.ondatra.sources]\ncrm = "main.crm"\nold = "data/old"\n',
            "data/old/t/part-0.parquet": "",
            "models/a/b.sql": "select d.id from crm.deals d join old.t on true",
        }
    )
    expected = (
        SourceInput(source="crm", table="deals", location="main.crm"),
        SourceInput(source="old", table="t", location="data/old"),
    )
    assert (expected, ()) == (project.models["a.b"].inputs, project.warnings)


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbf-- @tag: a\r\n\r\nselect id,\r\n  name\r\nfrom x.y\r\n",
        b"-- @tag: a\n\nselect id,\n  name\nfrom x.y\n",
        b"-- @tag: a\r\rselect id,\r  name\rfrom x.y\r",
    ],
)
def test_byte_order_marks_and_line_ends_change_nothing(load_from_files, content):
    """A checkout on Windows is the same project."""
    project = load_from_files({"models/a/b.sql": content, "models/x/y.sql": "select 1 as id, 2 as name"})
    model = project.models["a.b"]
    assert ("select id,\n  name\nfrom x.y", 3, ("a",)) == (model.sql, model.sql_line, model.tags)


def test_other_files_in_the_models_folder_are_ignored(load_from_files):
    files = {
        "models/README.md": "",
        "models/mart/notes.txt": "",
        "models/.ipynb_checkpoints/a.sql": "nonsense",
        "models/mart/.a.sql.swp": "",
        "models/mart/.b.sql": "nonsense",
        "models/mart/A.SQL": "select 1 as x",
    }
    assert ["mart.a"] == list(load_from_files(files).models)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (
            {"models/a.sql": "select 1"},
            "models/a.sql:1: a model is exactly one folder deep; move it to models/FOLDER/NAME.sql",
        ),
        ({"models/a/b/c.sql": "select 1"}, "models/a/b/c.sql:1: a model is exactly one folder deep; move it to "),
        (
            {"models/a/b c.sql": "select 1"},
            "models/a/b c.sql:1: 'b c' can't be part of a model's name; rename it with ",
        ),
        (
            {"models/a.b/c.sql": "select 1"},
            "models/a.b/c.sql:1: 'a.b' can't be part of a model's name; rename it with ",
        ),
        ({"models/csv/a.sql": "select 1"}, "models/csv/a.sql:1: 'csv' can't be a folder of models; rename it"),
        ({"models/ondatra/a.sql": "select 1"}, "models/ondatra/a.sql:1: 'ondatra' can't be a folder of models"),
        (
            {"models/a/b__invalid.sql": "select 1"},
            "models/a/b__invalid.sql:1: a model can't end in __invalid; rename it",
        ),
        ({"models/a/b.sql": ""}, "models/a/b.sql:1: there is no query; write a SELECT below the header"),
        ({"models/a/b.sql": "-- @tag: a\n-- @tag: b\n"}, "models/a/b.sql:3: there is no query; write a SELECT below "),
        ({"models/a/b.sql": b"-- @tag: a\nselect '\xe9'"}, "models/a/b.sql:2: the file is not UTF-8; save it as UTF-8"),
        (
            {"models/a/b.sql": "-- x\nselect 1;\nselect 2"},
            "models/a/b.sql:3: a second statement begins here; keep one ",
        ),
        (
            {"models/a/b.sql": "-- x\n\nselect\nfrom from"},
            "models/a/b.sql:3: nothing follows 'select'; write what is missing there",
        ),
        ({"models/a/b.sql": "-- @tag: a\ndrop table x.y"}, "models/a/b.sql:2: DROP is not a query; write one SELECT"),
        (
            {"models/a/b.sql": "-- @knd: merge\nselect 1"},
            "models/a/b.sql:1: @knd is not a header; did you mean 'kind'?",
        ),
        ({"models/a/b.sql": "select 1\n-- @kind: merge"}, "models/a/b.sql:2: @kind is below the query; move it above"),
        ({"models/a/b.sql": "\nselect 1 -- @kind: merge\n, 2"}, "models/a/b.sql:2: @kind is below the query"),
        ({"models/a/b.sql": "-- x\nselect *\nfrom a.c"}, "models/a/b.sql:3: nothing makes a.c; did you mean a.b?"),
        (
            {"models/a/b.sql": "-- @tag: a\nselect\n  1 as _change_type"},
            "models/a/b.sql:3: a column can't be called '_change_type'; rename it with AS",
        ),
        (
            {"models/a/b.sql": "select 1 as a,\n 2 as A"},
            "models/a/b.sql:2: column 'A' is a duplicate; rename one of them with AS",
        ),
        (
            {"models/a/b.sql": "-- @kind: merge\n-- @unique_key: custmer\nselect 1 as customer, 2 as b"},
            "models/a/b.sql:2: the query has no column 'custmer'; did you mean 'customer'? the columns are",
        ),
        (
            {"models/a/b.sql": "-- @column: a = x\n-- @column: c = y\nselect 1 as a, 2 as b"},
            "models/a/b.sql:2: the query has no column 'c'; the columns are a, b",
        ),
        (
            {"models/a/b.sql": "-- @sink: crm\nselect 1 as a"},
            "models/a/b.sql:1: @sink 'crm' has no lib/crm.star; there are no sinks yet",
        ),
        (
            {"pyproject.toml": '[tool.ondatra.sources]\nA = "x.y"', "models/a/b.sql": "select 1 as a"},
            "pyproject.toml:2: [tool.ondatra.sources] 'A' is also models/A; rename the source",
        ),
        (
            {"pyproject.toml": '[tool.ondatra.sources]\ncsv = "x.y"'},
            "pyproject.toml:2: [tool.ondatra.sources] 'csv' is also a file format; rename the source",
        ),
        (
            {"pyproject.toml": '[tool.ondatra.sources]\nOndatra = "x.y"'},
            "pyproject.toml:2: [tool.ondatra.sources] 'Ondatra' is also where ondatra's own tables are",
        ),
    ],
)
def test_a_problem_says_where_what_and_what_to_do(find_problems, files, expected):
    (line,) = find_problems(files)
    assert line.startswith(expected)


def test_two_models_with_the_same_name_are_refused(find_problems):
    """In Spark they are the same table, because case doesn't matter."""
    files = {"models/mart/a.sql": "select 1 as x", "models/mart/A.sql": "select 1 as x"}
    expected = ["models/mart/a.sql:1: models/mart/A.sql is the same model; rename one of them"]
    assert expected == find_problems(files)


def test_two_models_with_the_same_name_in_dagster_are_refused(find_problems):
    """Dagster joins the parts of a name with two underscores."""
    files = {"models/a/b__c.sql": "select 1 as x", "models/a__b/c.sql": "select 1 as x"}
    expected = ["models/a__b/c.sql:1: models/a/b__c.sql is the same name in Dagster; rename one of them"]
    assert expected == find_problems(files)


def test_a_cycle_is_shown_with_its_path(find_problems):
    files = {
        "models/m/a.sql": "-- @tag: x\nselect *\nfrom m.b",
        "models/m/b.sql": "select * from m.c",
        "models/m/c.sql": "select * from m.a",
        "models/m/d.sql": "select * from m.a",
    }
    expected = ["models/m/a.sql:3: a cycle: m.a reads m.b reads m.c reads m.a; remove one of these inputs"]
    assert expected == find_problems(files)


def test_a_model_cannot_read_itself(find_problems):
    expected = ["models/m/a.sql:1: a cycle: m.a reads m.a; remove one of these inputs"]
    assert expected == find_problems({"models/m/a.sql": "select * from m.a"})


def test_every_cycle_is_shown(find_problems):
    files = {
        "models/m/a.sql": "select * from m.b",
        "models/m/b.sql": "select * from m.a",
        "models/n/a.sql": "select * from n.b",
        "models/n/b.sql": "select * from n.a",
    }
    assert ["models/m/a.sql:1", "models/n/a.sql:1"] == [line.partition(": ")[0] for line in find_problems(files)]


def test_two_syncs_with_the_same_id_are_refused(find_problems):
    """The sync id names the queue and the records."""
    files = {
        "lib/crm.star": "",
        "models/a/b.sql": "-- @sink: crm\n-- @sync_id: A.C\nselect 1 as x",
        "models/a/c.sql": "-- @tag: x\n-- @sink: crm\nselect 1 as x",
    }
    expected = ["models/a/c.sql:2: sync id 'a.c' is also that of models/a/b.sql; give it another @sync_id"]
    assert expected == find_problems(files)


def test_a_long_name_needs_a_sync_id(find_problems):
    name = "x" * 99
    files = {"lib/crm.star": "", f"models/a/{name}.sql": "-- @sink: crm\nselect 1 as x"}
    expected = [f"models/a/{name}.sql:1: the model's name is too long for a sync id (101 of 100); add a @sync_id"]
    assert expected == find_problems(files)


def test_all_problems_are_reported_together(find_problems):
    files = {
        "models/a.sql": "select 1",
        "models/a/b.sql": "-- @knd: x\n-- @owner: y\nselect * from z.z",
        "models/a/c.sql": b"\xff",
        "models/a/d.sql": "-- @kind: merge\nselect (",
        "models/a/e.sql": "select * from a.e",
    }
    expected = [
        "models/a.sql:1",
        "models/a/b.sql:1",
        "models/a/b.sql:2",
        "models/a/b.sql:3",
        "models/a/c.sql:1",
        "models/a/d.sql:1",
        "models/a/d.sql:2",
        "models/a/e.sql:1",
    ]
    assert expected == [line.partition(": ")[0] for line in find_problems(files)]


def test_a_broken_model_still_counts_as_an_input(find_problems):
    """The models that read it aren't wrong: one mistake gives one message."""
    files = {"models/a/b.sql": "-- @kind: mrge\nselect (", "models/a/c.sql": "select * from a.b"}
    assert {"models/a/b.sql"} == {line.partition(":")[0] for line in find_problems(files)}


def test_a_folder_without_models_is_not_a_project(tmp_path):
    with pytest.raises(ProjectError) as caught:
        load_project(tmp_path, read_settings(tmp_path, {}))
    expected = "models:1: there is no such folder; change into a project, or create one: ondatra init DIR"
    assert expected == str(caught.value)


def test_a_broken_link_is_not_a_model(write_project):
    root = write_project({})
    (root / "models" / "a").mkdir()
    (root / "models" / "a" / "b.sql").symlink_to(root / "nothing")
    assert {} == load_project(root, read_settings(root, {})).models


@pytest.mark.parametrize(
    ("read", "there"),
    [
        ("csv.`data/a b.csv`", True),
        ("csv.`data/*.csv`", True),
        ("csv.`data`", True),
        ("csv.`data/b.csv`", False),
        ("json.`data/*.json`", False),
        ("json.`s3a://bucket/x.json`", True),  # the bucket isn't checked
        ("old.t", True),
        ("old.u", False),
        ("crm.t", True),  # the catalog isn't checked
    ],
)
def test_a_missing_input_is_a_warning(load_from_files, read, there):
    """It may arrive before the model runs, and it doesn't stop the other 499 models."""
    project = load_from_files(
        {
            "pyproject.toml": '[tool.ondatra.sources]\ncrm = "main.crm"\nold = "data/old"\n',
            "data/a b.csv": "",
            "data/old/t/x.parquet": "",
            "models/a/b.sql": f"-- x\nselect *\nfrom {read}",
        }
    )
    (missing,) = project.models["a.b"].inputs
    name = missing.path if isinstance(missing, FileInput) else missing.name
    remedy = "put it there before the model runs"
    warning = Problem(file="models/a/b.sql", line=3, description=f"{name} isn't there", remedy=remedy)
    assert (() if there else (warning,)) == project.warnings


@pytest.mark.parametrize("compare", [">=", ">"])
def test_a_comparison_that_excludes_rows_equal_to_last_value_is_a_warning(load_from_files, compare):
    """The user of > would never notice the lost rows. The project loads with a warning."""
    text = f"-- @kind: append\n-- @incremental: id\nselect id\nfrom x.y where id {compare} {{{{ last_value }}}}"
    project = load_from_files({"models/a/b.sql": text, "models/x/y.sql": "select 1 as id"})
    lost = Problem(
        file="models/a/b.sql",
        line=4,
        description="rows that are equal to {{ last_value }} and come later are lost",
        remedy="compare with >=: rows that are already there aren't added again",
    )
    assert ((lost,) if compare == ">" else ()) == project.warnings


@pytest.mark.parametrize(
    ("said", "lines"),
    [
        ("x::DECIMAL", [2]),
        ("x::dec + 1", [2]),
        ("CAST(x AS NUMERIC)", [2]),
        ("try_cast(x as\ndecimal)", [3]),
        ("x::DECIMAL[]", [2]),
        ("CAST(x AS MAP<STRING, ARRAY<DECIMAL>>)", [2]),
        ("CAST(x AS STRUCT<decimal: INT, b: DECIMAL NOT NULL>)", [2]),
        ("x::DECIMAL,\ny::DECIMAL, z::DECIMAL", [2, 3]),
        ("x::DECIMAL(18, 2), CAST(x AS DECIMAL(9)), x::HUGEINT", []),
        ("x::STRUCT<decimal: INT>, decimal, 'x::DECIMAL', `x`::INT -- ::DECIMAL", []),
    ],
)
def test_a_decimal_without_digits_is_a_warning(load_from_files, said, lines):
    """In Spark such a decimal has no digits behind the point, so 12.50 becomes 13. No user intends that."""
    project = load_from_files({"models/a/b.sql": f"-- @kind: table\nselect {said}\nfrom csv.`x.csv`", "x.csv": ""})
    assert lines == [warning.line for warning in project.warnings]


def test_the_warning_for_a_decimal_without_digits_says_what_to_write(load_from_files):
    """It uses the type's name from the query."""
    project = load_from_files({"models/a/b.sql": "select 1.5::numeric as price"})
    warned = Problem(
        file="models/a/b.sql",
        line=1,
        description="NUMERIC without digits is DECIMAL(10, 0) in Spark: it has no decimal places",
        remedy="write NUMERIC(18, 2), or how many digits it has",
    )
    assert (warned,) == project.warnings


def test_an_events_decimal_without_digits_is_a_warning_too(load_from_files):
    """Otherwise the collector would refuse each price with cents."""
    project = load_from_files({"models/a/b.sql": "-- @kind: events\nid STRING NOT NULL,\nprice DECIMAL"})
    assert [3] == [warning.line for warning in project.warnings]


def test_a_file_may_be_outside_the_project(load_from_files, tmp_path):
    (tmp_path / "x.csv").write_text("a\n")
    project = load_from_files({"models/a/b.sql": f"select * from csv.`{tmp_path}/x.csv`"})
    expected = (FileInput(format="csv", path=f"{tmp_path}/x.csv"),)
    assert (expected, ()) == (project.models["a.b"].inputs, project.warnings)


QUERY = "-- @kind: merge\n-- @unique_key: a\nselect a, b from x.y"


def definition(load_from_files, text: str, *, settings: str = "") -> str:
    files = {"pyproject.toml": settings, "models/m/a.sql": text, "models/x/y.sql": "select 1 as a, 2 as b"}
    return load_from_files(files).models["m.a"].definition


@pytest.mark.parametrize(
    "text",
    [
        "-- @kind: merge\n-- @unique_key: A\n-- @description: new\n-- @tag: t\n\n\nselect a,  b from x.y;",
        "-- @unique_key: a\n-- @kind: merge\nselect a, -- the a\n b from x.y -- end",
        "-- @kind: merge\n-- @unique_key: a\nselect /*+ coalesce(1) */ a, b from x.y",
    ],
)
def test_descriptions_and_comments_do_not_change_the_definition(load_from_files, text):
    """Otherwise a comment would cause a new computation of the table."""
    assert definition(load_from_files, QUERY) == definition(load_from_files, text)


@pytest.mark.parametrize(
    "text",
    [
        "-- @kind: merge\n-- @unique_key: b\nselect a, b from x.y",
        "-- @kind: tracked\n-- @unique_key: a\nselect a, b from x.y",
        "-- @kind: merge\n-- @unique_key: a\nselect a, b from x.y where 1 = 1",
        "-- @kind: merge\n-- @unique_key: a\nselect a, 'b' b from x.y",
    ],
)
def test_a_change_of_the_result_changes_the_definition(load_from_files, text):
    assert definition(load_from_files, QUERY) != definition(load_from_files, text)


def test_a_check_changes_the_checks_digest_but_not_the_definition(load_from_files):
    """Otherwise a new check would count as a new query, and a space in a check as a new check."""

    def digest(checks: str) -> str:
        files = {"models/m/a.sql": f"{checks}\nselect 1 as a, 2 as b"}
        return load_from_files(files).models["m.a"].checks_digest

    assert definition(load_from_files, QUERY) == definition(load_from_files, f"-- @constraint: b > 0\n{QUERY}")
    assert digest("-- @audit: a>0\n-- @audit: b > 0") == digest("-- @audit: b > 0\n-- @audit: a > 0 -- or so")
    digests = [digest(f"-- {header}") for header in ("", "@audit: a > 0", "@audit: a > 1", "@warning: a > 0")]
    assert len(digests) == len(set(digests))


def test_a_check_may_name_only_columns_of_the_query(load_from_files, find_problems):
    """This applies to columns in the query's text: a star may mean any column."""
    text = "-- @warning: b > 0\n-- @constraint: amuont > 0 and B < 1\nselect 1 as amount, 2 as b"
    expected = "the query has no column 'amuont'; did you mean 'amount'? the columns are amount, b"
    assert [f"models/m/a.sql:2: {expected}"] == find_problems({"models/m/a.sql": text})
    assert load_from_files({"models/m/a.sql": "-- @audit: c > 0\nselect * from csv.`x`", "x": ""}).models


def test_sparks_sql_settings_are_part_of_the_definition(load_from_files):
    """ANSI mode changes the rows of the same query. The memory size doesn't."""
    plain = definition(load_from_files, QUERY)
    memory = '[tool.ondatra.spark]\nconf."spark.driver.memory" = "4g"'
    ansi = '[tool.ondatra.spark]\nconf."spark.sql.ansi.enabled" = "false"'
    assert plain == definition(load_from_files, QUERY, settings=memory)
    assert plain != definition(load_from_files, QUERY, settings=ansi)


def snapshot(root: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in root.rglob("*")}


def test_loading_writes_nothing(write_project):
    """`validate` may run in any folder, and Dagster loads the project often."""
    root = write_project(SHOP)
    before = snapshot(root)
    load_project(root, read_settings(root, {}))
    assert before == snapshot(root)


def test_loading_imports_no_heavy_package():
    """Each command and each Dagster process loads the project before it knows its work."""
    code = (
        "import sys, ondatra_dagster.project.project_loader, ondatra_dagster.project.model_selection\n"
        "heavy = {'dagster', 'pyspark', 'delta', 'httpx', 'pyarrow', 'starlark', 'sqlite3', 'sqlite_utils'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "[]" == answer.stdout.strip()


def test_500_models_are_loaded_in_the_order_of_their_inputs(write_project):
    """`make bench` measures how fast that is."""
    query = """with c as (
  select id, email, upper(trim(first_name)) || ' ' || last_name as full_name from {left} where active = true
), o as (
  select customer_id, count(*) as orders, sum(amount) as revenue from {right} group by customer_id
) -- a comment
select c.id, c.email, c.full_name, coalesce(o.orders, 0) as orders, coalesce(o.revenue, 0) as revenue,
  case when o.revenue > 1000 then 'gold' when o.revenue > 100 then 'silver' else 'basic' end as plan
from c left join o on o.customer_id = c.id where c.email is not null order by 1
"""
    header = "-- @kind: merge\n-- @unique_key: id\n-- @description: A model among many\n\n"
    names = [f"s{number // 50}.m{number}" for number in range(500)]
    files = {
        f"models/{name.replace('.', '/')}.sql": header
        + query.format(
            left=names[number - 1] if number else "csv.`x`", right=names[number // 2 - 1] if number > 1 else "csv.`x`"
        )
        for number, name in enumerate(names)
    }
    root = write_project({**files, "x": ""})
    assert names == list(load_project(root, read_settings(root, {})).models)


def test_the_sync_log_can_be_read(load_from_files):
    """No setting has to declare it."""
    project = load_from_files({"models/ops/rejects.sql": "select status_message from Ondatra.sync_log"})
    (read,) = project.models["ops.rejects"].inputs
    assert ("ondatra", "sync_log") == (read.source, read.table)
    assert "ondatra.sync_log isn't there; it is created by a run that sends something" in str(project.warnings[0])
