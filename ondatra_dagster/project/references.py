"""Where a query names its inputs: Spark is given the user's own text with only those names replaced.

CTEs shadow tables; strings and comments are none. An input keeps the name that its columns are qualified
with: it gets an alias where the query gives it none, and `mart.customers.id` becomes a column of that alias.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from sqlglot import exp

from ondatra_dagster.project.model import FileInput, Input, Reference
from ondatra_dagster.project.query import Query
from ondatra_dagster.project.sources import Names, UnknownInputError


class Missing(NamedTuple):
    """A name in the query that can't be read."""

    line: int  # within the query
    what: str
    remedy: str


class Found(NamedTuple):
    references: tuple[Reference, ...]  # in the order of the text
    lines: tuple[tuple[Input, int], ...]  # each input once, with the line that names it first
    missing: tuple[Missing, ...]

    @property
    def inputs(self) -> tuple[Input, ...]:
        return tuple(found for found, _ in self.lines)


class _Use(NamedTuple):
    """A table in the tree, and what it stands for."""

    table: exp.Table
    parts: tuple[exp.Identifier, ...]
    input: Input

    @property
    def start(self) -> int:
        return int(self.parts[0].meta["start"])

    @property
    def end(self) -> int:
        return int(self.parts[-1].meta["end"]) + 1


def find_references(query: Query, names: Names) -> Found:
    """Every input of the query and each place where it stands."""
    uses: list[_Use] = []
    missing: list[Missing] = []
    columns: list[exp.Column] = []
    for node in query.tree.walk():
        if isinstance(node, exp.Column):
            columns.append(node)
        elif isinstance(node, exp.Table):
            _sort_out(node, query, names, uses, missing)
    aliases = _aliases(uses, query)
    references = [*_of_tables(uses, aliases, query), *_of_qualifiers(columns, uses, aliases)]
    lines: dict[Input, int] = {}
    for use in uses:
        line = use.parts[0].meta["line"]
        lines[use.input] = min(line, lines.get(use.input, line))
    return Found(
        references=tuple(sorted(references, key=lambda reference: reference.start)),
        lines=tuple(lines.items()),
        missing=tuple(missing),
    )


def rewrite(sql: str, references: Sequence[Reference], views: Mapping[str, str]) -> str:
    """The query with each input's name replaced by that of its view; `views` is by Input.name."""
    pieces: list[str] = []
    position = 0
    for reference in sorted(references, key=lambda reference: reference.start):
        pieces.append(sql[position : reference.start])
        pieces.append(_replacement(sql, reference, views))
        position = reference.end
    return "".join((*pieces, sql[position:]))


def _replacement(sql: str, reference: Reference, views: Mapping[str, str]) -> str:
    alias = quoted(reference.alias) if reference.alias else None
    if reference.is_qualifier:
        return alias or ""
    view = quoted(views[reference.input.name])
    between = sql[reference.name_end : reference.end] if reference.name_end else ""  # TABLESAMPLE (…)
    return f"{view}{between} AS {alias}" if alias else f"{view}{between}"


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _sort_out(table: exp.Table, query: Query, names: Names, uses: list[_Use], missing: list[Missing]) -> None:
    """Find what a table in the tree is: an input, a CTE, a function, or something that nothing makes."""
    parts = tuple(part for part in table.parts if isinstance(part, exp.Identifier))
    if len(parts) < len(table.parts):  # a table function: range(10)
        if table.name.casefold() == "identifier":
            missing.append(Missing(1, "IDENTIFIER() hides what is read", "write the table's name as it is"))
        return
    if len(parts) == 1 and _is_cte(table, parts[0].name):
        return
    line = parts[0].meta["line"]
    if table.args.get("version") or table.args.get("when"):
        missing.append(Missing(line, "an input is read as it is now", "remove VERSION or TIMESTAMP AS OF"))
    options = query.clauses.options.get(parts[-1].meta["end"] + 1)
    try:
        found = names.find([part.name for part in parts], options.values if options else ())
    except UnknownInputError as unknown:
        missing.append(Missing(line, unknown.what, unknown.remedy))
        return
    uses.append(_Use(table, parts, found))


def _is_cte(table: exp.Table, name: str) -> bool:
    """Whether a WITH around the table gives that name."""
    node: exp.Expr | None = table.parent
    while node is not None:
        clause = node.args.get("with_")
        if clause and any(cte.alias.casefold() == name.casefold() for cte in clause.expressions):
            return True
        node = node.parent
    return False


def _aliases(uses: Sequence[_Use], query: Query) -> dict[int, str]:
    """The alias of each table that has none in the query, by the table's identity.

    It is the table's own name; where two inputs of one SELECT would share it, their full names.
    """
    bare = [use for use in uses if not use.table.alias and _can_be_qualifier(use, query)]
    by_name: dict[tuple[int, str], set[str]] = {}
    for use in bare:
        by_name.setdefault((_scope(use), use.parts[-1].name.casefold()), set()).add(use.input.name)
    return {
        id(use.table): use.parts[-1].name
        if len(by_name[_scope(use), use.parts[-1].name.casefold()]) == 1
        else ".".join(part.name for part in use.parts)
        for use in bare
    }


def _can_be_qualifier(use: _Use, query: Query) -> bool:
    """Columns can't be qualified with a file's name, nor is there anything to qualify in TABLE a.b."""
    return not isinstance(use.input, FileInput) and use.start not in query.clauses.table_queries


def _scope(use: _Use) -> int:
    return id(use.table.parent_select)


def _of_tables(uses: Sequence[_Use], aliases: Mapping[int, str], query: Query) -> Iterator[Reference]:
    for use in uses:
        name_end = use.end
        options = query.clauses.options.get(name_end)
        after_options = options.end if options else name_end
        alias = aliases.get(id(use.table))
        sample_end = query.clauses.sample_ends.get(after_options) if alias else None
        yield Reference(
            start=use.start,
            end=sample_end or after_options,
            name_end=after_options if sample_end else None,
            input=use.input,
            alias=alias,
        )


def _of_qualifiers(
    columns: Sequence[exp.Column], uses: Sequence[_Use], aliases: Mapping[int, str]
) -> Iterator[Reference]:
    """mart.customers in mart.customers.id, where mart.customers is a table of a SELECT around it."""
    by_scope: dict[tuple[int, str], _Use] = {}
    for use in uses:
        if id(use.table) in aliases:
            by_scope.setdefault((_scope(use), _full_name(use.parts)), use)
    if not by_scope:
        return
    for column in columns:
        parts = [part for part in column.parts if isinstance(part, exp.Identifier)]
        if len(column.parts) < 3 or len(parts) < 2:
            continue
        found = _nearest_use(column, _full_name(parts[:2]), by_scope)
        if found:
            start, end = parts[0].meta["start"], parts[1].meta["end"] + 1
            alias = aliases[id(found.table)]
            yield Reference(start=start, end=end, input=found.input, alias=alias, is_qualifier=True)


def _nearest_use(column: exp.Column, name: str, by_scope: Mapping[tuple[int, str], _Use]) -> _Use | None:
    """The table of that name in the innermost SELECT around the column."""
    select = column.parent_select
    while select is not None:
        if (id(select), name) in by_scope:
            return by_scope[id(select), name]
        select = select.parent_select
    return None


def _full_name(parts: Sequence[exp.Identifier]) -> str:
    return ".".join(part.name for part in parts).casefold()
