"""The placeholder {{ last_value }} in a query."""

import pytest

from ondatra_dagster.project.model import TextEdit
from ondatra_dagster.project.sql.input_references import replace_names
from ondatra_dagster.project.sql.query_parser import parse_query
from ondatra_dagster.project.sql.tokenizer import QueryError


def test_a_value_replaces_the_placeholder():
    """The rest of the user's text doesn't change, and neither do braces in comments."""
    query = parse_query("select at from a.b -- {{ last_value }}\nwhere at >= {{ last_value }} and x = '{}'")
    edits = [TextEdit(start, end, "DATE'2024-01-01'") for start, end in query.last_values]
    expected = "select at from a.b -- {{ last_value }}\nwhere at >= DATE'2024-01-01' and x = '{}'"
    assert expected == replace_names(query.sql, (), {}, edits)


@pytest.mark.parametrize(
    "text",
    [
        "'Hello {{ first_name }}!'",
        "'{{ first_name }}'",
        "'it''s {{ x }}'",
        r"'a\' {{ x }}'",
        r"r'a\' || '{{ x }}'",
        '"Dear {{ name }},"',
        """'{"a":{{"b":1}}}'""",
        "/* {{ x }} */ 1",
    ],
)
def test_braces_in_a_string_literal_are_not_changed(text: str):
    """Letter templates contain them, and the tools that receive the templates fill them in."""
    sql = f"select {text} as body, at from a.b where at >= {{{{ last_value }}}}"
    query = parse_query(sql)
    assert (sql, ["{{ last_value }}"]) == (query.sql, [sql[start:end] for start, end in query.last_values])


@pytest.mark.parametrize(
    ("sql", "what"),
    [
        ("select at from a.b where at >= '{{ last_value }}'", "is in quotes"),
        ("select at from a.b where at >= {{ lastvalue }}", "{{ lastvalue }} means nothing in a query"),
    ],
)
def test_other_braces_are_refused(sql: str, what: str):
    with pytest.raises(QueryError, match=what):
        parse_query(sql)
