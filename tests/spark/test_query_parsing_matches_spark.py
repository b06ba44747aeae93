"""The query parser compared with Spark's: it finds the same inputs, and the text for Spark means the same."""

import random
import re
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from sqlglot import exp
from support.projects.query_corpus import CORPUS, MODELS, SOURCES, TABLES, CorpusQuery
from support.projects.random_queries import TABLES as RANDOM_TABLES
from support.projects.random_queries import QueryGenerator

from ondatra_dagster.project.inputs.input_resolution import InputNames
from ondatra_dagster.project.model import ModelInput
from ondatra_dagster.project.sql.column_name_resolution import Relation, input_relation
from ondatra_dagster.project.sql.column_tracing import trace_columns
from ondatra_dagster.project.sql.find_unresolved_columns import find_unresolved_columns
from ondatra_dagster.project.sql.input_references import InputReferences, find_references, replace_names
from ondatra_dagster.project.sql.query_parser import parse_query
from ondatra_dagster.warehouse.spark.session import Warehouse

pytestmark = pytest.mark.spark

RELATION = re.compile(r"UnresolvedRelation \[([^\]]*)\]")
NAMES = InputNames(models={name: name for name in MODELS}, sources=SOURCES)
VIEWS = {name: f"reader_{number}" for number, name in enumerate(TABLES)}


@pytest.fixture(scope="module")
def spark(shared_warehouse: Warehouse) -> Iterator[SparkSession]:
    """Yield a session in which every table of the corpus is a view, under a name that is in no query."""
    session = shared_warehouse.session
    for name, sql in TABLES.items():
        session.sql(sql).createOrReplaceTempView(VIEWS[name])
    yield session
    for view in VIEWS.values():
        session.catalog.dropTempView(view)


def found_in(case: CorpusQuery) -> InputReferences:
    return find_references(parse_query(case.sql), NAMES)


def relations(spark: SparkSession, sql: str) -> set[str]:
    """Return the names of two parts that Spark's parser takes for tables; names of one part are CTEs."""
    plan = spark._jsparkSession.sessionState().sqlParser().parsePlan(sql).toString()
    names = {name.casefold() for name in RELATION.findall(plan)}
    return {name.replace(", ", ".", 1) for name in names if ", " in name}


@pytest.mark.parametrize("case", CORPUS, ids=repr)
def test_spark_finds_the_same_inputs(spark, case):
    """Spark would find an overlooked table by itself: at any version, or not at all."""
    query = parse_query(case.sql)
    expected = relations(spark, replace_names(query.sql, (), {}, query.dialect.edits))
    inputs = {str(read.name).partition(" WITH")[0].replace("`", "") for read in found_in(case).inputs}
    assert expected == {name.casefold() for name in inputs}


@pytest.mark.parametrize("case", CORPUS, ids=repr)
def test_spark_understands_the_text_with_replaced_names(spark, case):
    """Each table name is replaced by that of a view, and every column is still found."""
    query = parse_query(case.sql)
    input_references = found_in(case)
    text = replace_names(query.sql, input_references.references, VIEWS, query.dialect.edits)
    assert set() == relations(spark, text)
    spark.sql(text).schema  # noqa: B018 - this analyses the query, or raises an error


@pytest.mark.parametrize("case", CORPUS, ids=repr)
def test_the_traced_columns_are_those_that_spark_returns(spark, case):
    """If all columns of a query are known, they have Spark's names and positions."""
    query = parse_query(case.sql)
    input_references = found_in(case)
    inputs = {
        reference.start: reference.input for reference in input_references.references if not reference.is_qualifier
    }

    def relation_of(table: exp.Table) -> Relation:
        read = inputs[table.parts[0].meta["start"]]
        return input_relation(read, spark.table(VIEWS[read.name]).columns)

    lineage = trace_columns(query.tree, relation_of)
    text = replace_names(query.sql, input_references.references, VIEWS, query.dialect.edits)
    if lineage.unknown_columns is None:
        names = spark.sql(text).columns
        assert len(names) == len(lineage.columns)
        named = [(name, column.name) for name, column in zip(names, lineage.columns, strict=True) if column.name]
        assert [name.casefold() for name, _ in named] == [name.casefold() for _, name in named]


def misspelled(sql: str, chance: random.Random) -> Iterator[str]:
    """Yield the query once for each of its columns, which gets the name of another column or an unknown name."""
    columns = [column for column in parse_query(sql).tree.find_all(exp.Column) if not column.is_star]
    places = {(column.this.meta.get("start"), column.this.meta.get("end")) for column in columns}
    for start, end in sorted(place for place in places if None not in place):
        name = chance.choice(("id", "status", "sku", "boss", "x", "nowhere", "name", "amount"))
        yield f"{sql[:start]}{name}{sql[end + 1 :]}"


