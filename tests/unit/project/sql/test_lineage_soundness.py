"""The lineage of random queries, compared with DuckDB. A change of a column that isn't a source changes no value."""

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlglot import exp
from support.projects.random_queries import TABLES, QueryGenerator

from ondatra_dagster.project.model import ModelInput
from ondatra_dagster.project.sql.column_name_resolution import Relation, input_relation
from ondatra_dagster.project.sql.column_tracing import trace_columns
from ondatra_dagster.project.sql.query_parser import parse_query

if TYPE_CHECKING:
    import duckdb

ROWS = [(1, 10, 100), (2, 20, 200), (3, 30, 300), (3, 31, 301)]


@pytest.fixture(scope="module")
def tables() -> Iterator["duckdb.DuckDBPyConnection"]:
    import duckdb  # imported here: DuckDB reports objects that hypothesis keeps until the end as leaked

    with duckdb.connect() as connection:
        for number, (table, columns) in enumerate(TABLES.items(), start=1):
            connection.execute(f"create schema if not exists {table[0]}")
            connection.execute(f"create table {table} ({', '.join(f'{name} bigint' for name in columns)})")
            rows = [(id_, one * number**3, other * number**3) for id_, one, other in ROWS]
            connection.executemany(f"insert into {table} values (?, ?, ?)", rows)
        yield connection


def flow(sql: str) -> Relation:
    def relation_of(table: exp.Table) -> Relation:
        name = f"{table.db}.{table.name}"
        return input_relation(ModelInput(model=name), TABLES[name])

    return trace_columns(parse_query(sql).tree, relation_of)


def values(tables: "duckdb.DuckDBPyConnection", sql: str) -> list[list[object]]:
    """Return each column's values, each column sorted separately."""
    rows = tables.execute(sql).fetchall()
    return [sorted(column, key=repr) for column in zip(*rows, strict=True)]


@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**32))
def test_a_column_changes_only_with_its_sources(tables, seed):
    """A missing source would be a wrong answer. A source too many is only a careful one."""
    query = QueryGenerator(random.Random(seed)).write_query()
    relation = flow(query.text)
    assert (list(query.columns), None) == ([column.name for column in relation.columns], relation.unknown_columns), (
        query.text
    )
    assert all(column.sources.is_known for column in relation.columns), query.text
    before = values(tables, query.text)
    for table, names in TABLES.items():
        for name in names[1:]:
            tables.begin()
            tables.execute(f"update {table} set {name} = {name} * 7 + 1000000")
            after = values(tables, query.text)
            tables.rollback()
            for column, was, became in zip(relation.columns, before, after, strict=True):
                origins = {(origin.input.name, origin.column) for origin in column.sources.origins}
                assert was == became or (table, name) in origins, (column.name, table, name, query.text)
