"""Queries of every form that Spark has: what each reads is found without Spark."""

import pytest
from support.query_corpus import CORPUS, MODELS, SOURCES, Case

from ondatra_dagster.project.inputs.sources import Names
from ondatra_dagster.project.sql.query import parse_query
from ondatra_dagster.project.sql.references import find_references, rewrite

NAMES = Names(models={name: name for name in MODELS}, sources=SOURCES)


@pytest.mark.parametrize("case", CORPUS, ids=repr)
def test_the_inputs_of_a_query_are_found(case: Case) -> None:
    found = find_references(parse_query(case.sql), NAMES)
    assert () == found.missing
    assert set(case.reads) == {read.name for read in found.inputs}


@pytest.mark.parametrize("case", CORPUS, ids=repr)
def test_only_views_are_read_and_the_rest_of_the_text_stays(case: Case) -> None:
    """No name of an input is left, and no line moves."""
    query = parse_query(case.sql)
    found = find_references(query, NAMES)
    views = {read.name: f"view_{number}" for number, read in enumerate(found.inputs)}
    text = rewrite(query.sql, found.references, views, query.dialect.edits)
    again = find_references(parse_query(text), NAMES)
    assert set(views.values()) == {missing.what.split("'")[1] for missing in again.missing}
    assert ((), query.sql.count("\n")) == (again.references, text.count("\n"))
