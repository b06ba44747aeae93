"""The parsing of a model's query."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ondatra_dagster.project.sql.query_parser import parse_query
from ondatra_dagster.project.sql.tokenizer import QueryError


def refusal(text: str) -> tuple[int, str, str]:
    with pytest.raises(QueryError) as caught:
        parse_query(text)
    return caught.value.line, caught.value.description, caught.value.remedy


@pytest.mark.parametrize(
    "text", ["select 1", "select 1;", "select 1 ;\n ; -- done", "select 1 -- done", "select 1\n/* done */\n"]
)
def test_comments_and_semicolons_behind_the_query_are_removed(text):
    """SQL that encloses the query in parentheses must not meet a comment or a semicolon."""
    assert "select 1" == parse_query(text).sql


@pytest.mark.parametrize(
    "text",
    [
        "select 1 union select 2",
        "(select 1)",
        "with a as (select 1) select * from a",
        "values (1, 2)",
        "from a.b",
        "table a.b",
        "from a.b |> select x",
        "select x:a.b[0]::int, y::decimal(10, 2) from a.b",
        "select transform(xs, x -> x + 1), map('a', 1)['a'], s.f from a.b group by all",
        "select * except (a) from a.b qualify row_number() over (order by x) = 1",
        "select * from a.b lateral view outer explode(x) as y",
        "select * from a.b unpivot (v for k in (a, b))",
        "select date, order, value, timestamp, `from` from a.b",
        "select x as end, y as date from a.b",
        "select r'\\d', 'it\\'s', 'it''s', \"q\", X'1F', 1L, 1.0BD from a.b",
        "select f(a => 1), interval '1-2' year to month, timestamp'2020-01-01' from a.b",
    ],
)
def test_spark_queries_can_be_parsed(text):
    assert text == parse_query(text).sql


@pytest.mark.parametrize("text", ["", "   \n", ";", "-- nothing", "/* nothing */"])
def test_a_file_without_a_query_is_a_problem(text):
    assert (1, "there is no query", "write a SELECT below the header") == refusal(text)


def test_a_second_statement_is_a_problem_where_it_begins():
    expected = (3, "a second statement begins here", "keep one SELECT in a file")
    assert expected == refusal("select 1;\n;\nselect 2")


def test_a_semicolon_in_a_string_literal_ends_nothing():
    assert "select ';', 1 -- ;" != parse_query("select ';', 1 -- ;").sql
    assert "select ';', 1" == parse_query("select ';', 1 -- ;").sql


@pytest.mark.parametrize(
    "text",
    [
        "insert into a.b select 1",
        "create table a.b as select 1",
        "with x as (select 1) insert into a.b select * from x",
        "merge into a.b using c.d on true when matched then delete",
        "delete from a.b",
        "drop table a.b",
        "describe a.b",
    ],
)
def test_only_a_select_is_accepted(text):
    """A model that writes would bypass its own kind."""
    word = text.split()[0].upper()
    assert (1, f"{word} is not a query", "write one SELECT") == refusal(text)


@pytest.mark.parametrize("text", ["select 'open", "select `open", "select 1 /* open"])
def test_an_open_quote_is_a_problem(text):
    what = "the query can't be read to its end"
    assert (1, what, "close the quote or comment that is still open") == refusal(text)


def test_an_open_quote_is_reported_where_it_opens():
    """It is found below a closed text of several lines, and however much text follows."""
    assert 5 == refusal("select 'a\nb\nc',\n1,\n'open,\n2,\n3\nfrom a.b\n")[0]


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("select *\nform a.b", 2, "the SQL can't be parsed: Invalid expression / Unexpected token at 'a'"),
        ("select *\nfrom a.b\nwhere", 3, "the SQL can't be parsed: something is missing at 'where'"),
        ("select (1\nfrom a.b", 2, "the SQL can't be parsed: Expecting ) at 'from'"),
        ("select * from a.b)", 1, "the SQL can't be parsed: Invalid expression / Unexpected token at ')'"),
    ],
)
def test_invalid_sql_is_reported_at_its_line(text, line, what):
    assert (line, what, "correct it there") == refusal(text)


def test_a_decimal_without_its_exponent_is_a_problem():
    """sqlglot reads 1ebd as the decimal 1e, and Python's decimal module raises an error."""
    assert (1, "the SQL can't be parsed", "look for misplaced words") == refusal("select 1ebd")


def test_a_cast_to_an_invalid_type_is_left_to_spark():
    """sqlglot parses it, and raises TypeError when ondatra asks for the cast's type."""
    text = "select json_array(a), b::struct<c: int>(d) from t"
    assert text == parse_query(text).sql


def test_an_error_inside_the_parser_is_a_problem_too():
    """For a limit that isn't a number, sqlglot raises Python's ValueError."""
    refused = refusal("from a.b\n|> order by id |> limit id")
    assert (1, "the SQL can't be parsed", "look for misplaced words") == refused


@pytest.mark.parametrize("step", ["set x = 1", "drop x", "window w as (order by x)"])
def test_a_pipe_step_that_cannot_be_read_is_a_problem(step):
    """Its columns can't be traced. A SELECT has the same meaning."""
    expected = (2, f"|> {step.split()[0].upper()} can't be read here", "write |> SELECT or a plain SELECT")
    assert expected == refusal(f"from a.b\n|> {step}")


