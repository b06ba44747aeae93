"""Queries of every form that Spark knows: their inputs are found without Spark."""

import pytest
from support.projects.query_corpus import CORPUS, MODELS, SOURCES, CorpusQuery

from ondatra_dagster.project.inputs.input_resolution import InputNames
from ondatra_dagster.project.sql.input_references import find_references, replace_names
from ondatra_dagster.project.sql.query_parser import parse_query

NAMES = InputNames(models={name: name for name in MODELS}, sources=SOURCES)


@pytest.mark.parametrize("case", CORPUS, ids=repr)
def test_the_inputs_of_a_query_are_found(case: CorpusQuery) -> None:
    references = find_references(parse_query(case.sql), NAMES)
    assert () == references.unreadable_inputs
    assert set(case.table_names) == {read.name for read in references.inputs}


@pytest.mark.parametrize("case", CORPUS, ids=repr)
def test_only_views_are_read_and_the_line_count_is_the_same(case: CorpusQuery) -> None:
    """No name of an input remains, and no line moves."""
    query = parse_query(case.sql)
    references = find_references(query, NAMES)
    views = {read.name: f"view_{number}" for number, read in enumerate(references.inputs)}
    text = replace_names(query.sql, references.references, views, query.dialect.edits)
    again = find_references(parse_query(text), NAMES)
    assert set(views.values()) == {missing.description.split("'")[1] for missing in again.unreadable_inputs}
    assert ((), query.sql.count("\n")) == (again.references, text.count("\n"))
