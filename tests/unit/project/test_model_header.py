"""The header of a model: the comments above its query."""

from decimal import Decimal

import pytest

from ondatra_dagster.project.model import ModelSink, RowLimit
from ondatra_dagster.project.model_header import Header, find_header_end, find_header_lines, read_header
from ondatra_dagster.project.model_kinds import KINDS


def header_of(text: str, *, sinks: tuple[str, ...] = ("crm_push", "erp_push")) -> tuple[Header, list[str]]:
    header, problems = read_header(text, file="models/sync/crm.sql", model="sync.crm", sinks=sinks)
    return header, [str(problem).removeprefix("models/sync/crm.sql:") for problem in problems]


def problem_of(text: str) -> str:
    _, problems = header_of(text)
    (problem,) = problems
    return problem


def test_a_complete_header():
    text = """
-- @kind: merge
-- @unique_key: customer_id, region
-- @sink: crm_push('eu', "it's")
-- @sync_id: crm.2024
-- @max_rejects: 5%
-- @max_lag: 7d
-- @description: Who buys: everyone
-- @owner: anna@example.com
-- @owner: team:crm
-- @tag: daily
-- @tag: tier = gold
-- @column: email = where we write to
-- @column: `Full Name` = as = printed
-- @max_deletes: 10
-- @schedule: 0 6 * * mon-fri
"""
    expected = Header(
        kind=KINDS["merge"],
        key_columns=("customer_id", "region"),
        sink=ModelSink(
            name="crm_push",
            arguments=("eu", "it's"),
            sync_id="crm.2024",
            line=4,
            max_rejects=RowLimit(Decimal(5), is_percentage=True),
            max_deletes=RowLimit(Decimal(10)),
            max_lag_seconds=7 * 86400,
        ),
        schedule="0 6 * * mon-fri",
        schedule_line=16,
        description="Who buys: everyone",
        owners=("anna@example.com", "team:crm"),
        tags=("daily", "tier=gold"),
        column_descriptions=(("email", "where we write to"), ("Full Name", "as = printed")),
        named_columns=(("customer_id", 3), ("region", 3), ("email", 13), ("Full Name", 14)),
    )
    assert (expected, []) == header_of(text)


def test_without_a_header_a_model_is_a_table():
    assert (Header(kind=KINDS["table"]), []) == header_of("")


def test_words_and_kinds_are_read_in_any_case():
    header, problems = header_of("-- @KIND: Merge\n--@Unique_Key:id")
    assert ("merge", ("id",), []) == (header.kind.name, header.key_columns, problems)


def test_white_space_around_a_header_does_not_matter():
    header, problems = header_of("   --   @kind  :   merge  \t\n---@unique_key:\t id ,  b\n")
    assert ("merge", ("id", "b"), []) == (header.kind.name, header.key_columns, problems)


@pytest.mark.parametrize("word", ["sink", "push"])
def test_sink_has_two_spellings(word):
    """The source documents use both words."""
    header, problems = header_of(f"-- @{word}: crm_push")
    expected = ModelSink(name="crm_push", arguments=(), sync_id="sync.crm", line=1)
    assert (expected, []) == (header.sink, problems)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("crm_push()", ()),
        ("crm_push( )", ()),
        ("crm_push('a')", ("a",)),
        ("crm_push ( 'a' , 'b' )", ("a", "b")),
        ("crm_push('a, b', ')')", ("a, b", ")")),
        ('crm_push(\'it\'\'s\', "say ""hi""")', ("it's", 'say "hi"')),
        ("crm_push('')", ("",)),
    ],
)
def test_a_sink_accepts_text_arguments(written, expected):
    header, problems = header_of(f"-- @sink: {written}")
    assert [] == problems
    assert header.sink is not None
    assert expected == header.sink.arguments


@pytest.mark.parametrize("written", ["crm_push(1)", "crm_push('a'", "crm_push(a)", "crm push", "crm_push('a' 'b')"])
def test_a_sink_accepts_only_text_arguments(written):
    expected = "1: @sink " + repr(written) + " can't be read; write @sink: name or @sink: name('text', 'text')"
    assert expected == problem_of(f"-- @sink: {written}")


def test_tracked_may_name_its_key_with_either_word():
    assert header_of("-- @kind: tracked\n-- @group_key: a")[0].key_columns == ("a",)
    assert header_of("-- @kind: tracked\n-- @unique_key: a")[0].key_columns == ("a",)


