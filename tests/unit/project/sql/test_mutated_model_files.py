"""The model files with words removed, repeated, replaced or swapped: every problem is a sentence with a line."""

import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.projects.query_corpus import CORPUS, MODELS, SOURCES
from support.random_histories.random_seeds import new_random

from ondatra_dagster.errors import Problem
from ondatra_dagster.project.find_and_parse_model_files import ModelFile, ParsedModelFile, parse_model_file
from ondatra_dagster.project.inputs.input_resolution import InputNames
from ondatra_dagster.project.sql.column_name_resolution import opaque_relation
from ondatra_dagster.project.sql.column_tracing import trace_columns
from ondatra_dagster.project.sql.input_references import find_references, replace_names
from ondatra_dagster.project.sql.query_properties import excludes_last_value, is_row_by_row

FILES = 400
WORD = re.compile(r"\s+|\w+|'[^']*'|.", re.DOTALL)
HEADERS = (
    *("-- @kind: merge", "-- @unique_key: id", "-- @sink: crm", "-- @kind: append", "-- @incremental: id"),
    *("-- @constraint: id > 0", "-- @audit: json_object('a') is null", "-- @warning: x::TEXT = 'a'"),
    *("-- @partitioned_by: `a b`, c", "-- @kind: events", "-- @max_deletes: 5%", "-- @schedule: 0 6 * * mon"),
)
OWN = (
    "select json_object('a', id, 'b', json_group_array(x order by y desc nulls last)) from shop.orders",
    "select json_array(a, b::text[], cast(c as varchar), d::struct<a: text>) from shop.orders",
    "select * from shop.orders where id >= {{ last_value }}",
    "id INT NOT NULL, name STRING COMMENT 'x'",
    "select json_group_array(distinct json_object('a', 1)) filter (where a) over w from shop.orders window w",
)
WORDS = (
    *("(", ")", ",", "'", '"', "`", "{{", "}}", "--", "/*", "*/", "::", "[", "]", ".", ";", "<", "as", "é"),
    *("\\", "@", "with", "null", "values", "cast(", "{{ last_value }}", "order", "over (", "filter (", "distinct"),
    *("json_object", "json_array(", "json_group_array(", "select", "from", "union all", "order by"),
)
NAMES = InputNames(models={name: name for name in MODELS}, sources=SOURCES)


def mutilated(text: str, chance: random.Random) -> str:
    words = WORD.findall(text)
    for _ in range(chance.choice((1, 1, 2, 3, 5))):
        place, other = chance.randrange(len(words)), chance.randrange(len(words))
        match chance.randrange(4):
            case 0:
                words[place] = ""
            case 1:
                words.insert(place, words[other])
            case 2:
                words[place] = chance.choice(WORDS)
            case _:
                words[place], words[other] = words[other], words[place]
    return "".join(words)


def files(chance: random.Random) -> Iterator[str]:
    queries = [*(case.sql for case in CORPUS), *OWN * 8]
    for _ in range(FILES):
        header = "\n".join(chance.sample(HEADERS, chance.choice((0, 1, 2, 3))))
        if header and chance.random() < 0.3:
            header = mutilated(header, chance)
        yield f"{header}\n{mutilated(chance.choice(queries), chance)}"


def look_at(draft: ParsedModelFile) -> Iterator[Problem]:
    """Yield the problems of a query, from all steps of loading."""
    query = draft.query
    references = find_references(query, NAMES)
    is_row_by_row(query.tree), excludes_last_value(query.tree)
    trace_columns(query.tree, lambda _: opaque_relation())
    text = replace_names(
        query.sql, references.references, {read.name: "v" for read in references.inputs}, query.dialect.edits
    )
    within = sum(query.sql.count("\n", name.start, name.end) for name in references.references)
    assert query.sql.count("\n") - within <= text.count("\n") <= query.sql.count("\n")
    return map(draft.query_problem, references.unreadable_inputs)


@pytest.mark.parametrize("number", range(5))
def test_no_mutated_file_makes_the_reader_fail(number: int, tmp_path: Path) -> None:
    """A file with which the reader fails would hide the problems of all other files."""
    path = tmp_path / "b.sql"
    for text in files(new_random(number)):
        path.write_text(text, encoding="utf-8")
        problems: list[Problem] = []
        draft = parse_model_file(ModelFile("a.b", path, "models/a/b.sql"), {"crm"}, problems.append)
        problems += look_at(draft) if draft else ()
        lines = range(1, text.count("\n") + 3)
        assert [] == [str(problem) for problem in problems if problem.line not in lines], text