@pytest.mark.parametrize("case", CORPUS, ids=repr)
def test_spark_refuses_each_column_that_is_refused_before_it_starts(spark, case):
    """One column at a time gets the name of another one or an unknown name."""
    for sql in misspelled(case.sql, random.Random(case.sql)):
        query = parse_query(sql)
        input_references = find_references(query, NAMES)
        inputs = {
            reference.start: reference.input for reference in input_references.references if not reference.is_qualifier
        }

        def relation_of(table: exp.Table, inputs=inputs) -> Relation:
            read = inputs[table.parts[0].meta["start"]]
            return input_relation(read, spark.table(VIEWS[read.name]).columns)

        if find_unresolved_columns(query, relation_of):
            text = replace_names(query.sql, input_references.references, VIEWS, query.dialect.edits)
            with pytest.raises(AnalysisException):
                spark.sql(text).schema  # noqa: B018 - it is analysed


@pytest.fixture(scope="module")
def catalog(spark: SparkSession) -> Iterator[SparkSession]:
    """Yield the session with the same tables under the names in the queries, as views of Spark's catalog."""
    schemas = {name.partition(".")[0] for name in MODELS}
    for schema in schemas:
        spark.sql(f"create database if not exists {schema}")
    for name in MODELS:
        spark.sql(f"create or replace view {name} as {TABLES[name]}")
    yield spark
    for schema in schemas:
        spark.sql(f"drop database {schema} cascade")


def is_repeatable(case: CorpusQuery) -> bool:
    """Return whether a query gives the same rows twice, from tables that Spark's own catalog can have."""
    return parse_query(case.sql).is_deterministic and set(case.table_names) <= set(MODELS)


def answer(spark: SparkSession, sql: str) -> tuple[list[tuple[str, str]], list[str]]:
    rows = spark.sql(sql)
    return rows.dtypes, sorted(str(row) for row in rows.collect())


@pytest.mark.parametrize("case", [case for case in CORPUS if is_repeatable(case)], ids=repr)
def test_spark_returns_the_same_for_the_users_own_text(catalog, case):
    """With its own tables Spark needs no replaced names. Both results have the same names and rows."""
    query = parse_query(case.sql)
    text = replace_names(query.sql, found_in(case).references, VIEWS, query.dialect.edits)
    own_text = replace_names(query.sql, (), {}, query.dialect.edits)
    assert answer(catalog, own_text) == answer(catalog, text)


@settings(max_examples=300, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**32))
def test_no_query_that_spark_accepts_is_refused(seed):
    """Spark accepts all of these queries, as the test below shows."""
    query = parse_query(QueryGenerator(random.Random(seed)).write_query().text)

    def relation_of(table: exp.Table) -> Relation:
        name = f"{table.db}.{table.name}"
        return input_relation(ModelInput(model=name), RANDOM_TABLES[name])

    assert [] == find_unresolved_columns(query, relation_of), query.sql


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**32))
def test_spark_returns_the_same_for_any_query(random_tables, seed):
    """Names are qualified or not, short or full, and shadowed by CTEs, aliases and outer queries."""
    query = parse_query(QueryGenerator(random.Random(seed)).write_query().text)
    input_references = find_references(query, InputNames(models={name: name for name in RANDOM_TABLES}, sources={}))
    assert () == input_references.unreadable_inputs
    text = replace_names(
        query.sql, input_references.references, {name: f"random_{name[0]}_{name[2]}" for name in RANDOM_TABLES}, ()
    )
    assert answer(random_tables, query.sql) == answer(random_tables, text), text


@pytest.fixture(scope="module")
def random_tables(spark: SparkSession) -> Iterator[SparkSession]:
    """Yield the session with the tables of the random queries, in Spark's catalog and as views."""
    for number, (name, columns) in enumerate(RANDOM_TABLES.items(), start=1):
        rows = ", ".join(f"({id_}, {id_ * 10**number}, {id_ * 7**number})" for id_ in (1, 2, 3, 3))
        sql = f"select * from values {rows} as t({', '.join(columns)})"
        spark.sql(f"create database if not exists {name[0]}")
        spark.sql(f"create or replace view {name} as {sql}")
        spark.sql(sql).createOrReplaceTempView(f"random_{name[0]}_{name[2]}")
    yield spark
    for schema in {name[0] for name in RANDOM_TABLES}:
        spark.sql(f"drop database {schema} cascade")


def test_spark_continues_a_comment_after_a_backslash(spark):
    """Such a comment is refused for this reason."""
    assert ["a"] == spark.sql("select 1 as a -- note \\\n, 2 as b").columns