def test_key_columns_may_have_any_name():
    header, problems = header_of("-- @kind: merge\n-- @unique_key: Customer Id, `a, b`, `c``d`, naïve")
    assert (("Customer Id", "a, b", "c`d", "naïve"), []) == (header.key_columns, problems)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("-- @knd: merge", "1: @knd is not a header; did you mean 'kind'? the words are audit, column, constraint, "),
        ("-- @kind: merg", "1: @kind 'merg' is not a kind; did you mean 'merge'? the kinds are append, "),
        ("-- @kind: zzz", "1: @kind 'zzz' is not a kind; the kinds are append, "),
        (
            "-- @kind: mirror",
            "1: @kind 'mirror' is not a kind; the kinds are append, events, merge, partition, scd2, table,"
            " tracked; for inserts, updates and deletes by key: tracked with @group_key",
        ),
        ("-- @kind:", "1: @kind says nothing; write -- @kind: value"),
        ("-- @kind merge", "1: @kind says nothing; write -- @kind: value"),
        ("-- @description:   ", "1: @description says nothing; write -- @description: value"),
        ("\n\n-- @kind: merge", "3: kind merge needs a key; add -- @unique_key: column"),
        ("-- @kind: tracked", "1: kind tracked needs a key; add -- @group_key: column"),
        ("-- @unique_key: a", "1: kind table has no @unique_key; remove it, or choose a kind with a key"),
        (
            "-- @kind: tracked\n-- @group_key: a\n-- @unique_key: a",
            "3: @group_key and @unique_key mean the same for kind tracked; keep one of them",
        ),
        ("-- @kind: table\n-- @kind: table", "2: @kind is already on line 1; keep one of the two"),
        ("-- @sink: crm_push\n-- @push: erp_push", "2: @push is already on line 1; keep one of the two"),
        (
            "-- @sink: crm_psh",
            "1: @sink 'crm_psh' has no lib/crm_psh.star; did you mean 'crm_push'? the sinks are crm_push, ",
        ),
        ("-- @max-deletes: 5", "1: @max-deletes is not a header; did you mean 'max_deletes'? "),
        ("-- @ max_delets : 5", "1: @max_delets is not a header; did you mean 'max_deletes'? "),
        ("-- @uniqe_key id", "1: @uniqe_key is not a header; did you mean 'unique_key'? "),
        ("-- @sync_id: x", "1: @sync_id has no @sink; add -- @sink: name, or remove it"),
        ("-- @max_lag: 1h", "1: @max_lag has no @sink; add -- @sink: name, or remove it"),
        ("-- @owner: anna", "1: @owner 'anna' is neither; write an e-mail address or team:name"),
        ("-- @owner: team:", "1: @owner 'team:' is neither; write an e-mail address or team:name"),
        ("-- @tag: a b", "1: @tag 'a b' is not a tag; write name or name=value, each up to 63 of "),
        ("-- @tag: " + "x" * 64, "1: @tag 'xxx"),
        ("-- @column: email", "1: @column 'email' has no description; write @column: name = what it holds"),
        (
            "-- @kind: merge\n-- @unique_key: a,,b",
            "2: 'a,,b' is not a list of columns; write names between commas: a, b",
        ),
        ("-- @kind: merge\n-- @unique_key: a,", "2: 'a,' is not a list of columns; write names between commas: a, b"),
        ("-- @kind: merge\n-- @unique_key: a, A", "2: 'a, A' names a column twice; name each column once"),
    ],
)
def test_an_invalid_header_says_where_what_and_what_to_do(text, expected):
    assert problem_of(text).startswith(expected)


def test_merge_does_not_accept_a_group_key():
    _, problems = header_of("-- @kind: merge\n-- @group_key: a")
    expected = [
        "2: kind merge has no @group_key; write @unique_key",
        "1: kind merge needs a key; add -- @unique_key: column",
    ]
    assert expected == problems


def test_an_unknown_kind_is_the_only_problem_with_the_key():
    """The key that it needs is unknown: a second message would be a guess."""
    assert problem_of("-- @kind: scd9\n-- @unique_key: a").startswith("1: @kind 'scd9' is not a kind")


@pytest.mark.parametrize("written", ["x", "-1", "5 percent", "101%", "1.5", "%"])
def test_a_limit_is_a_number_or_a_percentage(written):
    expected = f"2: {written!r} is not a limit; write a number of rows, 10, or a percentage, 5%"
    assert expected == problem_of(f"-- @sink: crm_push\n-- @max_rejects: {written}")