def test_a_comment_that_continues_on_the_next_line_is_a_problem():
    """For Spark the next line is part of the comment. It would be missing from the query without a message."""
    what = "a comment ends in \\, and Spark continues it on the next line"
    assert (2, what, "end it with another character") == refusal("select 1 as a\n-- note \\\n, 2 as b")
    assert 2 == len(parse_query("select 1 as a -- a \\ b\n, '-- \\\n' as b").tree.expressions)


def test_a_query_nested_too_deeply_is_a_problem():
    """The user gets a sentence, not a traceback."""
    expected = (1, "the query is nested too deeply", "split it into two models")
    assert expected == refusal("select " + "(" * 5000 + "1" + ")" * 5000)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("select * from csv.`x` with ('a')", "these options can't be read"),
        ("select * from csv.`x` with ()", "these options can't be read"),
        ("select * from csv.`x` with ('a' = 'b'", "a parenthesis is never closed"),
        ("select * from a.b tablesample (5 rows", "a parenthesis is never closed"),
        ("select * from raw.a tablesample (5 rows) repeatable", "a parenthesis is never closed"),
    ],
)
def test_invalid_options_are_a_problem(text, what):
    assert what == refusal(text)[1]


def test_comments_and_white_space_are_not_words():
    """They don't change the result, so they don't change the definition."""
    one = parse_query("select a, 'x  y' from b.c")
    other = parse_query("select a , -- the a\n\t'x  y' /* it */ FROM b.c".replace("FROM", "from"))
    assert one.words == other.words


def test_a_hint_is_not_a_word():
    assert parse_query("select a from b.c").words == parse_query("select /*+ coalesce(1) */ a from b.c").words


@pytest.mark.parametrize("other", ["select `a` from b.c", "select A from b.c", "select 'a' from b.c"])
def test_every_other_difference_changes_the_words(other):
    assert parse_query("select a from b.c").words != parse_query(other).words


@pytest.mark.parametrize(
    "text",
    [
        "select rand() from a.b",
        "select RAND (7) from a.b",
        "select uuid() as id from a.b",
        "select current_date from a.b",
        "select current_timestamp() from a.b",
        "select now() from a.b",
        "select unix_timestamp() from a.b",
        "select * from a.b where d > timestamp 'now'",
        "select * from a.b where d = date'Today'",
        "select * from a.b tablesample (10 percent)",
        "select current_user() from a.b",
        "select monotonically_increasing_id() from a.b",
        "select * from a.b where x in (select rand() from c.d)",
        "select `rand`() from a.b",
        "select reflect('java.util.UUID', 'randomUUID') from a.b",
        "select input_file_block_start() from a.b",
        "select * from a.b tablesample (5 rows) x join c.d tablesample (5 rows) repeatable (1) y",
    ],
)
def test_queries_with_clocks_or_random_values_are_not_deterministic(text):
    """Such a query always runs, because its result doesn't depend on its inputs alone."""
    assert not parse_query(text).is_deterministic


@pytest.mark.parametrize(
    "text",
    [
        "select now, uuid, rand from a.b",
        "select 'now()', `rand`, \"uuid()\" from a.b -- now()",
        "select unix_timestamp(x) from a.b",
        "select `current_date`, `uuid` from a.b",
        "select date '2024-01-01', 'today' from a.b",
        "select * from a.b tablesample (10 percent) repeatable (3)",
        "select user, version from a.b",
    ],
)
def test_columns_and_texts_named_like_functions_are_deterministic(text):
    assert parse_query(text).is_deterministic


def test_comments_between_words_are_kept_with_their_lines():
    query = parse_query("select 1, -- one\n  '-- not' -- two\n-- three\n")
    assert [(1, " -- one\n  "), (2, " -- two\n-- three\n")] == list(query.comments)


WORDS = [
    *("select", "from", "where", "a.b", "`c`", "(", ")", ",", "*", ".", ";", "with", "as", "table", "union"),
    *("tablesample", "values", "'x'", '"', "--", "\n", "/*", "*/", "/*+", "csv.`x`", "lateral", "order", "by"),
    *("1", "::", "[", "]", "{", "}", "->", "|>", "@", "$", "?", "%", "é", "😀", "\\", "'", "case", "end"),
    *("version", "of", "pivot", "insert", "describe"),
]


def line_of(text: str) -> int:
    """Return the line of the text's problem, or 1 if it has none."""
    try:
        parse_query(text)
    except QueryError as error:
        return error.line
    return 1


@settings(max_examples=300)
@given(st.lists(st.sampled_from(WORDS), max_size=20).map(" ".join))
@example("show tables")
def test_any_text_is_either_a_query_or_a_problem(text):
    """Whatever a file contains, the user gets a sentence and no traceback."""
    assert 1 <= line_of(text) <= text.count("\n") + 1


def test_the_parser_prints_nothing(capfd):
    """The problem contains what the parser would print to stderr."""
    refusal("show tables")
    assert "" == capfd.readouterr().err