@pytest.mark.parametrize(
    ("written", "rows", "allowed"),
    [
        ("0", 200, 0),
        ("10", 200, 10),
        ("5 %", 200, 10),
        ("0.5%", 200, 1),
        ("0.5%", 199, 0),
        ("29%", 100, 29),
        ("0.7%", 1000, 7),
        ("100%", 3, 3),
        ("5%", 0, 0),
    ],
)
def test_a_limit_is_exceeded_only_by_more_rows_than_it_allows(written, rows, allowed):
    """29 of 100 rows are 29 %, whatever the floating-point result is."""
    header, _ = header_of(f"-- @sink: crm_push\n-- @max_rejects: {written}")
    assert header.sink is not None
    limit = header.sink.max_rejects
    assert (False, True) == (limit.is_exceeded_by(allowed, of=rows), limit.is_exceeded_by(allowed + 1, of=rows))


def test_only_the_lag_has_a_default_limit():
    """If no user has missed a row for a day, no user looks for it."""
    header, _ = header_of("-- @sink: crm_push")
    assert header.sink is not None
    assert (None, None, 24 * 3600) == (header.sink.max_rejects, header.sink.max_deletes, header.sink.max_lag_seconds)


@pytest.mark.parametrize(
    ("text", "key", "storage"),
    [
        ("-- @kind: partition\n-- @partitioned_by: day, `a b`", ("day", "a b"), ()),
        ("-- @kind: partition\n-- @unique_key: day", ("day",), ()),
        ("-- @kind: merge\n-- @unique_key: id\n-- @partitioned_by: day", ("id",), ("day",)),
    ],
)
def test_partition_columns_are_a_key_or_only_a_storage_hint(text, key, storage):
    header, problems = header_of(text)
    assert (key, storage, []) == (header.key_columns, header.storage_columns, problems)


@pytest.mark.parametrize("written", ["1", "1w", "h", "0h", "1.5h", "-1h"])
def test_a_lag_is_a_duration(written):
    expected = f"2: {written!r} is not a length of time; write 30m, 24h or 7d"
    assert expected == problem_of(f"-- @sink: crm_push\n-- @max_lag: {written}")


@pytest.mark.parametrize("written", ["a b", "a/b", "..", ".", "ä", "x" * 101])
def test_a_sync_id_can_be_the_name_of_a_folder(written):
    assert problem_of(f"-- @sink: crm_push\n-- @sync_id: {written}").endswith(
        "can't be a sync's id; use up to 100 of A-Z a-z 0-9 . _ -"
    )


def test_checks_are_read_and_repeated_ones_are_refused():
    """Each word may occur any number of times. A repeated check would be evaluated twice under the same name."""
    text = "-- @constraint: a > 0\n-- @constraint: b > 0\n-- @audit: a > 0\n-- @warning: a<9\n-- @warning: a < 9"
    header, problems = header_of(text)
    expected = ["@constraint a > 0", "@constraint b > 0", "@warning a<9", "@audit a > 0"]
    assert expected == [str(check) for check in header.checks]
    assert ["5: @warning repeats line 4; keep one of the two"] == problems


def test_all_problems_are_reported_together():
    """The user doesn't have to fix a file line by line."""
    _, problems = header_of("-- @knd: x\n-- @owner: y\n-- @tag: a b\n-- @sink: z")
    assert ["1", "2", "3", "4"] == [problem[0] for problem in problems]


def test_an_unreadable_sink_is_the_only_problem():
    """One mistake gives one message."""
    assert problem_of("-- @sink: crm push\n-- @sync_id: x").startswith("1: @sink 'crm push' can't be read")


def test_a_mention_of_a_person_is_an_ordinary_comment():
    assert ([], []) == (list(find_header_lines("-- @anna, please look\n-- mail a@b: c")), header_of("-- @anna, hi")[1])


def test_headers_may_be_below_a_licence():
    header, problems = header_of("/* (c) us\n-- @kind: merge\n*/\n-- about customers\n-- @tag: a\n")
    assert ("table", ("a",), []) == (header.kind.name, header.tags, problems)


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("-- @kind: table\n\nselect 1", "select 1"),
        ("/* a */ -- b\n /* c\n */ select 1", "select 1"),
        ("select 1", "select 1"),
        ("-- only comments", ""),
        ("", ""),
        ("/* never closed", "/* never closed"),
        ("/*+ hint */ select 1", "/*+ hint */ select 1"),
        ("- 1", "- 1"),
    ],
)
def test_the_header_ends_where_the_query_begins(text, query):
    assert query == text[find_header_end(text) :]
